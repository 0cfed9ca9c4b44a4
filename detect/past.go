package detect

import (
	"math"
	"slices"
)

// pastTimes are the job's iteration times in earlier epochs, the slowest rank's of each: what a
// chart shows left of the place where an epoch began. Verdicts never rest on them.
type pastTimes struct {
	at []int64 // ascending
	ms []float32
}

// add takes over what an epoch measured; the newest limit stay. Iterations that the epoch ran
// again, from a checkpoint, replace their older ones.
func (p *pastTimes) add(s *series, limit int) {
	if s == nil || s.seen == 0 {
		return
	}
	first := s.seen - len(s.ms)
	p.cut(s.iteration(first))
	for i := first; i < s.seen; i++ {
		p.at, p.ms = append(p.at, s.iteration(i)), append(p.ms, float32(s.valueAt(i)))
	}
	drop := max(0, len(p.at)-limit)
	p.at, p.ms = slices.Clone(p.at[drop:]), slices.Clone(p.ms[drop:])
}

// cut drops what is not before an iteration.
func (p *pastTimes) cut(iteration int64) {
	n, _ := slices.BinarySearch(p.at, iteration)
	p.at, p.ms = p.at[:n], p.ms[:n]
}

// columnsBefore are the newest n of the iterations before first, oldest first, without a posterior:
// that begins again with each epoch.
func (p *pastTimes) columnsBefore(first int64, n, runLengths int) []Column {
	end, _ := slices.BinarySearch(p.at, first)
	from := max(0, end-n)
	out := make([]Column, 0, end-from)
	for i := from; i < end; i++ {
		out = append(out, Column{Iteration: p.at[i], Ms: float64(p.ms[i]), Posterior: make([]float64, runLengths), Past: true})
	}
	return out
}

// withPast puts what earlier epochs measured before a rank's columns, up to most in all.
func (l *sampleLog) withPast(cols []Column, most, runLengths int) []Column {
	first := int64(math.MaxInt64)
	if len(cols) > 0 {
		first = cols[0].Iteration
	}
	return append(l.past.columnsBefore(first, most-len(cols), runLengths), cols...)
}
