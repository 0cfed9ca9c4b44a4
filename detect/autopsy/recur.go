package autopsy

import (
	"fmt"
	"math"
	"slices"
)

// Of slow iterations that recur since some moment, while the others are as before.
const (
	recurOver      = 1.15 // times the median that a recurring one takes
	recurNoises    = 6    // noises above the median, at least
	recurLeast     = 6    // times that it happened since then
	recurTogether  = 3    // iterations between two slow ones that are of one time
	recurRegular   = 1.5  // usual distances that none exceeds: it has a period
	quietOfRegular = 4    // usual distances without one before it: with a period there would have been some
	quietOfChance  = 14   // the same where it has none
	quietLeast     = 20   // iterations without one before it
	recurCost      = 0.01 // share of the time since then
	sureOfRecur    = 0.65
)

// Recurrence is a moment since when some iterations are slow again and again.
type Recurrence struct {
	From   int     // the first of them
	Count  int     // since then
	Of     int     // iterations since then
	Excess float64 // of such an iteration, +0.3 = 30 % longer
	Share  float64 // of the time since then that they cost
}

// recurring finds the moment since when slow points come again and again. What was there from the
// beginning is the job's own, and so is what may have been late by chance.
func recurring(values []float64, noise float64) *Recurrence {
	usual := median(values)
	over := math.Max(recurOver, math.Exp(recurNoises*noise)) * usual
	var at, times []int // slow points, and the first of each time
	for i := warmupLeast; i < len(values); i++ {
		if values[i] < over {
			continue
		}
		if len(at) == 0 || i-at[len(at)-1] > recurTogether {
			times = append(times, i)
		}
		at = append(at, i)
	}
	if len(times) < recurLeast {
		return nil
	}
	var distances []float64
	for i := 1; i < len(times); i++ {
		distances = append(distances, float64(times[i]-times[i-1]))
	}
	distance := median(distances)
	quiet := quietOfChance * distance
	if slices.Max(distances) <= recurRegular*distance {
		quiet = quietOfRegular * distance
	}
	first := times[0]
	if float64(first) < math.Max(quiet, quietLeast) {
		return nil
	}
	out := &Recurrence{
		From:  first,
		Count: len(at),
		Of:    len(values) - first,
	}
	lost, all := 0.0, 0.0
	for _, i := range at {
		lost += values[i] - usual
	}
	for _, v := range values[first:] {
		all += v
	}
	out.Excess = lost / float64(out.Count) / usual
	out.Share = lost / all
	if out.Share < recurCost {
		return nil
	}
	return out
}

// recurs makes the opinion of it.
func (s measured) recurs(r *Recurrence) opinion {
	text := fmt.Sprintf("since %s %d of %d iterations take %.0f %% longer: %.2g %% of the time",
		s.where(r.From), r.Count, r.Of, 100*r.Excess, 100*r.Share)
	p := s.Points[r.From]
	o := opinion{
		kind:       KindSlow,
		rank:       orderSlow,
		confidence: sureOfRecur,
		judged:     true,
		summary:    text,
		onset:      s.onset(r.From),
		slowdown:   1 / (1 - r.Share),
		findings: []Finding{{
			Kind: "recurring",
			File: s.File,
			Line: p.Line,
			Time: timeOf(p),
			Text: s.Name + ": " + text + "; there was none before",
		}},
		next: []string{
			"look at what began then and comes as often: a checkpoint, another job on a node, a daemon, a garbage collection",
		},
	}
	if s.Unit == "ms" {
		for _, v := range s.values[r.From:] {
			o.costS += r.Share * v / 1e3 * float64(max(1, s.Every))
		}
	}
	return o
}
