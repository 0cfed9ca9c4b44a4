package sim

import (
	"math"
	"strings"

	"github.com/failslow/falcon"
)

// cell is one bar of a figure.
type cell struct {
	figure, name string
	shape        Shape
	faults       func(times float64) []Fault // without times
	target       float64                     // iteration time over the healthy one
	paper        float64                     // share removed; 0 = not given
	paperText    string
	times        float64 // severity, once it is known
}

// model7B is what a 7B model in bf16 asks of one of so many stages and lanes, one
// 2,048-token sequence a micro-batch, at 400 TFLOP/s.
func model7B(stages, lanes int) (stageMs, gradientMB, activationMB float64) {
	const params, tokens, hidden = 7e9, 2048, 4096
	own := params / float64(stages*lanes)
	return 6 * own * tokens / 400e12 * 1000, 2 * own / 1e6, 2 * tokens * hidden / 1e6
}

// shapeOf is a job of GPT2-7B on so many nodes, with the testbed's links: a
// port of 400 Gbit/s for each GPU, NVSwitch inside a node.
func shapeOf(name string, l falcon.Layout, gpus, micro int) Shape {
	s := Shape{
		Name:        name,
		Layout:      l,
		GPUsPerNode: gpus,
		Micro:       micro,
		EndsExtra:   0.04,
		NICMBs:      45_000,
		NVLinkMBs:   150_000,
		LatencyMs:   0.02,
		StepMs:      10,
		OpCoV:       0.02,
		RankCoV:     0.01,
		JobCoV:      0.01,
		Flows:       &flows{Buckets: 4, Channels: 2},
	}
	s.StageMs, s.GradientMB, s.ActivationMB = model7B(l.PP, l.TP)
	return s
}

// severity is how often slower the faults make what they touch, so that an
// iteration without noise takes target times as long.
func (c cell) severity() float64 {
	if c.times > 0 {
		return c.times
	}
	healthy := c.shape.plainMs(nil, nil, nil)
	low, high := 1.0, severityMost
	for range severitySteps {
		mid := math.Sqrt(low * high)
		if c.shape.plainMs(c.at(mid), nil, nil) < c.target*healthy {
			low = mid
		} else {
			high = mid
		}
	}
	return math.Sqrt(low * high)
}

const (
	severityMost  = 200.0
	severitySteps = 30
)

// at are the cell's faults at a severity.
func (c cell) at(times float64) []Fault {
	out := c.faults(times)
	for i := range out {
		out[i].Times = times
	}
	return out
}

// trace repeats the faults: well, slow, well, slow, well.
func (c cell) trace(times, healthyMs float64) (t Trace, runS float64) {
	at := leadPlays * healthyMs / 1000
	for range repeats {
		last := faultPlays * c.target * healthyMs / 1000
		for _, f := range c.at(times) {
			f.FromS, f.ForS = at, last
			t = append(t, f)
		}
		at += last + gapPlays*healthyMs/1000
	}
	return t, at
}

// Lengths of a run, in iterations.
const (
	leadPlays  = 40
	faultPlays = 60
	gapPlays   = 90
	repeats    = 2
)

// play is one seed of a cell.
func (c cell) play(seed uint64) seedTrial {
	healthy := c.shape.plainMs(nil, nil, nil)
	trace, runS := c.trace(c.severity(), healthy)
	costs := costs(7e9 / float64(c.shape.Layout.PP*c.shape.Layout.TP))
	costs.ExpectS3Ms = 4 * healthy
	r := Run(c.shape, trace, costs, seed, runS, true)
	parts := phases(r)
	out := seedTrial{seed: seed, actions: r.Actions}
	out.cycles, out.harmless = cycles(parts)
	out.first, out.actedFirst = firstFault(parts)
	for _, y := range out.cycles {
		if !y.acted {
			out.missed++
		}
	}
	for _, n := range r.Notes {
		if _, why, found := strings.Cut(n, c.rung()+" is skipped for "); found && out.why == "" {
			_, out.why, _ = strings.Cut(why, ": ")
		}
	}
	return out
}

// rung is what the cell is about.
func (c cell) rung() string {
	if strings.HasPrefix(c.figure, "15") || c.figure == "16" {
		return "S3"
	}
	return "S2"
}

var severityNames = []struct {
	name   string
	target float64
}{{"weak", 1.3}, {"medium", 1.6}, {"severe", 1.9}}

func slowDevices(ranks ...int) func(float64) []Fault {
	return func(float64) (out []Fault) {
		for _, r := range ranks {
			out = append(out, Fault{Device: falcon.NewDevice("n0", r)})
		}
		return out
	}
}

func slowPairs(pairs ...[2]int) func(float64) []Fault {
	return func(float64) (out []Fault) {
		for _, p := range pairs {
			out = append(out, Fault{Link: falcon.NewLink(nodeName(p[0]), nodeName(p[1]))})
		}
		return out
	}
}
