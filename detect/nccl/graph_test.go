package nccl

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/passes"
)

// topology is a communicator on nodes of 1 to 8 ranks, in any order.
type topology struct {
	members []falcon.Rank
	at      map[falcon.Rank]falcon.Node
}

func drawTopology(rng *rand.Rand) topology {
	t := topology{at: map[falcon.Rank]falcon.Node{}}
	nodes, even := 1+rng.IntN(20), 1+rng.IntN(8)
	for n := range nodes {
		ranks := even
		if rng.IntN(4) == 0 {
			ranks = 1 + rng.IntN(8)
		}
		for range ranks {
			r := falcon.Rank(len(t.members))
			t.members = append(t.members, r)
			t.at[r] = falcon.Node(fmt.Sprintf("n%d", n))
		}
	}
	switch rng.IntN(3) {
	case 0: // the ranks of a node are not next to each other in the communicator
		rng.Shuffle(len(t.members), func(i, k int) {
			t.members[i], t.members[k] = t.members[k], t.members[i]
		})
	case 1:
		slices.SortStableFunc(t.members, func(a, b falcon.Rank) int {
			return int(a)%even - int(b)%even
		})
	}
	return t
}

func (t topology) nodeOf(r falcon.Rank) falcon.Node { return t.at[r] }

// pattern is which of a chain's first two ranks has a node's traffic with its parent and its children.
type pattern struct{ parent, child0, child1 int }

var (
	headOnly = pattern{}
	balanced = pattern{0, 1, 0}
	split    = pattern{0, 1, 1}
)

// naive is NCCL, rank by rank: every rank looks for itself whom it sends to in every channel.
type naive struct {
	nodes [][]falcon.Rank
	used  map[passes.Pair]bool
}

func newNaive(t topology) *naive {
	x := &naive{used: map[passes.Pair]bool{}}
	var names []falcon.Node
	for _, r := range t.members {
		if !slices.Contains(names, t.at[r]) {
			names = append(names, t.at[r])
		}
	}
	for _, n := range names {
		x.nodes = append(x.nodes, slices.DeleteFunc(slices.Clone(t.members), func(r falcon.Rank) bool {
			return t.at[r] != n
		}))
	}
	return x
}

// chain is a node's ranks in the order of a channel.
func (x *naive) chain(node, channel int) []falcon.Rank {
	var out []falcon.Rank
	for i := range x.nodes[node] {
		out = append(out, x.nodes[node][(channel+i)%len(x.nodes[node])])
	}
	return out
}

func (x *naive) send(a, b falcon.Rank) {
	if a != b {
		x.used[passes.NewPair(a, b)] = true
	}
}

func (x *naive) ring(channel int) {
	for n := range x.nodes {
		own := x.chain(n, channel)
		next := x.chain((n+1)%len(x.nodes), channel)
		for i := range own {
			if i+1 < len(own) {
				x.send(own[i], own[i+1])
			} else {
				x.send(own[i], next[0])
			}
		}
	}
}

func (x *naive) trees(channel int, by pattern, chains bool) {
	place := func(node, k int) falcon.Rank {
		c := x.chain(node, channel)
		return c[min(k, len(c)-1)]
	}
	for n := range x.nodes {
		own := x.chain(n, channel)
		for i := 1; chains && i < len(own); i++ {
			x.send(own[i-1], own[i])
		}
		for _, tree := range []func(n, i int) (int, int){first, second} {
			if up, side := tree(len(x.nodes), n); up >= 0 {
				x.send(place(n, by.parent), place(up, []int{by.child0, by.child1}[side]))
			}
		}
	}
}

// first is who is above node i of n in NCCL's first tree, and on which side of it i is.
func first(n, i int) (up, side int) {
	bit := 1
	for bit < n && i&bit == 0 {
		bit <<= 1
	}
	if i == 0 {
		return -1, 0
	}
	if up = (i ^ bit) | (bit << 1); up >= n {
		up = i ^ bit
	}
	if i > up {
		side = 1
	}
	return up, side
}

func second(n, i int) (up, side int) {
	if n%2 == 1 {
		up, side = first(n, (i-1+n)%n)
		if up >= 0 {
			up = (up + 1) % n
		}
		return up, side
	}
	if up, side = first(n, n-1-i); up >= 0 {
		up = n - 1 - up
	}
	return up, side
}

func (t topology) links(pairs map[passes.Pair]bool) map[falcon.Link]bool {
	out := map[falcon.Link]bool{}
	for p := range pairs {
		if a, b := t.at[p[0]], t.at[p[1]]; a != b {
			out[falcon.NewLink(a, b)] = true
		}
	}
	return out
}

