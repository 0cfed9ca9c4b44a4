package agent

import (
	"math"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
)

// tenuresMax is how many ranks of one process are remembered. Between two polls
// there is one placement at most, and its samples are taken at the next.
const tenuresMax = 8

// tenure is a rank that a process holds from an iteration on.
type tenure struct {
	from int64
	rank falcon.Rank
}

// rankHistory is the ranks that a process has held.
type rankHistory struct {
	tenures []tenure   // newest last
	newest  ring.Place // Order 0 for none
	unsent  bool       // the newest placement was not reported so far
}

// rankAt is the rank that the process held in an iteration, -1 where it is not
// known: before the newest placement that an agent found when it was started.
func (h *rankHistory) rankAt(iteration int64) falcon.Rank {
	for _, t := range slices.Backward(h.tenures) {
		if iteration >= t.from {
			return t.rank
		}
	}
	return -1
}

func (h *rankHistory) beginWith(rank falcon.Rank) {
	h.tenures = []tenure{{from: math.MinInt64, rank: rank}}
}

// beginPlaced begins with a placement that was carried out before this agent looked.
func (h *rankHistory) beginPlaced(at ring.Place) {
	h.newest = at
	h.tenures = []tenure{{from: at.Iteration, rank: falcon.Rank(at.Rank)}}
}

func (h *rankHistory) addPlacement(at ring.Place) {
	h.newest, h.unsent = at, true
	h.tenures = append(h.tenures[max(
		0,
		len(h.tenures)+1-tenuresMax,
	):], tenure{from: at.Iteration, rank: falcon.Rank(at.Rank)})
}

// takeUnsent reports whether the newest placement is to be reported now.
func (h *rankHistory) takeUnsent() bool {
	unsent := h.unsent
	h.unsent = false
	return unsent
}

// withoutPlacement counts the time of a placement's steps as paused in the iteration
// before its first, between whose marks they ran one after the other: it is the
// action's, not the job's. Where they do not fit in, nothing is known exactly.
func (h *rankHistory) withoutPlacement(s falcon.Sample) falcon.Sample {
	if h.newest.Order == 0 || s.Iteration != h.newest.Iteration-1 {
		return s
	}
	if ms := float64(h.newest.Spent()) / 1e6; ms <= s.RunMs() {
		s.PausedMs += ms
	}
	return s
}

// findFirstRank begins the process's first tenure, with the launcher's rank or that in
// its communicators, unless it was placed before this agent looked.
func (p *process) findFirstRank() {
	if p.rank = p.launchedRank(); p.rank < 0 {
		return
	}
	p.ranks.beginWith(p.rank)
	p.iterations.startMarks(p.rank)
	if at, ok := p.seg.Place(); ok && at.Order != 0 && at.Rank >= 0 {
		p.rank = falcon.Rank(at.Rank)
		p.ranks.beginPlaced(at)
	}
}

// readPlacement takes up a placement that the process has carried out since the last
// drain. It is read after the marks: no mark of its first iteration, and no
// acknowledgement, is older than it.
//
// What was counted or learned on the old communicators says nothing of the new
// ones: the survey begins with the placement's first iteration, the period is
// learned again, and a profile window that was open holds both and is given up.
func (p *process) readPlacement() {
	at, ok := p.seg.Place()
	if !ok || at.Order == p.ranks.newest.Order || at.Rank < 0 || p.rank < 0 {
		return
	}
	p.rank = falcon.Rank(at.Rank)
	p.ranks.addPlacement(at)
	p.iterations.forgetPeriod()
	if p.hasMarks() {
		p.survey.ForgetBefore(at.Iteration)
	} else {
		p.survey.Forget()
		p.iterations.renumberFrom(at.Iteration)
	}
	if p.window != nil {
		p.window.cut, p.window.moved = true, true
	}
}

// ranksMoving reports whether two of these processes claim one rank: the one that gave it
// up has not been seen to do so yet.
func ranksMoving(ranks []*process) bool {
	seen := map[falcon.Rank]bool{}
	for _, p := range ranks {
		if seen[p.rank] {
			return true
		}
		seen[p.rank] = true
	}
	return false
}

// rankBefore is the rank that holds rank now's place in a placement's order, so
// that an agent which was started after the swap knows it too. -1 where the
// blocks do not fit.
func rankBefore(now falcon.Rank, blocks []int32, world int) falcon.Rank {
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
