package main

import (
	"errors"
	"math"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
	"github.com/failslow/falcon/mitigate/cost"
	"github.com/failslow/falcon/mitigate/microbatch"
	"github.com/failslow/falcon/mitigate/topology"
)

// What the lab's trainer moves by its default shape: hidden 96, ffn 192, one
// layer a stage, 8 samples a micro-batch, float32 (cmd/falcon-trainer/model).
const (
	truthHidden, truthFFN, truthBatch = 96, 192, 8

	truthLatencyMs   = 0.05 // between the lab's nodes
	truthIntraMBs    = 20e3
	backwardOverOnce = 2 // of the forward pass
)

// truth is the cost model of a scenario as the lab emulates it: not calibrated
// from measurements, but from what the scenario sets. Its figures are what
// calibrates the faults and what runs are compared with.
func truth(sc lab.Scenario, events ...lab.Event) cost.Model {
	l := sc.Layout.Layout()
	width := truthFFN / l.TP
	params := 2*width*truthHidden + width + truthHidden
	m := cost.Model{
		Layout: l,
		Slow:   map[falcon.Device]float64{},
		PPMB:   4 * truthHidden * truthBatch / 1e6,
		Links: cost.Links{
			IntraMBs:  truthIntraMBs,
			InterMBs:  sc.LinkMBs,
			LatencyMs: truthLatencyMs,
			Ratio:     map[falcon.Link]float64{},
		},
	}
	for range l.PP {
		m.Work = append(m.Work, cost.Stage{
			ForwardMs:  sc.ForwardMs,
			BackwardMs: backwardOverOnce * sc.ForwardMs,
		})
		m.DPMB = append(m.DPMB, float64(4*params)/1e6)
	}
	for _, e := range events {
		slow(&m, sc, e)
	}
	return m
}

func slow(m *cost.Model, sc lab.Scenario, e lab.Event) {
	switch {
	case e.GPU != "":
		m.Slow[falcon.Device(e.GPU)] = 1 / e.Clock
	case e.Link == "all":
		for a := range sc.Nodes + sc.Spares {
			for b := range a {
				m.Links.Ratio[falcon.NewLink(node(a), node(b))] = 1 / e.Bandwidth
			}
		}
	case e.Link != "":
		l, err := falcon.ParseLink(e.Link)
		if err != nil {
			panic(err)
		}
		m.Links.Ratio[falcon.NewLink(l.A, l.B)] = 1 / e.Bandwidth
	}
}

func node(i int) falcon.Node {
	return falcon.Node("n" + itoa(i))
}

// even is the split that jobs start with.
func even(sc lab.Scenario) []int32 {
	out := make([]int32, sc.Layout.DP)
	for i := range out {
		out[i] = int32(sc.MicroBatches)
	}
	return out
}

// slowdownOf is the unmitigated iteration time under the events over the
// healthy one.
func slowdownOf(sc lab.Scenario, events ...lab.Event) float64 {
	healthy := truth(sc).Iteration(sc.Placement(), even(sc)).IterationMs
	return truth(sc, events...).Iteration(sc.Placement(), even(sc)).IterationMs / healthy
}

// calibrated finds the severity, the same in all events, at which the job is
// target times as slow as healthy: set puts a share of nominal into an event.
func calibrated(sc lab.Scenario, target float64, set func(share float64) []lab.Event) []lab.Event {
	low, high := 0.01, 0.999 // the slowdown falls as the share grows
	for range 60 {
		mid := (low + high) / 2
		if slowdownOf(sc, set(mid)...) > target {
			low = mid
		} else {
			high = mid
		}
	}
	return set(round3(low))
}

func round3(v float64) float64 {
	return math.Round(v*1000) / 1000
}

// best is what the cost model says of the events: the iteration time that is
// least with what a rung may do, and the share of the slowdown that it removes.
type best struct {
	HealthyMs, SlowMs, BestMs float64
}