func pairsOf(edges []Edge) map[passes.Pair]bool {
	out := map[passes.Pair]bool{}
	for _, e := range edges {
		out[e.Pair] = true
	}
	return out
}

// tested is what would be tested of some channels.
func tested(g Graph, a falcon.Algorithm, channels int) map[passes.Pair]bool {
	out := map[passes.Pair]bool{}
	for c := range g.Channels(channels) {
		ask := falcon.ValidationAsk{}
		if a == falcon.AlgorithmRing {
			ask.Rings = append(ask.Rings, g.Ring(c))
		} else {
			ask.Trees = g.Trees(c)
		}
		if a == falcon.AlgorithmTree {
			for _, p := range g.Chains(c) {
				ask.Pairs = append(ask.Pairs, p)
			}
		}
		for _, pass := range passes.Plan(ask) {
			for _, p := range pass.Pairs {
				out[p] = true
			}
		}
	}
	return out
}

// The edges, and the pairs that are tested, are those that NCCL uses, whatever the order of the
// ranks and however many a node has.
func TestEdgesAreThoseOfNCCL(t *testing.T) {
	const topologies = 300
	for seed := range uint64(topologies) {
		rng := rand.New(rand.NewPCG(seed, 77))
		top := drawTopology(rng)
		g, channels := NewGraph(top.members, top.nodeOf), 1+rng.IntN(16)
		for _, a := range []falcon.Algorithm{
			falcon.AlgorithmRing,
			falcon.AlgorithmTree,
			falcon.AlgorithmNVLSTree,
		} {
			play := func(from, to int, by pattern) map[passes.Pair]bool {
				x := newNaive(top)
				for c := from; c < to; c++ {
					if a == falcon.AlgorithmRing {
						x.ring(c)
					} else {
						x.trees(c, by, a == falcon.AlgorithmTree)
					}
				}
				return x.used
			}
			if got, want := pairsOf(g.Edges(a)), play(0, 1, headOnly); !maps.Equal(got, want) {
				t.Fatalf("seed %d, %s: edges %v, want %v", seed, a, got, want)
			}
			all := play(0, channels, headOnly)
			for p := range tested(g, a, channels) {
				if !all[p] {
					t.Fatalf("seed %d, %s of %d channels: %v is tested, and NCCL does not use it",
						seed, a, channels, p)
				}
			}
			for _, by := range []pattern{headOnly, balanced, split} {
				got := top.links(pairsOf(g.Edges(a)))
				want := top.links(play(0, channels, by))
				if !maps.Equal(got, want) {
					t.Fatalf("seed %d, %s: links %v, want %v", seed, a, got, want)
				}
			}
		}
	}
}

// Each way a ring moves all of its data between neighbours, and two trees a message over each edge
// or half of it.
func TestShares(t *testing.T) {
	at := func(r falcon.Rank) falcon.Node {
		return falcon.Node("n" + string(rune('0'+r/2)))
	}
	g := NewGraph([]falcon.Rank{0, 1, 2, 3, 4, 5, 6, 7}, at)
	for _, e := range g.Edges(falcon.AlgorithmRing) {
		if e.Share != 1 {
			t.Errorf("ring: %+v", e)
		}
	}
	between := 0.0
	for _, e := range g.Edges(falcon.AlgorithmTree) {
		if at(e.Pair[0]) != at(e.Pair[1]) {
			between += e.Share
		} else if e.Share != 1 {
			t.Errorf("chain: %+v", e)
		}
	}
	if between != 3 { // both trees have 3 edges, with half of a message each
		t.Errorf("%v messages between nodes", between)
	}
}

// Nothing is known of other algorithms, of a member whose node is not known, or of nobody.
func TestNoEdges(t *testing.T) {
	at := func(r falcon.Rank) falcon.Node {
		return falcon.Node([]string{"a", "b", ""}[r])
	}
	for _, a := range []falcon.Algorithm{
		falcon.AlgorithmUnknown, falcon.AlgorithmCollnetDirect, falcon.AlgorithmCollnetChain,
		falcon.AlgorithmNVLS, falcon.AlgorithmPAT, 99,
	} {
		if e := NewGraph([]falcon.Rank{0, 1}, at).Edges(a); e != nil || Known(a) {
			t.Errorf("%s: %v", a, e)
		}
	}
	for _, members := range [][]falcon.Rank{nil, {0}, {0, 1, 2}, {0, 0}} {
		if e := NewGraph(members, at).Edges(falcon.AlgorithmRing); e != nil {
			t.Errorf("%v: %v", members, e)
		}
	}
}
