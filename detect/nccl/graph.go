package nccl

import (
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/passes"
)

// Graph is a communicator's members by node, as NCCL orders them.
type Graph struct {
	nodes [][]falcon.Rank
}

// NewGraph sorts members, given by their rank in the communicator, by node. Where one is on a
// node that is not known (empty) the graph has no edges.
func NewGraph(members []falcon.Rank, nodeOf func(falcon.Rank) falcon.Node) Graph {
	var g Graph
	at := map[falcon.Node]int{}
	seen := map[falcon.Rank]bool{}
	for _, r := range members {
		n := nodeOf(r)
		if n == "" {
			return Graph{}
		}
		if seen[r] {
			continue
		}
		seen[r] = true
		i, known := at[n]
		if !known {
			i = len(g.nodes)
			at[n], g.nodes = i, append(g.nodes, nil)
		}
		g.nodes[i] = append(g.nodes[i], r)
	}
	return g
}

// Edge is two members that send to each other.
type Edge struct {
	passes.Pair
	Share float64 // of a ring's or a message's data that goes over it, each way
}

// Edges are the pairs that send to each other in the first channel, each once. The others
// cross the same pairs of nodes.
func (g Graph) Edges(a falcon.Algorithm) []Edge {
	var out edgeList
	switch a {
	case falcon.AlgorithmRing:
		out.addRing(g.Ring(0))
	case falcon.AlgorithmTree, falcon.AlgorithmNVLSTree:
		for _, order := range g.Trees(0) {
			out.addTree(order)
		}
		if a == falcon.AlgorithmTree {
			for _, p := range g.Chains(0) {
				out.add(p, 1)
			}
		}
	default:
	}
	return out.edges
}

// Known reports whether an algorithm's paths follow from the members' places.
func Known(a falcon.Algorithm) bool {
	return a == falcon.AlgorithmRing || a == falcon.AlgorithmTree || a == falcon.AlgorithmNVLSTree
}

// Ring is the order of a channel's ring.
func (g Graph) Ring(channel int) []falcon.Rank {
	var out []falcon.Rank
	for _, ranks := range g.nodes {
		out = append(out, rotated(ranks, channel)...)
	}
	return out
}

// Trees are the orders of a channel's heads over which NCCL builds its two trees; none within
// one node.
func (g Graph) Trees(channel int) [][]falcon.Rank {
	if len(g.nodes) < 2 {
		return nil
	}
	heads := make([]falcon.Rank, len(g.nodes))
	for i, ranks := range g.nodes {
		heads[i] = ranks[channel%len(ranks)]
	}
	return passes.TreeOrders(heads)
}

// Chains are the neighbours on a channel's chains within nodes.
func (g Graph) Chains(channel int) []passes.Pair {
	var out []passes.Pair
	for _, ranks := range g.nodes {
		chain := rotated(ranks, channel)
		for i := 1; i < len(chain); i++ {
			out = append(out, passes.NewPair(chain[i-1], chain[i]))
		}
	}
	return out
}

// Channels is how many of so many channels differ: each rank of a node is the head of one.
// Where their number is not known it is one, which every communicator has.
func (g Graph) Channels(n int) int {
	most := 1
	for _, ranks := range g.nodes {
		most = max(most, len(ranks))
	}
	return max(1, min(n, most))
}

// rotated is a node's order in a channel.
func rotated(ranks []falcon.Rank, channel int) []falcon.Rank {
	k := channel % len(ranks)
	return slices.Concat(ranks[k:], ranks[:k])
}

// edgeList collects edges, each pair once.
type edgeList struct {
	edges []Edge
	at    map[passes.Pair]int
}

func (l *edgeList) add(p passes.Pair, share float64) {
	if l.at == nil {
		l.at = map[passes.Pair]int{}
	}
	i, known := l.at[p]
	if !known {
		i = len(l.edges)
		l.at[p], l.edges = i, append(l.edges, Edge{Pair: p})
	}
	l.edges[i].Share += share
}

func (l *edgeList) addRing(order []falcon.Rank) {
	for i := range order {
		if len(order) > 1 {
			l.add(passes.NewPair(order[i], order[(i+1)%len(order)]), 1)
		}
	}
}

// addTree adds one of two trees, which have half of a message each.
func (l *edgeList) addTree(order []falcon.Rank) {
	share := 0.5
	if len(order) == 2 { // both trees are the same
		share = 1
	}
	for _, pass := range passes.Tree(order) {
		for _, p := range pass.Pairs {
			l.add(p, share)
		}
	}
}
