package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

// The paper's throughputs of figure 17, iterations a second: healthy, with the
// link, after S3, with the GPU, after S2.
var paperLadder = []float64{1.7, 1.0, 1.3, 0.5, 0.9}

// ladder is figure 17 without its restart: a congested path, and while that lasts
// a slow GPU.
type ladder struct{ path, gpu cell }

func newLadder() ladder {
	s := shapeOf("17", falcon.Layout{TP: 1, DP: 4, PP: 4}, 1, 8)
	return ladder{
		path: cell{
			shape:  s,
			faults: slowPairs([2]int{1, 2}),
			target: paperLadder[0] / paperLadder[1],
		},
		gpu: cell{
			shape:  s,
			target: paperLadder[2] / paperLadder[3],
			faults: func(float64) []Fault {
				return []Fault{{Device: falcon.NewDevice(nodeName(6), 0)}}
			},
		},
	}
}

// rung is what an iteration took in one part of the run.
type rung struct {
	name string
	ms   float64
}

// play is one seed; ok reports whether all parts were there.
func (l ladder) play(seed uint64) (rungs []rung, ok bool) {
	healthy := l.path.shape.plainMs(nil, nil, nil) / 1000
	path, gpu := l.path.at(l.path.severity())[0], l.gpu.at(l.gpu.severity())[0]
	path.FromS, gpu.FromS = leadPlays*healthy, (leadPlays+2*faultPlays)*healthy
	end := gpu.FromS + 4*faultPlays*healthy
	path.ForS, gpu.ForS = end-path.FromS, end-gpu.FromS
	costs := costs(7e9 / 4)
	costs.ExpectS3Ms = 4000 * healthy
	r := Run(
		l.path.shape,
		Trace{path, gpu},
		costs,
		seed,
		end+2*gapPlays*healthy,
		true,
	)
	all := phases(r)
	pick := func(name string, last bool, fits func(phase) bool) {
		list := slices.Clone(all)
		if last {
			slices.Reverse(list)
		}
		ms := 0.0
		if i := slices.IndexFunc(list, fits); i >= 0 {
			ms = list[i].ms
		}
		rungs = append(rungs, rung{name, ms})
	}
	onPath := func(acting bool) func(phase) bool {
		return func(p phase) bool {
			return p.last.Faults == 1 && p.acting == acting && p.plays >= slowLeast
		}
	}
	withGPU := func(p phase) bool { return p.last.Faults == 2 && p.plays >= slowLeast }
	wellAndFree := func(p phase) bool {
		return !p.faulty && !p.acting && p.plays >= phaseLeast
	}
	pick("healthy", false, wellAndFree)
	pick("with the path", false, onPath(false))
	pick("after S3", true, onPath(true))
	pick("with the GPU", false, withGPU)
	pick("after what follows", true, withGPU)
	pick("healthy again", true, wellAndFree)
	return rungs, !slices.ContainsFunc(rungs, func(r rung) bool { return r.ms == 0 })
}

// TestFlowLadder is figure 17.
func TestFlowLadder(t *testing.T) {
	page := beginFlow(t, "flow-ladder", "Figure 17 up to S3 and S2")
	l := newLadder()
	l.path.times, l.gpu.times = l.path.severity(), l.gpu.severity()
	type seed struct {
		rungs []rung
		ok    bool
	}
	trials := overSeeds(*flowSeeds, func(s uint64) seed {
		rungs, ok := l.play(s)
		return seed{rungs, ok}
	})
	whole := 0
	columns := make([][]float64, len(trials[0].rungs)) // by part: over the healthy time on both sides
	for _, y := range trials {
		if !y.ok {
			continue
		}
		whole++
		healthy := (y.rungs[0].ms + y.rungs[len(y.rungs)-1].ms) / 2
		for i, r := range y.rungs {
			columns[i] = append(columns[i], r.ms/healthy)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b,
		"4 replicas of 4 stages on 16 nodes of one GPU; a congested path of the first stage's ring, then also a slow GPU. No restart (S4). %d of %d seeds have all parts; times are over each run's healthy phases on both sides.\n\n| part | time over healthy: median (least to most) | paper |\n| --- | --- | --- |\n",
		whole, len(trials))
	for i, r := range trials[0].rungs {
		paper := ""
		if i < len(paperLadder) {
			paper = fmt.Sprintf("%.2f ×", paperLadder[0]/paperLadder[i])
		}
		v := slices.Sorted(slices.Values(columns[i]))
		if len(v) == 0 {
			t.Fatalf("no seed has all parts")
		}
		row := fmt.Sprintf("| %s | %.2f × (%.2f to %.2f) | %s |\n",
			r.name, falcon.Median(v), v[0], v[len(v)-1], paper)
		t.Log(strings.TrimSpace(row))
		b.WriteString(row)
	}
	page.write(t, b.String())
	if whole < len(trials)*9/10 {
		t.Errorf("%d of %d seeds have all parts", whole, len(trials))
	}
}
