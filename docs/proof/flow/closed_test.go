package flow

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// separate are k GPUs on nodes of their own.
func separate(k int) (*Network, []GPU) {
	n := Fabric{Nodes: k, GPUs: 1, NVLink: 300, Port: 50}.Build()
	var members []GPU
	for i := range k {
		members = append(members, GPU{i, 0})
	}
	return n, members
}

func took(n *Network, build func(*Graph)) float64 {
	var g Graph
	build(&g)
	return g.Run(n.Capacity).Last
}

func TestRing(t *testing.T) {
	for _, k := range []int{2, 3, 8} {
		n, m := separate(k)
		want := float64(2*(k-1)) / float64(k) * 400 / 50
		for channels := 1; channels <= 3; channels++ {
			got := took(n, func(g *Graph) {
				g.Ring(n, Collective{m, 400, channels})
			})
			near(t, fmt.Sprintf("ring of %d on %d channels", k, channels), got, want)
		}
	}
}

// The second implementation of a ring: its steps one by one, each a k-th of the
// data, over each edge after the neighbour's piece of the step before. A ring
// whose edges differ takes as long as its slowest edge.
func TestRingAgainstItsSteps(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for range 50 {
		k := 2 + rng.IntN(7)
		n, m := separate(k)
		a := rng.IntN(k)
		n.Disturb(map[[2]int]float64{{min(a, (a+1)%k), max(a, (a+1)%k)}: 1 + 9*rng.Float64()}, nil)
		fluid := took(n, func(g *Graph) {
			g.Ring(n, Collective{Members: m, MB: 400})
		})
		stepped := took(n, func(g *Graph) {
			last := make([][]Op, k) // by edge: the step before
			for range 2 * (k - 1) {
				next := make([][]Op, k)
				for i := range k {
					after := append(append([]Op{}, last[i]...), last[(i+k-1)%k]...)
					next[i] = []Op{g.Send(n, m[i], m[(i+1)%k], 400/float64(k), after...)}
				}
				last = next
			}
		})
		near(t, "a ring's steps", fluid, stepped)
	}
}

func TestTree(t *testing.T) {
	for _, k := range []int{4, 8, 16} {
		n, m := separate(k)
		got := took(n, func(g *Graph) {
			g.Tree(n, Collective{Members: m, MB: 400})
		})
		near(t, fmt.Sprintf("tree over %d", k), got, 2*400./50)
	}
	for _, k := range []int{2, 3, 5, 6, 7, 12, 17} {
		children := map[int]int{}
		for i := range k {
			if up := treeParent(i, k); up >= 0 {
				children[up]++
			} else if i != 0 {
				t.Errorf("%d of %d has no parent", i, k)
			}
			if d := treeDepth(i, k); d > 6 {
				t.Errorf("%d of %d is %d deep", i, k, d)
			}
		}
		for i, c := range children {
			if c > 2 || children[mirrored(i, k)] > 0 && i%2 == 1 {
				t.Errorf("%d of %d has %d children", i, k, c)
			}
		}
	}
}

func TestExchange(t *testing.T) {
	n, m := separate(4)
	near(t, "an all-to-all of 4", took(n, func(g *Graph) {
		g.Exchange(n, Collective{Members: m, MB: 400})
	}), 3./4*400/50)
}

func TestSharedPortHalves(t *testing.T) {
	two := func(ports int) float64 {
		n := Fabric{Nodes: 2, GPUs: 2, Ports: ports, NVLink: 300, Port: 50}.Build()
		return took(n, func(g *Graph) {
			for i := range 2 {
				g.Send(n, GPU{0, i}, GPU{1, i}, 100)
			}
		})
	}
	near(t, "a port for each GPU", two(2), 2)
	near(t, "one port for both", two(1), 4)
}

func TestLocalLinks(t *testing.T) {
	n := Fabric{Nodes: 1, GPUs: 4, NVLink: 300, Port: 50, LocalMs: 0.25}.Build()
	near(t, "inside a node", took(n, func(g *Graph) {
		g.Send(n, GPU{0, 0}, GPU{0, 1}, 600)
	}), 2.25)
	near(t, "two into one GPU", took(n, func(g *Graph) {
		g.Send(n, GPU{0, 0}, GPU{0, 3}, 600)
		g.Send(n, GPU{0, 1}, GPU{0, 3}, 600)
	}), 4.25)
}

func TestOversubscription(t *testing.T) {
	for _, over := range []float64{1, 2, 4} {
		n := Fabric{Nodes: 8, GPUs: 1, NVLink: 300, Port: 50, LeafNodes: 4, Oversub: over}.Build()
		across := took(n, func(g *Graph) {
			for i := range 4 {
				g.Send(n, GPU{i, 0}, GPU{4 + i, 0}, 100)
			}
		})
		near(t, fmt.Sprintf("all across the spine, %v : 1", over), across, 2*over)
		inside := took(n, func(g *Graph) {
			g.Send(n, GPU{0, 0}, GPU{1, 0}, 100)
		})
		near(t, "inside a leaf", inside, 2)
	}
}

func TestSlowPairAndPort(t *testing.T) {
	n := Fabric{Nodes: 3, GPUs: 1, NVLink: 300, Port: 50}.Build()
	n.Disturb(map[[2]int]float64{{0, 1}: 4}, nil)
	near(t, "a slow pair", took(n, func(g *Graph) {
		g.Send(n, GPU{1, 0}, GPU{0, 0}, 100)
	}), 8)
	near(t, "another pair", took(n, func(g *Graph) {
		g.Send(n, GPU{0, 0}, GPU{2, 0}, 100)
	}), 2)
	n.Disturb(nil, map[[2]int]float64{{0, 0}: 5})
	near(t, "a slow port", took(n, func(g *Graph) {
		g.Send(n, GPU{2, 0}, GPU{0, 0}, 100)
	}), 10)
	n.Disturb(nil, nil)
	near(t, "well again", took(n, func(g *Graph) {
		g.Send(n, GPU{1, 0}, GPU{0, 0}, 100)
	}), 2)
}
