package lab

import (
	"fmt"
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// phaseLeast is how many unpaused iterations a phase needs to have a median.
const phaseLeast = 3

// Phase is a stretch of iterations in which neither the injected faults nor
// Falcon's actions changed.
type Phase struct {
	From     int64    `json:"from"`
	To       int64    `json:"to"` // first iteration behind it
	MedianMs float64  `json:"median_ms"`
	Faults   []string `json:"faults"`
	Actions  []string `json:"actions"`
}

// span is what holds from one iteration to before another.
type span struct {
	name     string
	from, to int64
}

func (s span) hasEnded(from, to int64) bool {
	return s.from <= from && s.to >= to
}

// cutPhases cuts the run wherever a fault or an action begins or ends.
func (r *Report) cutPhases() []Phase {
	faults := r.faultSpans()
	actions := r.actionSpans()
	last := int64(len(r.Iterations))
	cuts := []int64{0, last}
	for _, s := range append(slices.Clone(faults), actions...) {
		cuts = append(cuts, min(s.from, last), min(s.to, last))
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	out := []Phase{}
	for i := range len(cuts) - 1 {
		from := cuts[i]
		to := cuts[i+1]
		// The iteration of a change is neither of before nor of after.
		ms, n := r.medianBetween(from+1, to)
		if n >= phaseLeast {
			out = append(out, Phase{
				from,
				to,
				ms,
				coveringEvent(faults, from, to),
				coveringEvent(actions, from, to),
			})
		}
	}
	return out
}

func coveringEvent(spans []span, from, to int64) []string {
	out := []string{}
	for _, s := range spans {
		if s.hasEnded(from, to) {
			out = append(out, s.name)
		}
	}
	return out
}

func (r *Report) faultSpans() []span {
	var out []span
	for _, in := range r.Injected {
		name := in.Kind
		for _, part := range append(slices.Clone(in.Devices), in.Links...) {
			name += " " + part
		}
		if in.Stage != nil {
			name += fmt.Sprint(" stage ", *in.Stage)
		}
		out = append(out, span{name, in.FirstIteration, in.LastIteration + 1})
	}
	return out
}

func (r *Report) actionSpans() []span {
	var out []span
	for _, a := range r.appliedActions() {
		s := span{a.ID, *a.AppliedIteration, math.MaxInt64}
		if a.RevertedIteration != nil {
			s.to = *a.RevertedIteration
		}
		out = append(out, s)
	}
	return out
}

// medianBetween is the median over the iterations from..to−1 in which neither a pause
// nor an order's own work nor a recovery fell, and how many there are.
func (r *Report) medianBetween(from, to int64) (ms float64, n int) {
	var v []float64
	for _, it := range r.Iterations {
		if it.Index >= from &&
			it.Index < to &&
			it.PausedMs == 0 &&
			it.OrderMs == 0 &&
			!it.Untold &&
			!r.recovered(it) {
			v = append(v, it.Ms)
		}
	}
	return falcon.Median(v), len(v)
}
