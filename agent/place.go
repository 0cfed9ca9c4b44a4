package agent

import (
	"math"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/iterate"
)

// tenuresMax is how many ranks of one process are remembered. Between two looks
// there is one placement at most, and its samples are taken at the next.
const tenuresMax = 8

// tenure is a rank that a process holds from an iteration on.
type tenure struct {
	from int64
	rank falcon.Rank
}

// rankAt is the rank that the process held in an iteration, -1 where it is not
// known: before the newest placement that an agent found when it was started.
func (p *process) rankAt(iteration int64) falcon.Rank {
	for _, t := range slices.Backward(p.tenures) {
		if iteration >= t.from {
			return t.rank
		}
	}
	return -1
}

// settle begins the process's first tenure, by the launcher's word or by its
// communicators, unless it was placed before this agent looked.
func (p *process) settle() {
	if p.rank = p.findRank(); p.rank < 0 {
		return
	}
	p.tenures = []tenure{{from: math.MinInt64, rank: p.rank}}
	p.marks = iterate.NewMarks(p.rank)
	p.nextMark = 0
	if at, ok := p.seg.Place(); ok && at.Order != 0 && at.Rank >= 0 {
		p.place, p.rank = at, falcon.Rank(at.Rank)
		p.tenures = []tenure{{from: at.Iteration, rank: p.rank}}
	}
}

// move takes up a placement that the process has carried out since the last
// look. It is read after the marks: no mark of its first iteration, and no
// acknowledgement, is older than it.
//
// What was counted or learned on the old communicators says nothing of the new
// ones: the survey begins with the placement's first iteration, the period is
// learned anew, and a profile window that was open holds both and is given up.
func (p *process) move() {
	at, ok := p.seg.Place()
	if !ok || at.Order == p.place.Order || at.Rank < 0 || p.rank < 0 {
		return
	}
	p.place, p.rank, p.moved = at, falcon.Rank(at.Rank), true
	p.tenures = append(p.tenures[max(0, len(p.tenures)+1-tenuresMax):], tenure{from: at.Iteration, rank: p.rank})
	p.infer.Reset()
	p.census = iterate.NewCensus()
	if p.marked() {
		p.survey.since(at.Iteration)
	} else {
		p.survey.lost()
		p.shift = at.Iteration // the new communicators count from 0, on all ranks alike
	}
	if p.window != nil {
		p.window.cut, p.window.moved = true, true
	}
}

// heldUp marks the time of a placement's steps in the iteration before its
// first, between whose marks they ran one after the other: it is the action's,
// not the job's. Where they do not fit in, nothing is known exactly.
func (p *process) heldUp(s falcon.Sample) falcon.Sample {
	if p.place.Order == 0 || s.Iteration != p.place.Iteration-1 {
		return s
	}
	if ms := float64(p.place.Spent()) / 1e6; ms <= s.RunMs() {
		s.PausedMs += ms
	}
	return s
}

// moving says that two of these processes claim one rank: the one that gave it
// up has not been seen to do so yet.
func moving(ranks []*process) bool {
	seen := map[falcon.Rank]bool{}
	for _, p := range ranks {
		if seen[p.rank] {
			return true
		}
		seen[p.rank] = true
	}
	return false
}

// before is the rank that holds rank now's place in a placement's order, so
// that an agent which was started after the swap can still tell. -1 where the
// blocks do not fit.
func before(now falcon.Rank, blocks []int32, world int) falcon.Rank {
	if len(blocks) == 0 || world <= 0 || world%len(blocks) != 0 {
		return -1
	}
	size := world / len(blocks)
	for from, to := range blocks {
		if int(to) == int(now)/size {
			return falcon.Rank(from*size + int(now)%size)
		}
	}
	return -1
}
