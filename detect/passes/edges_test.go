package passes

import (
	"testing"

	"github.com/failslow/falcon"
)

// nccl is ncclGetBtree and ncclGetDtree written out as in NCCL's src/graph/trees.cc: the rank
// above another in each of the two trees, -1 at the root.
func ncclParent(n, rank int) int {
	bit := 1
	for ; bit < n; bit <<= 1 {
		if bit&rank != 0 {
			break
		}
	}
	if rank == 0 {
		return -1
	}
	if up := (rank ^ bit) | (bit << 1); up < n {
		return up
	}
	return rank ^ bit
}

func ncclSecondParent(n, rank int) int {
	if n%2 == 1 {
		up := ncclParent(n, (rank-1+n)%n)
		if up < 0 {
			return -1
		}
		return (up + 1) % n
	}
	up := ncclParent(n, n-1-rank)
	if up < 0 {
		return -1
	}
	return n - 1 - up
}

func TestTreeEdgesAreThoseOfNCCL(t *testing.T) {
	for n := 2; n <= 70; n++ {
		m := make([]falcon.Rank, n)
		for i := range m {
			m[i] = falcon.Rank(3 * i)
		}
		want := map[Pair]bool{}
		for i := range n {
			for _, up := range []int{ncclParent(n, i), ncclSecondParent(n, i)} {
				if up >= 0 {
					want[NewPair(m[i], m[up])] = true
				}
			}
		}
		got := TreeEdges(m)
		for _, e := range got {
			if !want[e] {
				t.Fatalf("%d members: %v is in neither tree", n, e)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%d members: %d edges, want %d", n, len(got), len(want))
		}
	}
}

func TestRingEdges(t *testing.T) {
	if got := RingEdges([]falcon.Rank{4, 1, 7}); len(got) != 3 {
		t.Errorf("%v", got)
	}
	if got := RingEdges([]falcon.Rank{4}); got != nil {
		t.Errorf("%v", got)
	}
}
