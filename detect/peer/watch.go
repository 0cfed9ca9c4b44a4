package peer

import (
	"slices"

	"github.com/failslow/falcon"
)

// Watch follows the ranks of a job step by step: a rank whose self time
// exceeds a multiple of its peers' median for a number of steps running is
// failing; one that is back before is a passing trouble. The median is that of
// the ranks with the same work, and of the same step, as one slow step is noise
// and one slow rank moves no median. Steps come from profile windows: those of
// two windows count as running. One goroutine owns it.
type Watch struct {
	over float64
	need int
	run  []int
	top  []float64 // greatest ratio of the run
	from []int64   // window in which the run began
	last int64     // newest window
}

// Sighting is what one step showed of a rank.
type Sighting struct {
	Rank    falcon.Rank
	Failing bool    // the run reached the number; else a run ended
	Steps   int     // length of the run
	Ratio   float64 // greatest of the run
	Waits   float64 // ms that the rank itself waited in collectives in the window's last step
}

// NewWatch watches a number of ranks for ratios above over, steps long.
func NewWatch(ranks int, over float64, steps int) *Watch {
	return &Watch{
		over: over,
		need: max(1, steps),
		run:  make([]int, ranks),
		top:  make([]float64, ranks),
		from: make([]int64, ranks),
	}
}

// Look takes the steps of a window that was requested at an iteration.
func (w *Watch) Look(l falcon.Layout, res *Result, at int64) []Sighting {
	var out []Sighting
	if slices.ContainsFunc(res.Ranks, func(r Rank) bool {
		return len(r.StepRatio) != len(r.Steps)
	}) {
		compareSteps(l, res) // no window was judged: the steps come from elsewhere
	}
	w.last = at
	for i := range min(len(w.run), len(res.Ranks)) {
		r := &res.Ranks[i]
		for k := range r.Steps {
			if s, ok := w.countStep(i, stepRatio(res, r, k)); ok {
				if n := len(r.StepWaits); n > 0 {
					s.Waits = r.StepWaits[n-1]
				}
				out = append(out, s)
			}
		}
	}
	return out
}

// stepRatio is the rank's self time in a step over its peers', over its own
// healthy one where it has no peers; 0 where it is unknown.
func stepRatio(res *Result, r *Rank, k int) float64 {
	if x := r.StepRatio[k]; x > 0 || r.Peers > 0 || r.OwnMs <= 0 || res.AllSlow {
		return x
	}
	return r.Steps[k] / r.OwnMs
}

func (w *Watch) countStep(i int, ratio float64) (Sighting, bool) {
	switch {
	case ratio > w.over:
		if w.run[i]++; w.run[i] == 1 {
			w.from[i] = w.last
		}
		w.top[i] = max(w.top[i], ratio)
		return w.sighting(i, true), w.run[i] == w.need
	case ratio == 0 || w.run[i] == 0:
		return Sighting{}, false
	}
	s := w.sighting(i, false)
	w.run[i], w.top[i] = 0, 0
	return s, true
}

func (w *Watch) sighting(i int, failing bool) Sighting {
	return Sighting{
		Rank:    falcon.Rank(i),
		Failing: failing,
		Steps:   w.run[i],
		Ratio:   w.top[i],
	}
}

// Steps is for how many steps running a rank has been above the rule, and
// whether they are enough to call it failing.
func (w *Watch) Steps(r falcon.Rank) (steps int, failing bool) {
	if w == nil || r < 0 || int(r) >= len(w.run) {
		return 0, false
	}
	return w.run[r], w.run[r] >= w.need
}

// Since is the window in which a rank's present run began; ok is false where
// it has none or where no later window saw it too.
func (w *Watch) Since(r falcon.Rank) (at int64, ok bool) {
	if n, _ := w.Steps(r); n == 0 {
		return 0, false
	}
	return w.from[r], w.from[r] < w.last
}

// Any reports whether a rank is above the rule and not failing yet: look again soon.
func (w *Watch) Any() bool {
	return slices.ContainsFunc(w.run, func(n int) bool {
		return n > 0 && n < w.need
	})
}

// Move puts the ranks on other devices: a run follows the device.
func (w *Watch) Move(was, now falcon.Placement) {
	if len(was) != len(w.run) || len(now) != len(w.run) {
		return
	}
	run, top, from := make([]int, len(w.run)), make([]float64, len(w.run)), make([]int64, len(w.run))
	for r, q := range formerRanks(was, now) {
		if q >= 0 {
			run[r], top[r], from[r] = w.run[q], w.top[q], w.from[q]
		}
	}
	w.run = run
	w.top = top
	w.from = from
}
