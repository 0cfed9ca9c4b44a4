package peer

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/failslow/falcon"
)

// accuseRate is how often a window accuses, by chance, any of the ranks, or of the
// groups of one kind, of a small slowdown: once in 1,000 windows. The next window
// must accuse the same one.
const accuseRate = 0.001

// normalSpread is the standard deviation of normal noise in median absolute deviations.
const normalSpread = 1.4826

// madWorth is how many degrees of freedom a median absolute deviation has for each one of
// a standard deviation: its efficiency for normal noise is 0.37, and less of it is enough
// for the rates of chance_test.go.
const madWorth = 0.5

// chance is what ratios of one kind differ by without a cause.
type chance struct {
	middle float64
	most   float64 // largest distance above the middle that is explained by chance
}

// chanceOf measures the differences of n ratios robustly. A limit of Student's t for
// each one's share of accuseRate allows for a spread that few ratios give badly.
func chanceOf(ratios []float64) chance {
	if len(ratios) < 2 {
		return chance{most: math.Inf(1)}
	}
	c := chance{middle: falcon.Median(slices.Clone(ratios))}
	off := make([]float64, len(ratios))
	for i, x := range ratios {
		off[i] = math.Abs(x - c.middle)
	}
	n := float64(len(ratios))
	t := distuv.StudentsT{Sigma: 1, Nu: madWorth * (n - 1)}
	c.most = t.Quantile(1-accuseRate/n) * normalSpread * falcon.Median(off)
	return c
}

// explains reports whether a ratio is among those that chance makes.
func (c chance) explains(ratio float64) bool {
	return ratio-c.middle <= c.most
}

// kindSpread is by how much the transfers of one kind differ: from their own healthy
// past if all have one, else from their median.
type kindSpread struct {
	chance
	usualMs float64 // 0 = the ratios are those to their own past
	few     bool    // too few show no spread
}

func (w *Window) spreadOfKind(times, own []float64) kindSpread {
	out := kindSpread{few: len(times) <= w.Rules.MinPeers}
	if out.few {
		return out
	}
	if slices.Min(own) > 0 {
		out.chance = chanceOf(own)
		return out
	}
	out.usualMs = falcon.Median(slices.Clone(times))
	ratios := make([]float64, len(times))
	for i, ms := range times {
		ratios[i] = excessRatio(ms, out.usualMs)
	}
	out.chance = chanceOf(ratios)
	return out
}

// standsOut reports whether a transfer is longer than chance makes it, and, if its past is
// known, has become longer by at least leastMs: a pipeline's receive may always wait.
func (k kindSpread) standsOut(ms, ownMs, leastMs float64) bool {
	switch {
	case k.few:
		return true
	case k.usualMs > 0:
		return !k.explains(excessRatio(ms, k.usualMs))
	}
	return !k.explains(excessRatio(ms, ownMs)) && ms-ownMs*max(1, k.middle) > leastMs
}
