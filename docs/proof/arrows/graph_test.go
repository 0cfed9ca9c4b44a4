package main

import (
	"slices"
	"testing"
)

func graphFrom(arrows ...[2]string) *graph {
	g := newGraph()
	for _, a := range arrows {
		for _, f := range a {
			if !slices.Contains(g.files, f) {
				g.files = append(g.files, f)
			}
		}
		g.add(a[0], a[1], "x")
	}
	return g
}

func TestArrowsOfATreeRunDown(t *testing.T) {
	g := graphFrom([2]string{"c", "b"}, [2]string{"b", "a"}, [2]string{"c", "a"}, [2]string{"d", "a"})
	if up := g.upward(g.rank()); g.arrows() != 4 || len(up) != 0 {
		t.Errorf("%d arrows, upward: %v", g.arrows(), up)
	}
}

func TestACircleHasOneUpward(t *testing.T) {
	g := graphFrom([2]string{"a", "b"}, [2]string{"b", "c"}, [2]string{"c", "a"}, [2]string{"c", "d"})
	if up := g.upward(g.rank()); len(up) != 1 || g.uses[up[0][0]][up[0][1]] == nil {
		t.Errorf("upward: %v", up)
	}
	if up := g.upward([]string{"d", "c", "b", "a"}); len(up) != 3 {
		t.Errorf("of an order that is the wrong way round: %v", up)
	}
}

// The search is held against all orders of small graphs.
func TestFewestOfAllOrders(t *testing.T) {
	files := []string{"a", "b", "c", "d", "e"}
	missed := 0
	for n := range 60 {
		g := newGraph()
		g.files = slices.Clone(files)
		for i, from := range files {
			for j, to := range files {
				if (n*7+i*i*5+j*3+i*j*n)%3 == 0 {
					g.add(from, to, "x")
				}
			}
		}
		got := len(g.upward(g.rank()))
		want := fewest(g, nil, files)
		if got < want {
			t.Fatalf("graph %d: %d upward, and no order has fewer than %d", n, got, want)
		}
		if got > want {
			missed++
		}
	}
	if missed > 6 {
		t.Errorf("%d of 60 graphs have a better order", missed)
	}
}

func fewest(g *graph, order, rest []string) int {
	if len(rest) == 0 {
		return len(g.upward(order))
	}
	best := 1 << 30
	for i, f := range rest {
		others := slices.Delete(slices.Clone(rest), i, i+1)
		best = min(best, fewest(g, append(slices.Clone(order), f), others))
	}
	return best
}

// A file of the engine uses those below it: at most 15 % of its arrows run upward.
func TestEngineReadsDownward(t *testing.T) {
	g, err := load("../../..", "./backend/engine")
	if err != nil {
		t.Fatal(err)
	}
	up := g.upward(g.rank())
	if 100*len(up) > 15*g.arrows() {
		t.Errorf("%d of %d arrows run upward; list them: go -C docs/proof run ./arrows -list ./backend/engine",
			len(up), g.arrows())
	}
}
