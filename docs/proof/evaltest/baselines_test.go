package evaltest

import (
	"math/rand/v2"
	"testing"

	"github.com/failslow/falcon/detect/bocd"
)

// What the paper reports of its baselines shows here too: both fire on jitter
// that the tracker turns down.
func TestBaselinesFireOnJitter(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	xs := make([]float64, 300)
	for i := range xs {
		xs[i] = 100 * (1 + 0.02*rng.NormFloat64())
	}
	xs[150] *= 2.3
	slide, plain := &slideWindow{over: baselineVerify}, newPlainBOCD(bocd.DefaultConfig())
	slides, plains := 0, 0
	for _, x := range xs {
		if _, found := slide.Observe(x); found {
			slides++
		}
		if _, found := plain.Observe(x); found {
			plains++
		}
	}
	if got := Falcon(xs); slides != 1 || plains == 0 || len(got) != 0 {
		t.Errorf("slide-window %d, plain %d, tracker %v", slides, plains, got)
	}
}