func (b best) removed() float64 {
	if b.SlowMs <= b.HealthyMs {
		return 0
	}
	return (b.SlowMs - b.BestMs) / (b.SlowMs - b.HealthyMs)
}

// bestBy is the optimum of rungs S2 or S3 (with S2 behind it) for the events.
func bestBy(sc lab.Scenario, rung falcon.Rung, events ...lab.Event) (best, error) {
	home := sc.Placement()
	split := even(sc)
	m := truth(sc, events...)
	out := best{
		HealthyMs: truth(sc).Iteration(home, split).IterationMs,
		SlowMs:    m.Iteration(home, split).IterationMs,
	}
	out.BestMs = out.SlowMs
	if rung == falcon.RungS3 {
		p, err := topology.Search(topology.Problem{
			Model:        m,
			Now:          home,
			MicroBatches: split,
		})
		if errors.Is(err, topology.ErrNoGain) {
			return out, nil
		}
		out.BestMs = min(out.BestMs, p.AfterSplitMs)
		return out, err
	}
	total := sc.MicroBatches * sc.Layout.DP
	_, ms, err := microbatch.SolveCurves(m.Curves(home, total), total)
	out.BestMs = min(out.BestMs, ms)
	return out, err
}

// The arithmetic that calibrates the faults: each figure's scenarios are as slow
// as they say, by the cost model of what the lab emulates.
func TestCalibration(t *testing.T) {
	for _, c := range figures() {
		if len(c.events) == 0 {
			continue
		}
		got := slowdownOf(c.sc, c.events...)
		if c.target > 0 && math.Abs(got-c.target) > 0.02 {
			t.Errorf("%s: slowdown %.3f by the model, want %.2f", c.name, got, c.target)
		}
		b, err := bestBy(c.sc, c.rung, c.events...)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if room := b.removed() > 0.01; room != c.room {
			t.Errorf("%s: the model's optimum removes %.3f, room is said to be %v",
				c.name, b.removed(), c.room)
		}
		t.Logf("%-24s %-60v slowdown %.2f, optimum removes %5.1f %% (%.1f, %.1f, %.1f ms)",
			c.name, shares(c.events), got, 100*b.removed(), b.HealthyMs, b.SlowMs, b.BestMs)
	}
}

func shares(events []lab.Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.String())
	}
	return out
}

// A mix is as slow without Falcon as the paper says, and the climb's faults are
// as deep as figure 17's.
func TestCalibrationOfLongRuns(t *testing.T) {
	for _, m := range mixes() {
		sc := m.scenario(false)
		if err := sc.Validate(); err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		healthy := truth(sc).Iteration(sc.Placement(), even(sc)).IterationMs
		for i := range int64(sc.Iterations) {
			sum += truth(sc, slot{events: sc.Events}.at(i)...).Iteration(sc.Placement(), even(sc)).IterationMs
		}
		got := sum / float64(sc.Iterations) / healthy
		if got < m.slowdown-0.01 || got > m.slowdown+0.01 {
			t.Errorf("%s: mean slowdown %.3f, want %.3f", m.name, got, m.slowdown)
		}
		t.Logf("%s: %d iterations of %.1f ms, %.0f s without Falcon", m.name, sc.Iterations, healthy, sum/1e3)
	}
	sc, err := lab.Load("climb")
	if err != nil {
		t.Fatal(err)
	}
	link := slowdownOf(sc, sc.Events[0])
	gpu := slowdownOf(sc, sc.Events[1])
	if math.Abs(link-1.7) > 0.03 || math.Abs(gpu-2.6) > 0.05 {
		t.Errorf("climb: the link %.2f, want 1.7; the GPU %.2f, want 2.6 (1.3 to 0.5 iterations/s)",
			link, gpu)
	}
	b, err := bestBy(sc, "S2", sc.Events[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("climb: link %.2f, GPU %.2f, after S2 %.2f", link, gpu, b.BestMs/b.HealthyMs)
}
