package peer

import (
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// Dispersion rules: how much the same pass of a rank must take longer in one
// iteration than in another to say that the work itself differs.
const (
	unevenLeast = 0.15 // median over the ranks of their spread
	unevenEach  = 0.08 // that at least three quarters of the ranks have
	unevenTimes = 3.0  // over the healthy spread
	passShare   = 0.2  // of the longest gap between calls: shorter ones are no pass
)

// computeGaps are the times between a rank's communication calls, one row per
// iteration of the window; nil where the calls do not repeat. The first gap of
// the first iteration began before the window: it is 0.
func computeGaps(p *falcon.RankProfile) [][]float64 {
	n := p.Iterations
	if n < 1 || len(p.Calls) < n || len(p.Calls)%n != 0 {
		return nil
	}
	per := len(p.Calls) / n
	gaps := make([]float64, len(p.Calls))
	end := 0.0
	for i := range p.Calls {
		c := &p.Calls[i]
		if c.Op != p.Calls[i%per].Op ||
			!(c.DurationMs >= 0) ||
			math.IsInf(c.StartMs+c.DurationMs, 0) {
			return nil
		}
		if i > 0 {
			gaps[i] = math.Max(0, c.StartMs-end)
		}
		end = math.Max(end, c.StartMs+c.DurationMs)
	}
	return slices.Collect(slices.Chunk(gaps, per))
}

// stepTimes are a rank's self times iteration by iteration, per micro-batch. The
// first gap of the first iteration is taken as that of the others.
func stepTimes(p *falcon.RankProfile, gaps [][]float64) []float64 {
	out := make([]float64, len(gaps))
	var first []float64
	for k, row := range gaps {
		for _, g := range row {
			out[k] += g
		}
		if k > 0 {
			first = append(first, row[0])
		}
	}
	if len(out) > 0 {
		out[0] += falcon.Median(first)
	}
	for k := range out {
		out[k] /= float64(max(1, p.MicroBatches))
	}
	return out
}

// workedSteps are a rank's working times iteration by iteration, per micro-batch.
func workedSteps(r *Rank) []float64 {
	out := slices.Clone(r.Worked)
	for k := range out {
		out[k] /= float64(max(1, r.MicroBatches))
	}
	return out
}

// spreadOf is by how much the same pass differs from iteration to iteration:
// the median over the passes of their range over their median.
func spreadOf(gaps [][]float64) float64 {
	if len(gaps) < 2 {
		return 0
	}
	longest := 0.0
	for _, row := range gaps {
		longest = max(longest, slices.Max(row))
	}
	same := make([]float64, 0, len(gaps))
	spreads := make([]float64, 0, len(gaps[0]))
	for i := range gaps[0] {
		same = same[:0]
		for k, row := range gaps {
			if k > 0 || i > 0 {
				same = append(same, row[i])
			}
		}
		if middle := falcon.Median(same); len(same) > 1 && middle >= passShare*longest {
			spreads = append(spreads, (slices.Max(same)-slices.Min(same))/middle)
		}
	}
	return falcon.Median(spreads)
}

// judgeSteps looks at the iterations of the window one by one: whose self time
// is above the rule in each, and whether the work of all ranks differs from
// one to the next, as with sequences of different length.
func (w *Window) judgeSteps(res *Result, profiles []falcon.RankProfile) {
	var spreads, healthy []float64
	uneven := 0
	for i := range profiles {
		p := &profiles[i]
		r := &res.Ranks[p.Rank]
		if res.Hidden {
			r.Steps = workedSteps(r)
			continue
		}
		gaps := computeGaps(p)
		r.Steps, r.Spread = stepTimes(p, gaps), spreadOf(gaps)
		spreads = append(spreads, r.Spread)
		if own := w.Healthy.gapSpread(p.Rank); own > 0 {
			healthy = append(healthy, own)
		}
		if r.Spread >= unevenEach {
			uneven++
		}
	}
	compareSteps(w.Layout, res)
	w.compareCrowdedSteps(res)
	deflateSteps(res)
	res.Spread, res.HealthySpread = falcon.Median(spreads), falcon.Median(healthy)
	varied := len(profiles) > 1 &&
		res.Spread >= unevenLeast &&
		4*uneven >= 3*len(profiles)
	res.Uneven = varied && res.Spread >= unevenTimes*res.HealthySpread
	if varied {
		w.clearUnsteady(res)
	}
}

// compareCrowdedSteps holds the steps of ranks most of whose peers are slow
// against what the rank itself was held against.
func (w *Window) compareCrowdedSteps(res *Result) {
	for i := range res.Ranks {
		r := &res.Ranks[i]
		if !r.Crowded(w.Rules.MinPeers) || r.Ratio <= 0 {
			continue
		}
		for k, ms := range r.Steps {
			if positive(ms) {
				r.StepRatio[k] = ms * r.Ratio / r.SelfMs
			}
		}
	}
}

// clearUnsteady takes those ranks off the slow ones who are not slow in every
// iteration of a window in which all ranks' work differs.
func (w *Window) clearUnsteady(res *Result) {
	res.Slow = slices.DeleteFunc(slices.Clone(res.Slow), func(r falcon.Rank) bool {
		over, of := res.Ranks[r].StepsOver(w.Rules.Suspect)
		res.Ranks[r].Slow = of > 0 && over == of
		return !res.Ranks[r].Slow
	})
	res.Clear = res.Clear && len(res.Slow) > 0
}

// StepsOver counts the iterations in which a rank's self time is above a ratio
// of the median of its same-stage peers', and those in which it was compared.
func (r *Rank) StepsOver(ratio float64) (over, of int) {
	for _, x := range r.StepRatio {
		if x > 0 {
			of++
			if x > ratio {
				over++
			}
		}
	}
	return over, of
}

// compareSteps fills in the ratios of the iterations one by one.
func compareSteps(l falcon.Layout, res *Result) {
	eachColumn(l, func(column []falcon.Rank) {
		most := 0
		for _, i := range column {
			r := &res.Ranks[i]
			r.StepRatio = make([]float64, len(r.Steps))
			most = max(most, len(r.Steps))
		}
		for k := range most {
			var steps []float64
			for _, i := range column {
				if s := res.Ranks[i].Steps; k < len(s) && positive(s[k]) {
					steps = append(steps, s[k])
				}
			}
			all := othersOf(steps)
			for _, i := range column {
				r := &res.Ranks[i]
				if k >= len(r.Steps) || !positive(r.Steps[k]) {
					continue
				}
				if usual := all.medianWithout(r.Steps[k]); usual > 0 {
					r.StepRatio[k] = r.Steps[k] / usual
				}
			}
		}
	})
}
