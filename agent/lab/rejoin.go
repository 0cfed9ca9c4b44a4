package lab

import (
	"slices"

	"github.com/failslow/falcon"
)

// rejoinsMost bounds what is kept of the recoveries of one run.
const rejoinsMost = 1024

// faultLine is what a rank logs when it has come to the point where it is to die
// or to freeze.
type faultLine struct {
	Fault  string `json:"fault"` // one of Points
	UnixNs int64  `json:"unix_ns"`
}

// rejoinLine is what a rank logs of an order to rejoin, besides its status.
type rejoinLine struct {
	Rejoin uint64 `json:"rejoin"` // generation
	Again  int64  `json:"resume_iteration"`
	Source int32  `json:"from"` // whose shard it got: its own, or -2 = storage
}

// rejoin is one recovery as its ranks log it. pids are of the processes that
// held the ranks before and after it.
type rejoin struct {
	generation    uint64
	resume        int64
	redone        int64 // iterations begun before it and run again
	source        map[falcon.Rank]int32
	before, after map[falcon.Rank]int
	downMs        float64
}

// takeRejoin takes a process's line that it trains again: it is a member of the
// generation, and what an earlier one ran from there on is run again. Where the
// status is bad, it waits for another recovery.
func (l *Lab) takeRejoin(p *rankProcess, ln line) {
	if ln.Status != 0 {
		return
	}
	before := l.rankOwners()
	p.generation = ln.Rejoin
	p.joining = false
	j := l.records.noteRejoin(ln, before)
	if j == nil {
		return
	}
	j.source[p.rank], j.after[p.rank] = ln.Source, p.pid
	l.assignRank(p)
	l.faults.setPlacement(l.placement(ln.Rejoin))
}

// rankOwners are the processes that hold the ranks of the world: of those that have
// begun, the newest.
func (l *Lab) rankOwners() map[falcon.Rank]int {
	out := map[falcon.Rank]int{}
	launch := map[falcon.Rank]uint64{}
	for _, p := range l.ranks {
		at, ok := launch[p.rank]
		if !p.joining && int(p.rank) < l.records.world && (!ok || p.launch >= at) {
			out[p.rank], launch[p.rank] = p.pid, p.launch
		}
	}
	return out
}

// noteRejoin notes the recovery that a line is about; nil when it is an old one,
// or one too many.
func (r *records) noteRejoin(l line, before map[falcon.Rank]int) *rejoin {
	if j := r.rejoinOfGeneration(l.Rejoin); j != nil {
		return j
	}
	if l.Rejoin <= r.generation ||
		l.Again < 0 ||
		l.Again > maxIterations ||
		len(r.rejoins) >= rejoinsMost {
		return nil
	}
	j := &rejoin{
		generation: l.Rejoin,
		resume:     l.Again,
		redone:     max(0, int64(len(r.rows))+1-l.Again),
		source:     map[falcon.Rank]int32{},
		before:     before,
		after:      map[falcon.Rank]int{},
	}
	r.rejoins = append(r.rejoins, j)
	r.resumeFrom(l.Rejoin, l.Again)
	return j
}

// resumeFrom goes on with iteration from in a new generation: those before it are
// done, logged by all ranks or not.
func (r *records) resumeFrom(generation uint64, from int64) {
	r.growRows(from)
	r.beginGeneration(generation, from)
	for i := r.done; i < from; i++ {
		r.rows[i].Untold = true
	}
	r.done = from
}

func (r *records) rejoinOfGeneration(generation uint64) *rejoin {
	i := slices.IndexFunc(r.rejoins, func(j *rejoin) bool { return j.generation == generation })
	if i < 0 {
		return nil
	}
	return r.rejoins[i]
}

// survivorsKept reports whether every survivor is the process that it was: all ranks but
// the replaced ones have come back, each with its process id of before.
func (j *rejoin) survivorsKept(replaced map[falcon.Rank]falcon.Device) bool {
	for r, pid := range j.before {
		if _, isNew := replaced[r]; !isNew && j.after[r] != pid {
			return false
		}
	}
	return true
}
