package bocd

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestLaddersAndDrifts: what sums to 12 % and more without a step of 10 % is an
// onset, placed near where it went past 11 %, and its return is a relief.
func TestLaddersAndDrifts(t *testing.T) {
	ladder := func(rise float64, steps, apart int) []float64 {
		var out []float64
		level := 300.0
		for range steps {
			level *= 1 + rise
			for range apart {
				out = append(out, level)
			}
		}
		return out
	}
	for name, levels := range map[string][]float64{
		"2 × 7 %":           ladder(0.07, 2, 150),
		"3 × 5 %":           ladder(0.05, 3, 100),
		"4 × 4 %":           ladder(0.04, 4, 150),
		"2 × 9 %, close":    ladder(0.09, 2, 20),
		"ramp to 15 %":      ladder(0.0007, 200, 1),
		"slow ramp to 20 %": ladder(0.00018, 1000, 1),
	} {
		for seed := range uint64(40) {
			rng := rand.New(rand.NewPCG(seed, 77))
			xs := noisy(rng, 0.02, span{150, 300})
			crossed := 0
			for i, ms := range levels {
				if crossed == 0 && ms >= 300*1.11 {
					crossed = 150 + i
				}
				xs = append(xs, ms*(1+0.02*rng.NormFloat64()))
			}
			xs = append(xs, noisy(rng, 0.02, span{150, levels[len(levels)-1]}, span{150, 300})...)
			tr := NewTracker(paper())
			got := verified(track(t, tr, xs))
			if len(got) < 2 ||
				got[0].Kind != KindOnset ||
				got[0].Index < crossed-100 ||
				got[0].Index > crossed+100 ||
				got[0].DetectedAt > crossed+150 {
				t.Errorf("%s, seed %d: past 11 %% from %d on: %+v", name, seed, crossed, got)
				continue
			}
			if last := got[len(got)-1]; last.Kind != KindRelief || tr.Slow() {
				t.Errorf("%s, seed %d: at the end %+v", name, seed, last)
			}
		}
	}
}

// TestSmallLastingChangesAreLetPass: what stays below 10 % is no change, however
// long it lasts and however it came.
func TestSmallLastingChangesAreLetPass(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 78))
		xs := noisy(rng, 0.02, span{200, 300}, span{1500, 300 * 1.07})
		for i := range 1000 {
			xs = append(xs, 300*(1.07-0.00007*float64(i))*(1+0.02*rng.NormFloat64()))
		}
		if got := verified(track(t, NewTracker(paper()), xs)); len(got) > 0 {
			t.Errorf("seed %d: %+v", seed, got)
		}
	}
}

// TestRecurringPauses: one iteration in every so many is longer, by a
// checkpoint or an evaluation. That is no onset, and hides none.
func TestRecurringPauses(t *testing.T) {
	for _, every := range []int{5, 6, 8, 10, 20, 50} {
		for _, times := range []float64{1.3, 2, 5, 20} {
			for seed := range uint64(6) {
				rng := rand.New(rand.NewPCG(seed, uint64(every)))
				xs := noisy(
					rng,
					0.02,
					span{600, 300},
					span{100, 390},
					span{300, 300},
				)
				for i := rng.IntN(every); i < len(xs); i += every {
					xs[i] *= times
				}
				tr := NewTracker(DefaultTrackerConfig())
				if got := verified(track(t, tr, xs[:600])); len(got) > 0 {
					t.Errorf("every %d, × %g, seed %d: %+v", every, times, seed, got)
					continue
				}
				got := verified(track(t, tr, xs[600:]))
				if len(got) < 2 ||
					got[0].Kind != KindOnset ||
					got[0].DetectedAt > 612 ||
					got[len(got)-1].Kind != KindRelief ||
					tr.Slow() {
					t.Errorf("every %d, × %g, seed %d: the onset at 600 and the relief at 700 are %+v",
						every, times, seed, got)
				}
			}
		}
	}
}

// TestCompare: held against a given level, the present one is an onset.
func TestCompare(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 79))
	tr := NewTracker(DefaultTrackerConfig())
	tr.Settle(58, 20, math.Inf(1))
	got := verified(track(t, tr, noisy(rng, 0.02, span{60, 200}, span{100, 260})))
	if len(got) != 1 || got[0].Kind != KindSettled {
		t.Fatalf("%+v", got)
	}
	tr.Compare(200)
	got = verified(track(t, tr, noisy(rng, 0.02, span{12, 260})))
	if len(got) != 1 || got[0].Kind != KindOnset || got[0].BeforeMs != 200 {
		t.Errorf("%+v", got)
	}
}
