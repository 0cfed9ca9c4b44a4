package recovery

import (
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/internal/progress"
)

// generations counts the generations of rank tables, communicators and processes.
type generations struct{ highest uint64 }

// raiseTo has the next generation be higher than one that was used.
func (g *generations) raiseTo(used uint64) {
	g.highest = max(g.highest, used)
}

// highestUsed is the highest that was used.
func (g *generations) highestUsed() uint64 { return g.highest }

// nextGeneration is one that was never used, nor by the job itself.
func (g *generations) nextGeneration(job uint64) uint64 {
	g.highest = max(g.highest, job) + 1
	return g.highest
}

// stoppage is the state of a job that is stopped after a recovery without success: no
// recovery is opened until a new job epoch starts it, or one is demanded.
type stoppage struct {
	on    bool
	since time.Time
	left  leftovers
}

func newStoppage() stoppage { return stoppage{left: leftovers{}} }

func (s *stoppage) stopJob(now time.Time) {
	s.on, s.since = true, now
}

func (s *stoppage) reopen() {
	s.on = false
}

func (s *stoppage) isStopped() bool { return s.on }

// noteLeftover takes a report of a process; without a recovery it may wait for nothing.
func (s *stoppage) noteLeftover(p Process, noRecovery bool) {
	s.left.observe(p, s.on && noRecovery)
}

func (s *stoppage) forgetLeftovers() {
	clear(s.left)
}

// takeLeftovers lists the processes that still wait, and forgets them.
func (s *stoppage) takeLeftovers() ([]falcon.Node, []falcon.Rank) {
	return s.left.takeAll()
}

// trainingResumed reports whether iterations begin in the stopped job.
func (s *stoppage) trainingResumed(p *progress.Tracker, beat time.Duration) bool {
	return s.on && p.ConfirmedAfter(s.since.Add(2*beat))
}

// hasLeftovers reports whether processes still wait some beats later.
func (s *stoppage) hasLeftovers(now time.Time, beat time.Duration) bool {
	return s.on && len(s.left) > 0 && !now.Before(s.since.Add(2*beat))
}

// leftovers are processes that wait in a generation while the job is stopped after a
// recovery without success: pid by rank on each node, in the placement or not.
type leftovers map[falcon.Node]map[falcon.Rank]int

// observe takes a report of a process.
func (l leftovers) observe(p Process, jobStopped bool) {
	// a process that left training by itself is in none
	waits := p.Alive && p.Park != nil && p.Park.Generation > 0
	switch {
	case jobStopped && waits && p.Rank >= 0:
		if l[p.Node] == nil {
			l[p.Node] = map[falcon.Rank]int{}
		}
		l[p.Node][p.Rank] = p.Pid
	case l[p.Node][p.Rank] == p.Pid:
		delete(l[p.Node], p.Rank)
	}
}

// takeAll lists what waits, ascending, and forgets it.
func (l leftovers) takeAll() (nodes []falcon.Node, ranks []falcon.Rank) {
	for n, on := range l {
		if len(on) > 0 {
			nodes = append(nodes, n)
		}
		ranks = slices.AppendSeq(ranks, maps.Keys(on))
	}
	clear(l)
	slices.Sort(nodes)
	slices.Sort(ranks)
	return nodes, slices.Compact(ranks)
}
