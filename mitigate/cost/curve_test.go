package cost

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Most points of a curve are found on lines between simulated ones: they must
// be what the simulation says.
func TestCurveIsTheSimulation(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	worst := 0.0
	for range 30 {
		p := Pipeline{Stages: make([]Stage, 1+rng.IntN(8)), Chunks: 1 + rng.IntN(2)}
		for i := range p.Stages {
			p.Stages[i] = Stage{
				ForwardMs:  1 + rng.Float64(),
				BackwardMs: 2 + 2*rng.Float64(),
			}
			p.HopMs = append(p.HopMs, max(0, 4*rng.Float64()-2))
		}
		var u Simulator
		c := u.Curve(p, nil, 100)
		for m := 1; m < len(c); m++ {
			want := latestEnd(u.Ends(nil, p, m), nil)
			if c[m] < want*(1-1e-9) || c[m] > want*1.001 {
				t.Fatalf("%+v, %d micro-batches: %.6f ms, simulated %.6f ms", p, m, c[m], want)
			} else {
				worst = max(worst, c[m]/want-1)
			}
		}
	}
	t.Logf("off by at most %.2g", worst)
}

// Beyond what is simulated at all, the curve goes on as it did.
func TestCurveOfManyMicroBatches(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	stages := make([]Stage, 4)
	for i := range stages {
		stages[i] = Stage{
			ForwardMs:  1 + rng.Float64(),
			BackwardMs: 2 + 2*rng.Float64(),
		}
	}
	c := Curve(stages, 3000, 0.3)
	for _, m := range []int{1025, 1500, 3000} {
		if want := pipelineMs(stages, m, 0.3); math.Abs(c[m]-want) > 1e-4*want {
			t.Fatalf("%d micro-batches: %.3f ms, simulated %.3f ms", m, c[m], want)
		}
	}
	if c := Curve([]Stage{{1, 2}}, 1<<20, 0); c[1<<20] != 3<<20 {
		t.Errorf("T(2^20) = %v", c[1<<20])
	}
}
