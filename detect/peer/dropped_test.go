package peer

import (
	"math"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/jobtest"
)

// Ranks that lost different iterations share few calls: no rate and no transfer of an
// iteration is less for it.
func TestLostIterationsBiasNoRate(t *testing.T) {
	const iterations = 6
	j := jobtest.New(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 6, 2)
	_, profiles := j.Iteration(iterations, 1)
	judge := func(p []falcon.RankProfile) Result {
		return Judge(Window{
			Layout:    j.Layout,
			Placement: j.Placement,
			Comms:     j.Comms,
			Profiles:  p,
		})
	}
	whole := judge(profiles)
	for r := range profiles {
		p := &profiles[r]
		per := len(p.Calls) / iterations
		from := r % 3 // the first ones, another number of them on each rank
		p.Calls = p.Calls[from*per:]
		p.Iterations = iterations - from
		p.Dropped = uint64(from * per)
	}
	left := judge(profiles)
	if left.Dropped == 0 ||
		left.DroppedShare() <= 0 ||
		left.DroppedShare() >= 0.5 ||
		len(left.Groups) != len(whole.Groups) ||
		len(left.Pairs) != len(whole.Pairs) {
		t.Fatalf("%d dropped, share %g", left.Dropped, left.DroppedShare())
	}
	for i, g := range left.Groups {
		w := whole.Groups[i]
		if g.CallsPerIt != w.CallsPerIt || math.Abs(g.TotalMs/w.TotalMs-1) > 0.1 {
			t.Errorf("%s group %v: %g calls and %.3f ms per iteration instead of %g and %.3f",
				g.Dimension, g.Ranks, g.CallsPerIt, g.TotalMs, w.CallsPerIt, w.TotalMs)
		}
	}
	for i, p := range left.Pairs {
		if w := whole.Pairs[i]; p.CallsPerIt != w.CallsPerIt {
			t.Errorf("%d to %d: %g calls per iteration instead of %g",
				p.From, p.To, p.CallsPerIt, w.CallsPerIt)
		}
	}
}
