package passes

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
)

// ringEdges is the second, plain way to list a ring's edges.
func ringEdges(m []falcon.Rank) map[Pair]bool {
	out := map[Pair]bool{}
	for i := range m {
		if next := m[(i+1)%len(m)]; next != m[i] {
			out[NewPair(m[i], next)] = true
		}
	}
	return out
}

// treeEdges halves the positions below the root again and again: the middle
// one, rounded to a power of two, is the parent of both halves' middles.
func treeEdges(m []falcon.Rank) map[Pair]bool {
	out := map[Pair]bool{}
	var hang func(up, lo, hi int)
	hang = func(up, lo, hi int) { // positions lo..hi-1 hang under up
		if lo >= hi {
			return
		}
		mid := top(lo, hi)
		out[NewPair(m[up], m[mid])] = true
		hang(mid, lo, mid)
		hang(mid, mid+1, hi)
	}
	hang(0, 1, len(m))
	return out
}

// top is the position in lo..hi-1 with the most trailing zero bits.
func top(lo, hi int) int {
	best, zeros := lo, -1
	for i := lo; i < hi; i++ {
		z := 0
		for x := i; x%2 == 0; x /= 2 {
			z++
		}
		if z > zeros {
			best, zeros = i, z
		}
	}
	return best
}

// covers fails unless the passes hold every edge once, nothing else, and no
// rank twice in a pass.
func covers(t *rapid.T, got []Pass, want map[Pair]bool) {
	seen := map[Pair]bool{}
	for i, p := range got {
		busy := map[falcon.Rank]bool{}
		for _, x := range p.Pairs {
			if seen[x] || !want[x] {
				t.Fatalf("pass %d: pair %v is covered twice or is no edge of %v", i, x, want)
			}
			if busy[x[0]] || busy[x[1]] || x[0] >= x[1] {
				t.Fatalf("pass %d: %v is not disjoint", i, p.Pairs)
			}
			seen[x], busy[x[0]], busy[x[1]] = true, true, true
		}
		if len(p.Pairs) == 0 {
			t.Fatalf("pass %d is empty", i)
		}
	}
	if len(seen) != len(want) {
		t.Fatalf("%d of %d edges are covered", len(seen), len(want))
	}
}

func drawMembers(t *rapid.T, least int) []falcon.Rank {
	return rapid.SliceOfNDistinct(rapid.Map(rapid.IntRange(0, 500), func(i int) falcon.Rank {
		return falcon.Rank(i)
	}), least, 70, rapid.ID[falcon.Rank]).Draw(t, "members")
}

func TestRingCoversEachNeighbourOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMembers(t, 2)
		got := Ring(m)
		covers(t, got, ringEdges(m))
		want := 2 + len(m)%2
		if len(m) == 2 {
			want = 1
		}
		if len(got) != want {
			t.Fatalf("%d passes for a ring of %d, want %d", len(got), len(m), want)
		}
	})
}

func TestTreeCoversEachEdgeOnceInFourPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMembers(t, 2)
		got := Tree(m)
		covers(t, got, treeEdges(m))
		if len(got) > 4 {
			t.Fatalf("%d passes", len(got))
		}
	})
	for _, n := range []int{16, 512, 4096} {
		m := make([]falcon.Rank, n)
		for i := range m {
			m[i] = falcon.Rank(i)
		}
		if r, tr := len(Ring(m)), len(Tree(m)); r != 2 || tr != 4 {
			t.Errorf("%d members: %d ring passes and %d tree passes", n, r, tr)
		}
	}
}

// The tree over eight positions, as NCCL builds it.
func TestTreeOfEight(t *testing.T) {
	m := []falcon.Rank{0, 1, 2, 3, 4, 5, 6, 7}
	want := "[{[[2 4]] false} {[[4 6]] false} {[[1 2] [0 4] [5 6]] false} {[[2 3] [6 7]] false}]"
	if got := fmt.Sprint(Tree(m)); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestNothingToTest(t *testing.T) {
	if Ring(nil) != nil ||
		Ring([]falcon.Rank{3, 3}) != nil ||
		len(Tree([]falcon.Rank{1})) != 0 ||
		Pairs([]Pair{{2, 2}}) != nil {
		t.Error("a group of one has a link")
	}
	if Plan(falcon.ValidationAsk{}) != nil {
		t.Error("an empty request has passes")
	}
}

func drawPairs(t *rapid.T) []Pair {
	one := rapid.Custom(func(t *rapid.T) Pair {
		return Pair{
			falcon.Rank(rapid.IntRange(0, 12).Draw(t, "a")),
			falcon.Rank(rapid.IntRange(0, 12).Draw(t, "b")),
		}
	})
	return rapid.SliceOfN(one, 0, 40).Draw(t, "pairs")
}

func edgesOf(list []Pair) (edges map[Pair]bool, degree int) {
	edges = map[Pair]bool{}
	for _, p := range list {
		if p[0] != p[1] {
			edges[NewPair(p[0], p[1])] = true
		}
	}
	at := map[falcon.Rank]int{}
	for p := range edges {
		at[p[0]]++
		at[p[1]]++
		degree = max(degree, at[p[0]], at[p[1]])
	}
	return edges, degree
}

func TestPairsAreColouredInFewPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := drawPairs(t)
		edges, degree := edgesOf(list)
		got := Pairs(list)
		covers(t, got, edges)
		if len(got) > max(2*degree-1, 0) {
			t.Fatalf("%d passes where no rank has more than %d pairs", len(got), degree)
		}
	})
}

func TestPlanCoversTheWholeRequestOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ask := falcon.ValidationAsk{
			Rings: [][]falcon.Rank{drawMembers(t, 2), drawMembers(t, 2)},
			Trees: [][]falcon.Rank{drawMembers(t, 2)},
		}
		list := drawPairs(t)
		for _, p := range list {
			ask.Pairs = append(ask.Pairs, p)
		}
		want, _ := edgesOf(list)
		for _, m := range []map[Pair]bool{
			ringEdges(ask.Rings[0]),
			ringEdges(ask.Rings[1]),
			treeEdges(ask.Trees[0]),
		} {
			for p := range m {
				want[p] = true
			}
		}
		covers(t, Plan(ask), want)
	})
}

// Rings without a common rank need no more passes than one of them.
func TestDisjointRingsRunAtOnce(t *testing.T) {
	ask := falcon.ValidationAsk{Rings: [][]falcon.Rank{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 9}}}
	got := Plan(ask)
	if len(got) != 2 || len(got[0].Pairs) != 5 || len(got[1].Pairs) != 4 {
		t.Errorf("got %v", got)
	}
}

func TestSplitSharesNoPort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perNode := rapid.IntRange(1, 4).Draw(t, "ranks per node")
		perPort := rapid.IntRange(1, perNode).Draw(t, "ranks per port")
		nic := func(r falcon.Rank) string {
			return fmt.Sprintf("n%d.nic%d", int(r)/perNode, int(r)%perNode/perPort)
		}
		m := drawMembers(t, 2)
		planned := Ring(m)
		got := Split(planned, nic)
		covers(t, slices.DeleteFunc(slices.Clone(got), func(p Pass) bool {
			return len(p.Pairs) == 0
		}), ringEdges(m))
		for _, p := range got {
			busy := map[string]bool{}
			for _, x := range p.Pairs {
				if int(x[0])/perNode == int(x[1])/perNode {
					continue // within a node: no port
				}
				for _, r := range x {
					if busy[nic(r)] {
						t.Fatalf("%v shares port %s", p, nic(r))
					}
					busy[nic(r)] = true
				}
			}
		}
		if n := len(got) - len(planned); n != Extra(got) {
			t.Fatalf("%d more passes and %d marked", n, Extra(got))
		}
		// One rank a port and none within reach of another: nothing to move.
		if perNode == 1 && Extra(got) != 0 {
			t.Fatalf("extra passes without a shared port: %v", got)
		}
	})
}

func TestSplitOnUnknownPorts(t *testing.T) {
	got := Split(Ring([]falcon.Rank{0, 1, 2, 3}), func(falcon.Rank) string { return "" })
	if len(got) != 2 || Extra(got) != 0 {
		t.Errorf("got %v", got)
	}
}

// The largest request is planned in a moment: the engine's loop waits for it.
// Quadratic work, seconds at this size, is what this tells from it.
func TestLargestPlanIsQuick(t *testing.T) {
	ring := make([]falcon.Rank, 4096)
	for i := range ring {
		ring[i] = falcon.Rank(i)
	}
	nics := make([]string, len(ring))
	for i := range nics {
		nics[i] = fmt.Sprintf("n%d.nic%d", i/8, i%8)
	}
	begun := time.Now()
	got := Split(Plan(falcon.ValidationAsk{
		Rings: [][]falcon.Rank{ring},
	}), func(r falcon.Rank) string { return nics[r] })
	if took := time.Since(begun); len(got) != 2 || took > time.Second {
		t.Errorf("%d passes after %s", len(got), took)
	}
}
