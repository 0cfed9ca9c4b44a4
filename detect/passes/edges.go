package passes

import (
	"slices"

	"github.com/failslow/falcon"
)

// RingEdges are the neighbours on the ring over members, each pair once.
func RingEdges(members []falcon.Rank) []Pair {
	return pairsOf(Ring(members))
}

// TreeOrders are the orders of members over which NCCL builds the two trees that share a message:
// the second has the members mirrored, or with an odd number of them shifted by one, so
// that who is a leaf of one is inside the other (ncclGetDtree).
func TreeOrders(members []falcon.Rank) [][]falcon.Rank {
	m := distinct(members)
	if len(m) < 3 {
		return [][]falcon.Rank{m}
	}
	second := slices.Clone(m)
	if len(m)%2 == 0 {
		slices.Reverse(second)
	} else {
		second = append(second[1:], m[0])
	}
	return [][]falcon.Rank{m, second}
}

// TreeEdges are the children and parents in both trees, each pair once.
func TreeEdges(members []falcon.Rank) []Pair {
	var all []Pass
	for _, order := range TreeOrders(members) {
		all = append(all, Tree(order)...)
	}
	return pairsOf(all)
}

// pairsOf are the pairs of passes, each once, in the order in which they come first.
func pairsOf(list []Pass) []Pair {
	n := 0
	for _, p := range list {
		n += len(p.Pairs)
	}
	if n == 0 {
		return nil
	}
	out := make([]Pair, 0, n)
	seen := make(map[Pair]struct{}, n)
	for _, p := range list {
		for _, e := range p.Pairs {
			if _, known := seen[e]; !known {
				seen[e] = struct{}{}
				out = append(out, e)
			}
		}
	}
	return out
}
