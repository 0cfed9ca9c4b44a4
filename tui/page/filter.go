package page

import (
	"slices"

	"github.com/failslow/falcon/tui/filter"
)

// FilterRanks keeps on the ranks page the ranks that a filter chooses (package
// filter); "" keeps all. A filter with a mistake changes nothing. Other pages
// show all ranks, so that a filter that was forgotten hides no trouble.
func (s *State) FilterRanks(text string) error {
	f, err := filter.Parse(text)
	if err != nil {
		return err
	}
	s.rankFilter = f
	s.match()
	return nil
}

// match seeks the chosen ranks anew; the list is a new one, as a held state
// may still show the old one.
func (s *State) match() {
	var out []int32
	if !s.rankFilter.Empty() {
		out = make([]int32, 0, len(s.matched))
		s.each(s.rankFilter, func(r int32) { out = append(out, r) })
	}
	s.matched = out
}

// each visits the ranks that a filter chooses.
func (s *State) each(f filter.Filter, visit func(int32)) {
	var sub filter.Subject
	for i, v := range s.Ranks {
		r := int32(i)
		sub.Rank, sub.View, sub.Picked = r, v, s.picks.ranks[r]
		sub.TP, sub.DP, sub.PP = s.Coord(r)
		sub.State = looks[s.Roster.Standing(r)].word
		if f.Match(&sub) {
			visit(r)
		}
	}
}

// CountRanks is how many ranks a filter would choose, while it is typed.
func (s *State) CountRanks(text string) (int, error) {
	f, err := filter.Parse(text)
	if err != nil || f.Empty() {
		return len(s.Ranks), err
	}
	n := 0
	s.each(f, func(int32) { n++ })
	return n, nil
}

// RankFilter is the text that filters the ranks page, or "".
func (s *State) RankFilter() string { return s.rankFilter.Text() }

// Matched lists the ranks that match the filter, ascending.
func (s *State) Matched() []int32 { return s.matched }

// Shown says whether a rank matches the filter.
func (s *State) Shown(rank int32) bool {
	if s.rankFilter.Empty() {
		return true
	}
	_, found := slices.BinarySearch(s.matched, rank)
	return found
}

// StepShown selects the next (+1) or previous (-1) rank that matches the
// filter; without one, that is not healthy.
func (s *State) StepShown(direction int) {
	if s.rankFilter.Empty() {
		s.Step(direction)
		return
	}
	s.stepIn(s.matched, direction)
}
