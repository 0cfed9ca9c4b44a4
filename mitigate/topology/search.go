package topology

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// Bounds of the search.
const (
	exactMost = 20_000 // placements of the odd nodes up to which all are priced
	startMost = 16     // consolidations of a kind that are priced as starts
	climbMost = 6      // starts that are improved
	// classes, replicas and simulations that are looked at, by their cost: under a second's work
	spendMost  = 150_000
	kickMost   = 8   // times that the best placement is disturbed
	roundMost  = 32  // sweeps over the odd nodes from one start
	targetMost = 256 // blocks that are tried for one node in one sweep
)

// search looks for the best places of the odd nodes.
type search struct {
	*pricer
	exact  bool
	best   []int
	bestAt value
}

func newSearch(g *grid) *search {
	return &search{pricer: newPricer(g)}
}

// runFromHome searches from home.
func (s *search) runFromHome() {
	if s.placements() <= exactMost {
		s.exact = true
		s.tryPlaces(s.g.homeBlocks())
		s.tryAll(s.g.homeBlocks(), 0, make([]bool, s.g.n))
		return
	}
	s.climbFromStarts()
}

// climbFromStarts climbs from the best of the starts.
func (s *search) climbFromStarts() {
	type start struct {
		at []int
		v  value
	}
	var starts []start
	for _, at := range s.startPlaces() {
		if s.spent < spendMost/2 || len(starts) == 0 {
			starts = append(starts, start{at, s.tryPlaces(at)})
		}
	}
	slices.SortStableFunc(starts, func(a, b start) int {
		return compareSteps(a.v, b.v)
	})
	for _, st := range starts[:min(climbMost, len(starts))] {
		s.climbFrom(st.at, st.v)
	}
	s.climbPerturbed()
	s.revertUnneeded()
}

// placements is n·(n−1)·… over the odd nodes, capped.
func (s *search) placements() int {
	out := 1
	for i := range s.g.odd {
		out *= s.g.n - i
		if out > exactMost {
			return exactMost + 1
		}
	}
	return out
}

// tryAll prices every placement of the odd nodes from i on.
func (s *search) tryAll(at []int, i int, held []bool) {
	if i == len(at) {
		s.tryPlaces(at)
		return
	}
	for b := range s.g.n {
		if !held[b] {
			held[b], at[i] = true, b
			s.tryAll(at, i+1, held)
			held[b] = false
		}
	}
}

// tryPlaces prices a placement and keeps the best.
func (s *search) tryPlaces(at []int) value {
	v := s.pricePlaces(at)
	if s.best == nil || s.isBetter(v, at) {
		s.best = slices.Clone(at)
		s.bestAt = v
	}
	return v
}

// isBetter compares by time, bytes, swaps, and the order of nodes.
func (s *search) isBetter(v value, at []int) bool {
	w := s.bestAt
	switch c := approxCompare(v.ms, w.ms); {
	case c != 0:
		return c < 0
	case approxCompare(v.movedMB, w.movedMB) != 0:
		return v.movedMB < w.movedMB
	case v.swaps != w.swaps:
		return v.swaps < w.swaps
	}
	return slices.Compare(s.g.arrange(at), s.g.arrange(s.best)) < 0
}

// approxCompare compares with relTol.
func approxCompare(a, b float64) int {
	if d := a - b; d > relTol*max(a, b) || -d > relTol*max(a, b) {
		return cmp.Compare(a, b)
	}
	return 0
}

// compareSteps is what a climb goes by: smaller steps than better sees.
func compareSteps(a, b value) int {
	return cmp.Or(
		approxCompare(a.smooth, b.smooth),
		approxCompare(a.ms, b.ms),
		approxCompare(a.unrest, b.unrest),
		approxCompare(a.movedMB, b.movedMB),
	)
}

// climbFrom moves one odd node at a time to its best place until none gains.
func (s *search) climbFrom(at []int, v value) {
	at = slices.Clone(at)
	for range roundMost {
		moved := false
		for i := range at {
			to, w := s.bestMove(at, i, v)
			if to >= 0 {
				s.moveNode(at, i, to)
				v, moved = w, true
			}
			if s.spent >= spendMost {
				return
			}
		}
		if !moved {
			return
		}
	}
}

// climbPerturbed climbs again from the best placement with a few nodes thrown elsewhere,
// always the same way: out of hollows from which no single move leads.
func (s *search) climbPerturbed() {
	r := rand.New(rand.NewPCG(1, 2))
	for k := 0; k < kickMost && s.spent < spendMost; k++ {
		at := slices.Clone(s.best)
		for range 2 + r.IntN(2) {
			s.moveNode(at, r.IntN(len(at)), r.IntN(s.g.n))
		}
		s.climbFrom(at, s.tryPlaces(at))
	}
}

func (s *search) bestMove(at []int, i int, v value) (int, value) {
	best := -1
	from := at[i]
	for _, to := range s.targets(at, i) {
		other := s.moveNode(at, i, to)
		if w := s.tryPlaces(at); compareSteps(w, v) < 0 {
			best, v = to, w
		}
		at[i] = from
		if other >= 0 {
			at[other] = to
		}
	}
	return best, v
}

// moveNode puts odd node i on block to; an odd node there takes i's, and is returned.
func (s *search) moveNode(at []int, i, to int) int {
	other := slices.Index(at, to)
	if other >= 0 {
		at[other] = at[i]
	}
	at[i] = to
	return other
}

// targets are the blocks worth trying for node i: the first of each kind, and its home.
func (s *search) targets(at []int, i int) []int {
	held := make([]int, s.g.n)
	for b := range held {
		held[b] = -1
	}
	touched := map[int]bool{}
	for j, b := range at {
		held[b] = j
		for _, d := range s.g.members[b] {
			touched[d] = true
		}
	}
	seen := map[string]bool{}
	var out []int
	for b := range s.g.n {
		key := s.likeness(b, held, touched)
		if b != at[i] &&
			(!seen[key] || b == s.g.odd[i] || held[b] >= 0) &&
			len(out) < targetMost {
			seen[key] = true
			out = append(out, b)
		}
	}
	return out
}

// likeness is the same for blocks that a node may as well be put on: the same
// stages of replicas without odd nodes, with no odd neighbour in any ring.
func (s *search) likeness(b int, held []int, touched map[int]bool) string {
	key := make([]byte, 0, 16)
	for _, st := range s.g.stages[b] {
		key = append(key, byte(st), byte(st>>8))
	}
	dp := s.g.p.Model.Layout.DP
	for _, d := range s.g.members[b] {
		if touched[d] {
			key = append(key, 1, byte(d), byte(d>>8), byte(d>>16))
		}
		for _, near := range []int{(d + 1) % dp, (d + dp - 1) % dp} {
			for _, st := range s.g.stages[b] {
				if j := held[s.g.slotIndex(st, near).block]; j >= 0 && dp > 1 {
					key = append(key, 2, byte(j), byte(j>>8))
				}
			}
		}
	}
	return string(key)
}

// revertUnneeded takes back what the best placement does not need.
func (s *search) revertUnneeded() {
	for changed := true; changed; {
		changed = false
		for i, home := range s.g.odd {
			if at := slices.Clone(s.best); at[i] != home {
				s.moveNode(at, i, home)
				was := s.bestAt
				s.tryPlaces(at)
				changed = changed || was != s.bestAt
			}
		}
	}
}
