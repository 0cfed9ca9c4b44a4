package jobtest

import (
	"slices"

	"github.com/failslow/falcon"
)

// nodeEdges are the pairs of nodes between which NCCL carries a collective, written out from its
// rules and without care for speed: nodes in the order of their first member, then each with
// the next, or each with its parent in two binary trees.
func nodeEdges(members []falcon.Rank, at falcon.Placement, trees bool) [][2]falcon.Node {
	var nodes []falcon.Node
	for _, r := range members {
		if n := at[r].Node(); !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	var out [][2]falcon.Node
	for i := range nodes {
		if !trees {
			out = append(out, [2]falcon.Node{nodes[i], nodes[(i+1)%len(nodes)]})
			continue
		}
		for _, up := range []int{firstParent(len(nodes), i), secondParent(len(nodes), i)} {
			if up >= 0 {
				out = append(out, [2]falcon.Node{nodes[i], nodes[up]})
			}
		}
	}
	return out
}

// firstParent is who is above node i of n: with the lowest bit set that is 1 in i, the bit above
// it is set instead, or where there is no such node it is only cleared.
func firstParent(n, i int) int {
	if i == 0 {
		return -1
	}
	low := 1
	for i&low == 0 {
		low *= 2
	}
	if up := (i - low) | 2*low; up < n {
		return up
	}
	return i - low
}

// secondParent is the same in the other tree: that of mirrored nodes, or of an odd number of
// them of nodes shifted by one.
func secondParent(n, i int) int {
	turn := func(k int) int { return n - 1 - k }
	back := turn
	if n%2 == 1 {
		turn = func(k int) int { return (k + n - 1) % n }
		back = func(k int) int { return (k + 1) % n }
	}
	if up := firstParent(n, turn(i)); up >= 0 {
		return back(up)
	}
	return -1
}
