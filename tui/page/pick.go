package page

import (
	"maps"
	"slices"

	"github.com/failslow/falcon/tui/roster"
)

// Picks are the ranks that the operator has marked for a test. They are a
// choice of this screen, shared by the live and the held state, as is what
// another page was asked to show.
type Picks struct {
	ranks map[int32]bool
	look  string
}

// Picked says whether a rank is marked.
func (s *State) Picked(rank int32) bool { return s.picks.ranks[rank] }

// PickCount is how many ranks are marked.
func (s *State) PickCount() int { return len(s.picks.ranks) }

// Picks lists the marked ranks, ascending.
func (s *State) Picks() []int32 { return slices.Sorted(maps.Keys(s.picks.ranks)) }

// Pick marks a rank, or takes its mark away.
func (s *State) Pick(rank int32) {
	switch {
	case rank < 0 || int(rank) >= len(s.Ranks):
	case s.picks.ranks[rank]:
		delete(s.picks.ranks, rank)
	default:
		s.picks.ranks[rank] = true
	}
}

// PickAll marks all of these, or takes their marks away when all have one.
func (s *State) PickAll(ranks []int32) {
	all := !slices.ContainsFunc(ranks, func(r int32) bool { return !s.picks.ranks[r] })
	for _, r := range ranks {
		if s.picks.ranks[r] == all {
			s.Pick(r)
		}
	}
}

// Suspects are the ranks that open incidents name, and those that are slow
// against their peers.
func (s *State) Suspects() []int32 {
	var out []int32
	for _, r := range s.Anomalies() {
		if st := s.Roster.Standing(r); st == roster.Culprit || st == roster.Slow {
			out = append(out, r)
		}
	}
	return out
}

// Unpick takes every mark away.
func (s *State) Unpick() { clear(s.picks.ranks) }

// Replicas are the ranks of a rank's data-parallel group: the same stage and
// tensor-parallel coordinate in every replica.
func (s *State) Replicas(rank int32) []int32 {
	tp, _, pp := s.Coord(rank)
	return s.along(s.DP, func(i int) int32 { return s.At(tp, i, pp) })
}

// Pipeline are the ranks of a rank's pipeline, first stage first.
func (s *State) Pipeline(rank int32) []int32 {
	tp, dp, _ := s.Coord(rank)
	return s.along(s.PP, func(i int) int32 { return s.At(tp, dp, i) })
}

// along are those of n ranks that exist: a layout from the wire may be wrong.
func (s *State) along(n int, at func(int) int32) []int32 {
	var out []int32
	for i := range min(n, len(s.Ranks)) {
		if r := at(i); r >= 0 && int(r) < len(s.Ranks) {
			out = append(out, r)
		}
	}
	return out
}
