package flow

import (
	"math"
	"math/rand/v2"
	"testing"
)

// naive is the deliberately simple second implementation: time goes from one end
// to the next, all operations are looked at each time, and all rates are found
// again.
func naive(g *Graph, capacity []float64) []float64 {
	n := len(g.nodes)
	delay, left, end := make([]float64, n), make([]float64, n), make([]float64, n)
	waits := make([]int32, n)
	for i, v := range g.nodes {
		delay[i], left[i], waits[i], end[i] = v.ms, v.mb, v.deps, -1
	}
	for now := 0.0; ; {
		next := math.Inf(1)
		var flows [][]Use
		var which []int
		for i := range n {
			switch {
			case end[i] >= 0 || waits[i] > 0:
			case delay[i] > 0 || left[i] == 0 || len(g.nodes[i].uses) == 0:
				next = min(next, delay[i])
			default:
				flows, which = append(flows, g.nodes[i].uses), append(which, i)
			}
		}
		rates := Rates(capacity, flows)
		for k, i := range which {
			next = min(next, left[i]/rates[k])
		}
		if math.IsInf(next, 1) {
			return end
		}
		now += next
		flowing := map[int]float64{}
		for k, i := range which {
			flowing[i] = rates[k]
		}
		var ended []int
		for i := range n {
			if end[i] >= 0 || waits[i] > 0 {
				continue
			}
			if rate, flows := flowing[i]; flows {
				left[i] -= rate * next
				if left[i] < 1e-9 {
					ended = append(ended, i)
				}
			} else if delay[i] -= next; delay[i] < 1e-12 {
				delay[i] = 0
				if left[i] == 0 || len(g.nodes[i].uses) == 0 {
					ended = append(ended, i)
				}
			}
		}
		for _, i := range ended {
			end[i] = now
			for _, to := range g.nodes[i].next {
				waits[to]--
			}
		}
	}
}

func TestRunAgainstNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for trial := range 400 {
		capacity, _ := randomFlows(rng)
		var g Graph
		for range 2 + rng.IntN(25) {
			var after []Op
			for range min(g.Len(), rng.IntN(4)) {
				after = append(after, Op(rng.IntN(g.Len())))
			}
			if rng.IntN(3) == 0 {
				g.Compute(rng.Float64()*3, after...)
				continue
			}
			var uses []Use
			for l := range capacity {
				if rng.IntN(3) == 0 {
					uses = append(uses, Use{l, float64(1 + rng.IntN(2))})
				}
			}
			g.Transfer(rng.Float64(), 1+9*rng.Float64(), uses, after...)
		}
		got, want := g.Run(capacity).End, naive(&g, capacity)
		for i := range got {
			if math.Abs(got[i]-want[i]) > 1e-6*(1+want[i]) {
				t.Fatalf("trial %d: operation %d ends at %v, by the naive run at %v",
					trial, i, got[i], want[i])
			}
		}
	}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*math.Abs(want) {
		t.Errorf("%s: %v ms, want %v ms", what, got, want)
	}
}

func TestFlowsOnOneLink(t *testing.T) {
	for n := 1; n <= 5; n++ {
		var g Graph
		for range n {
			g.Transfer(0.5, 10, []Use{{0, 1}})
		}
		near(
			t,
			"equal flows on one link",
			g.Run([]float64{2}).Last,
			0.5+float64(n)*10/2,
		)
	}
	var g Graph
	short := g.Transfer(0, 2, []Use{{0, 1}})
	long := g.Transfer(0, 10, []Use{{0, 1}})
	late := g.Transfer(0, 3, []Use{{0, 1}}, short)
	end := g.Run([]float64{2}).End
	near(t, "the short one of two", end[short], 2)
	near(t, "one that begins after it", end[late], 5)
	near(t, "the long one", end[long], 7.5)
}

func TestCircleIsRefused(t *testing.T) {
	var g Graph
	a := g.Compute(1)
	g.After(a, g.Compute(1, a))
	defer func() {
		if recover() == nil {
			t.Error("a circle was played")
		}
	}()
	g.Run(nil)
}
