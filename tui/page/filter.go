package page

import (
	"slices"
	"strconv"
	"strings"
)

// FilterRanks keeps on the ranks page the ranks whose device, state or number
// ("n1.g0", "slow", "rank 12") holds a text; "" keeps all. Other pages show all
// ranks, so that a filter that was forgotten hides no trouble.
func (s *State) FilterRanks(text string) {
	s.rankFilter, s.matched = strings.ToLower(text), nil
	if text == "" {
		return
	}
	for i, r := range s.Ranks {
		_, word, _ := s.Health(r)
		if strings.Contains(strings.ToLower(r.GetDevice())+" "+word+" rank "+strconv.Itoa(i), s.rankFilter) {
			s.matched = append(s.matched, int32(i))
		}
	}
}

// RankFilter is the text that filters the ranks page, or "".
func (s *State) RankFilter() string { return s.rankFilter }

// Matched lists the ranks that match the filter, ascending.
func (s *State) Matched() []int32 { return s.matched }

// Shown says whether a rank matches the filter.
func (s *State) Shown(rank int32) bool {
	if s.rankFilter == "" {
		return true
	}
	_, found := slices.BinarySearch(s.matched, rank)
	return found
}

// StepShown selects the next (+1) or previous (-1) rank that matches the
// filter; without one, that is not healthy.
func (s *State) StepShown(direction int) {
	if s.rankFilter == "" {
		s.Step(direction)
		return
	}
	s.stepIn(s.matched, direction)
}
