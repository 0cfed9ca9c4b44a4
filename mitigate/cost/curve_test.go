package cost

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Beyond what it simulates, the curve goes on with the cycle time: it must stay
// with the simulation, which is too slow for a batch of thousands.
func TestCurveBeyondWhatItSimulates(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		stages := make([]Stage, 1+rng.IntN(8))
		for i := range stages {
			stages[i] = Stage{ForwardMs: 1 + rng.Float64(), BackwardMs: 2 + 2*rng.Float64()}
		}
		c := Curve(stages, 400, 0)
		for _, m := range []int{64, 65, 128, 257, 400} {
			if want := PipelineMs(stages, m, 0); math.Abs(c[m]-want) > 0.005*want {
				t.Fatalf("%d stages, %d micro-batches: %.3f ms, simulated %.3f ms", len(stages), m, c[m], want)
			}
		}
	}
	if c := Curve([]Stage{{1, 2}}, 1<<20, 0); c[1<<20] != 3<<20 {
		t.Errorf("T(2^20) = %v", c[1<<20])
	}
}
