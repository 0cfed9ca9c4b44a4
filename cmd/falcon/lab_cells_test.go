package main

import (
	"fmt"
	"strconv"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
)

// figure is one cell of a figure of the paper, as a scenario for the lab.
type figure struct {
	name    string // of the report's file
	figure  string
	setting string
	rung    falcon.Rung // what may act
	sc      lab.Scenario
	events  []lab.Event
	target  float64 // unmitigated slowdown that the faults were calibrated to; 0 = not stated
	room    bool    // there is something to gain, by the cost model
	paper   string  // what the paper removed
	least   float64 // share to be removed; 0 = optimumShare of the cost model's optimum
}

// How the figures' runs are timed, in iterations.
const (
	faultAt    = 40
	figureLast = 110 // a rung is taken, verified, and measured again until then
)

// splitForwardMs is the forward time of a micro-batch where splits are judged:
// a wake-up that comes a millisecond late must not count for percents.
const splitForwardMs = 6

// severities are the unmitigated slowdowns of "weak", "medium" and "severe".
// The paper's text gives none for figures 13 and 15; severe is figure 14's and
// 16's 1.9, the others lie evenly below it.
var severities = []struct {
	name   string
	target float64
}{{"weak", 1.3}, {"medium", 1.6}, {"severe", 1.9}}

func itoa(i int) string { return strconv.Itoa(i) }

// figures are all cells, in the order of the paper.
func figures() []figure {
	var out []figure
	out = append(out, figure13()...)
	out = append(out, figure14()...)
	out = append(out, figure15()...)
	return append(out, figure16()...)
}

func scenario(name string, dp, pp, nodes, micro int, forwardMs, linkMBs float64) lab.Scenario {
	return lab.Scenario{
		Name:         name,
		About:        "Generated for the paper's figures.",
		Layout:       lab.Shape{TP: 1, DP: dp, PP: pp},
		Nodes:        nodes,
		Iterations:   figureLast,
		MicroBatches: micro,
		ForwardMs:    forwardMs,
		WarmUp:       10,
		LinkMBs:      linkMBs,
		NICs:         1,
	}
}

// slowGPUs throttles GPUs of node n0 alike.
func slowGPUs(gpus ...int) func(float64) []lab.Event {
	return func(clock float64) []lab.Event {
		var out []lab.Event
		for _, g := range gpus {
			out = append(out, lab.Event{
				AtIteration: faultAt,
				GPU:         "n0.g" + itoa(g),
				Clock:       clock,
			})
		}
		return out
	}
}

// slowLinks narrows links alike.
func slowLinks(links ...string) func(float64) []lab.Event {
	return func(bandwidth float64) []lab.Event {
		var out []lab.Event
		for _, l := range links {
			out = append(out, lab.Event{
				AtIteration: faultAt,
				Link:        l,
				Bandwidth:   bandwidth,
			})
		}
		return out
	}
}

// figure13: one node of 8 GPUs, one of them slow, 2, 4 and 8 replicas.
func figure13() []figure {
	paper := map[int]string{2: "55.3 %", 4: "77.8 %", 8: "64.9 %"}
	var out []figure
	for _, dp := range []int{2, 4, 8} {
		for _, s := range severities {
			name := fmt.Sprintf("fig13-dp%d-%s", dp, s.name)
			sc := scenario(name, dp, 8/dp, 1, 16, splitForwardMs, 1000)
			sc.Events = calibrated(sc, s.target, slowGPUs(1))
			out = append(out, figure{
				name:    name,
				figure:  "13",
				setting: fmt.Sprintf("%d replicas, %s", dp, s.name),
				rung:    falcon.RungS2,
				sc:      sc,
				events:  sc.Events,
				target:  s.target,
				room:    true,
				paper:   paper[dp] + " (mean of three)",
			})
		}
	}
	return out
}

// figure14: four replicas of two stages, 0 to 4 of them with a slow GPU in
// their first stage.
func figure14() []figure {
	const target = 1.9
	one := scenario("", 4, 2, 1, 16, splitForwardMs, 1000)
	clock := calibrated(one, target, slowGPUs(0))[0].Clock // the same GPU fault in all cells
	var out []figure
	for k := range 5 {
		sc := one
		sc.Name = fmt.Sprintf("fig14-%d-slow", k)
		c := figure{
			name:    sc.Name,
			figure:  "14",
			setting: fmt.Sprintf("%d of 4 replicas slow", k),
			rung:    falcon.RungS2,
			sc:      sc,
			room:    k > 0 && k < 4,
		}
		var gpus []int
		for g := range k {
			gpus = append(gpus, g)
		}
		if k > 0 {
			c.sc.Events, c.target = slowGPUs(gpus...)(clock), target
			c.events = c.sc.Events
		}
		if k == 1 {
			c.paper = "79.7 %"
		}
		out = append(out, c)
	}
	return out
}

// figure15: 16 nodes of one GPU, one congested link in the ring of the first
// stage.
func figure15() []figure {
	paper := map[int]string{4: "53.7 % (mean of three, at most 61.5 %)", 8: "24.8 % (mean of three)"}
	least := map[int]float64{4: 0.615, 8: 0.248}
	var out []figure
	for _, pp := range []int{4, 8} {
		for _, s := range severities {
			name := fmt.Sprintf("fig15-pp%d-%s", pp, s.name)
			sc := scenario(name, 16/pp, pp, 16, 8, 4, 20)
			link := "n1-n2" // between replicas 1 and 2
			if pp == 8 {
				link = "n0-n1" // the two replicas of the first stage
			}
			sc.Events = calibrated(sc, s.target, slowLinks(link))
			out = append(out, figure{
				name:    name,
				figure:  "15",
				setting: fmt.Sprintf("%d stages, %s", pp, s.name),
				rung:    falcon.RungS3,
				sc:      sc,
				events:  sc.Events,
				target:  s.target,
				room:    true,
				paper:   paper[pp],
				least:   least[pp],
			})
		}
	}
	return out
}

// figure16: 4 replicas of 4 stages on 16 nodes; 1, 2 and 3 congested links in
// the rings of as many stages, and all links.
func figure16() []figure {
	cells := []struct {
		links  []string
		target float64
		paper  string
		least  float64
	}{
		{[]string{"n5-n6"}, 1.6, "50 % (1.6 to 1.3)", 0.5},
		{[]string{"n5-n6", "n9-n10"}, 1.7, "57 % (1.7 to 1.3)", 0.57},
		{[]string{"n5-n6", "n9-n10", "n1-n2"}, 1.9, "22 % (1.9 to 1.7)", 0.22},
		{[]string{"all"}, 1.9, "no room", 0},
	}
	var out []figure
	for _, c := range cells {
		what := fmt.Sprintf("%d slow links", len(c.links))
		if c.links[0] == "all" {
			what = "all links slow"
		}
		name := "fig16-" + map[bool]string{false: itoa(len(c.links)), true: "all"}[c.links[0] == "all"]
		sc := scenario(name, 4, 4, 16, 8, 4, 20)
		sc.Events = calibrated(sc, c.target, slowLinks(c.links...))
		out = append(out, figure{
			name:    name,
			figure:  "16",
			setting: what,
			rung:    falcon.RungS3,
			sc:      sc,
			events:  sc.Events,
			target:  c.target,
			room:    c.links[0] != "all",
			paper:   c.paper,
			least:   c.least,
		})
	}
	return out
}
