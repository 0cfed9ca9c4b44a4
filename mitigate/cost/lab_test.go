package cost

import (
	"fmt"
	"math"
	"testing"

	"github.com/failslow/falcon"
)

// labJob is the lab's job of 4 DP × 2 PP on its emulated nodes: 5 ms forward,
// 10 ms backward, gradients of 148,608 bytes, activations of 96 × 8 floats.
func labJob(nodes int, linkMBs float64) (Model, falcon.Placement) {
	m := Model{
		Layout: falcon.Layout{TP: 1, DP: 4, PP: 2},
		Slow:   map[falcon.Device]float64{},
		Work:   []Stage{{5, 10}, {5, 10}},
		DPMB:   []float64{0.148608, 0.148608},
		PPMB:   96 * 8 * 4 / 1e6,
		Links: Links{
			IntraMBs:  20_000,
			InterMBs:  linkMBs,
			LatencyMs: 0.05,
			Ratio:     map[falcon.Link]float64{},
		},
	}
	var p falcon.Placement
	for r := range 8 {
		p = append(p, falcon.NewDevice(falcon.Node(fmt.Sprintf("n%d", r*nodes/8)), r%(8/nodes)))
	}
	return m, p
}

// Runs of the lab that the documentation shows, against the model with its rest
// from the healthy time: it knew nothing of the slow ones.
func TestRecordedLabRuns(t *testing.T) {
	within := func(what string, got, want float64) {
		t.Helper()
		share := got/want - 1
		t.Logf("%s: %.1f ms, the lab took %.1f (%+.1f %%)", what, got, want, 100*share)
		if math.Abs(share) > 0.02 {
			t.Errorf("%s: %.1f ms, the lab took %.1f", what, got, want)
		}
	}
	healthy := even(4, 8)

	m, p := labJob(8, 20) // scenario compound, its link alone: docs/commands.md
	m.RestMs = 158.4 - m.Iteration(p, healthy).IterationMs
	m.Links.Ratio[falcon.NewLink("n1", "n2")] = 1 / 0.12
	within("its slow ring", m.Iteration(p, healthy).StageDPMs[0], 93.18)
	within("a link at 12 %", m.Iteration(p, healthy).IterationMs, 238.7)

	m, p = labJob(4, 1000) // scenario gpu-throttle: README.md
	m.RestMs = 140 - m.Iteration(p, healthy).IterationMs
	m.Slow["n1.g0"] = 2
	within("a GPU at half clock", m.Iteration(p, healthy).IterationMs, 249)
	best := math.Inf(1)
	for k := int32(1); k <= 8; k++ { // what the slow replica gives goes to the others
		give := 8 - k
		best = min(best, m.Iteration(p, []int32{8 + (give+2)/3, 8 + (give+1)/3, k, 8 + give/3}).IterationMs)
	}
	within("with the best split", best, 159)
}
