package page

import (
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/tui/filter"
	"github.com/failslow/falcon/tui/roster"
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
	s.refreshMatches()
	return nil
}

// refreshMatches seeks the chosen ranks again.
func (s *State) refreshMatches() {
	s.matched = s.ranksMatching(s.rankFilter)
}

// ranksMatching lists the ranks that a filter chooses; no one may modify the list,
// which all who show the snapshot share where picks do not matter.
func (s *State) ranksMatching(f filter.Filter) []int32 {
	switch {
	case f.Empty():
		return nil
	case f.ByPicks():
		return s.joinByPicks(matchesOf(s.Roster, f, false), matchesOf(s.Roster, f, true))
	}
	return matchesOf(s.Roster, f, false)
}

// joinByPicks joins the matches without and with all ranks picked, by each rank's own pick.
func (s *State) joinByPicks(without, with []int32) []int32 {
	out := slices.DeleteFunc(slices.Clone(without), s.Picked)
	for _, r := range with {
		if s.Picked(r) {
			out = append(out, r)
		}
	}
	slices.Sort(out)
	return out
}

// atOnce is how many ranks are sought while a key is handled. More are sought
// aside (Prepare), as a text among 100,000 names takes longer than a key may.
const atOnce = 4096

// Knows reports whether a filter's ranks are known or soon found.
func (s *State) Knows(f filter.Filter) bool {
	return isKnownFilter(s.Roster, f)
}

func isKnownFilter(t *roster.Roster, f filter.Filter) bool {
	return f.Empty() ||
		t.World() <= atOnce ||
		t.Remembers(searchKey(f, false)) && (!f.ByPicks() || t.Remembers(searchKey(f, true)))
}

// searchAll finds all that ranksMatching needs.
func searchAll(t *roster.Roster, f filter.Filter) {
	if f.Empty() {
		return
	}
	matchesOf(t, f, false)
	if f.ByPicks() {
		matchesOf(t, f, true)
	}
}

// matchesOf is what a filter finds with no or with all ranks picked, searched once.
func matchesOf(t *roster.Roster, f filter.Filter, picked bool) []int32 {
	return t.Remember(searchKey(f, picked), func() []int32 {
		return searchRanks(t, f, picked)
	})
}

// searchKey distinguishes lists; no filter begins with a blank.
func searchKey(f filter.Filter, picked bool) string {
	if picked {
		return " " + f.Text()
	}
	return f.Text()
}

// searchRanks goes through all ranks in layout order, so that no coordinates are divided.
func searchRanks(t *roster.Roster, f filter.Filter, picked bool) []int32 {
	var out []int32
	sub := filter.Subject{Picked: picked}
	for rank, v := range t.Views() {
		sub.Rank, sub.View = rank, v
		sub.State = looks[t.Standing(sub.Rank)].word
		if f.Match(&sub) {
			out = append(out, sub.Rank)
		}
		if t.Mesh != (falcon.Mesh{}) {
			sub.TP, sub.DP, sub.PP = t.Coord(rank + 1)
			continue
		}
		if sub.TP++; sub.TP < t.TP {
			continue
		}
		sub.TP = 0
		if sub.DP++; sub.DP == t.DP {
			sub.DP = 0
			sub.PP++
		}
	}
	return out
}

// CountRanks is how many ranks a filter would choose, while it is typed.
func (s *State) CountRanks(f filter.Filter) int {
	if f.Empty() {
		return s.Roster.World()
	}
	return len(s.ranksMatching(f))
}

// Chooses is the filter of the ranks page, for Prepare.
func (s *State) Chooses() filter.Filter { return s.rankFilter }

// RankFilter is the text that filters the ranks page, or "".
func (s *State) RankFilter() string { return s.rankFilter.Text() }

// Matched lists the ranks that match the filter, ascending.
func (s *State) Matched() []int32 { return s.matched }

// Shown reports whether a rank matches the filter.
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
	s.stepThrough(s.matched, direction)
}
