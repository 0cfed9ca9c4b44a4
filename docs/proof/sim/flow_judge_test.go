package sim

import (
	"math"
	"testing"

	"github.com/failslow/falcon"
)

// One seed of a cell of each kind, as make flow plays them by twenties.
func TestFlowCells(t *testing.T) {
	for _, c := range []cell{cellsOf13()[4], cellsOf16()[0]} {
		y := c.play(1)
		if len(y.cycles)+y.harmless != repeats || y.missed > 0 {
			t.Fatalf("figure %s, %s: %d faults with phases around them, %d without an action, want %d and 0",
				c.figure, c.name, len(y.cycles), y.missed, repeats)
		}
		if got := y.removed(); got < c.paper || got > 1.05 {
			t.Errorf("figure %s, %s: %.3f of the slowdown removed, the paper's is %.3f",
				c.figure, c.name, got, c.paper)
		}
	}
}

// Replicas without a slow device are alike: all splits one by one have no better one.
func TestBestSplitAgainstAll(t *testing.T) {
	s := shapeOf("", falcon.Layout{TP: 1, DP: 3, PP: 2}, 6, 4)
	faults := []Fault{{Device: "n0.g1", Times: 1.7}}
	best, played := math.Inf(1), 0
	for a := int32(1); a < 12; a++ {
		for b := int32(1); a+b < 12; b++ {
			best = min(best, s.plainMs(faults, nil, []int32{a, b, 12 - a - b}))
			played++
		}
	}
	got := s.bestSplit(faults)
	if math.Abs(got.ms-best) > 1e-9*best || !got.all || got.played >= played {
		t.Errorf("%+v, the best of %d splits takes %v ms", got, played, best)
	}
}

// Where one link of four nodes is slow, all 24 orders have no better one.
func TestBestNodesAgainstAll(t *testing.T) {
	s := shapeOf("", falcon.Layout{TP: 1, DP: 2, PP: 2}, 1, 4)
	faults := []Fault{{Link: falcon.NewLink("n0", "n1"), Times: 20}}
	best := math.Inf(1)
	var order func(p falcon.Placement, left falcon.Placement)
	order = func(p, left falcon.Placement) {
		if len(left) == 0 {
			best = min(best, s.plainMs(faults, p, nil))
		}
		for i, d := range left {
			rest := append(append(falcon.Placement{}, left[:i]...), left[i+1:]...)
			order(append(append(falcon.Placement{}, p...), d), rest)
		}
	}
	order(nil, s.home())
	if got, ok := s.bestNodes(faults); !ok || math.Abs(got.ms-best) > 1e-9*best {
		t.Errorf("%+v, %v; the best of all orders takes %v ms", got, ok, best)
	}
}

// A run's phases: what counts for which fault.
func TestCycles(t *testing.T) {
	var r Result
	add := func(n, faults int, split int32, ms float64) {
		for range n {
			r.Points = append(r.Points, Point{
				Ms:     ms,
				Faults: faults,
				Split:  []int32{split},
			})
		}
	}
	add(20, 0, 8, 100)
	add(6, 1, 8, 200)
	add(30, 1, 5, 140)
	add(10, 0, 5, 120)
	add(20, 0, 8, 110)
	add(30, 1, 8, 190)
	add(20, 0, 8, 90)
	got, _ := cycles(phases(r))
	if len(got) != 2 || !got[0].acted || got[1].acted {
		t.Fatalf("%+v", got)
	}
	if v := got[0].removed(); math.Abs(v-60./95) > 1e-12 {
		t.Errorf("removed %v, want (200 − 140) / (200 − 105)", v)
	}
}

// Ranks stay at the places where a fault has put them: they train as before, and the next fault
// of the same kind slows nothing.
func TestCyclesOfRanksThatStay(t *testing.T) {
	var r Result
	add := func(n, faults int, on falcon.Device, ms float64) {
		for range n {
			r.Points = append(r.Points, Point{
				Ms:        ms,
				Faults:    faults,
				Split:     []int32{8},
				Placement: falcon.Placement{on},
			})
		}
	}
	add(20, 0, "n0.g0", 100)
	add(6, 1, "n0.g0", 200)
	add(30, 1, "n1.g0", 110)
	add(30, 0, "n1.g0", 100)
	add(30, 1, "n1.g0", 101)
	add(20, 0, "n1.g0", 100)
	got, harmless := cycles(phases(r))
	if len(got) != 1 || !got[0].acted || harmless != 1 {
		t.Fatalf("%+v, %d harmless", got, harmless)
	}
	if v := got[0].removed(); math.Abs(v-0.9) > 1e-12 {
		t.Errorf("removed %v, want 0.9", v)
	}
}
