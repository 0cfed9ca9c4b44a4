package tui

import (
	"strconv"
	"sync/atomic"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/filter"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
)

// Which ranks a filter chooses is found at once in a small job. In a large one
// it is searched in a command, one at a time, so that no key waits for it: what
// was typed meanwhile is searched next.

// rankSearch is the search for the ranks of a filter.
type rankSearch struct {
	filter filter.Filter // empty = nothing
	keep   bool          // it is to filter the page
	busy   bool          // a command is under way
	next   atomic.Pointer[filters]
	step   atomic.Int64 // of the course, that was made ready last
}

// filters are those that a new state is prepared for: in force, and to come.
type filters [2]filter.Filter

type searchedMsg struct{}

// prepareState makes a new state ready for the present filters. It runs in a command.
func (r *rankSearch) prepareState(s *feed.State) {
	if step := page.CourseStep(s.Snap); r.step.Swap(step) != step {
		page.PrepareCourse(s)
	}
	if by := r.next.Load(); by != nil {
		page.Prepare(s, by[:]...)
		return
	}
	page.Prepare(s)
}

// prepareAgain prepares a state that was prepared for another filter than the
// present one; nil where it is ready.
func prepareAgain(s *feed.State, by filter.Filter) tea.Cmd {
	if page.Ready(s, by) {
		return nil
	}
	return func() tea.Msg {
		page.Prepare(s, by)
		return updateMsg{s}
	}
}

// startNext searches what is wanted in a state; inForce is the page's filter.
func (r *rankSearch) startNext(s *feed.State, inForce filter.Filter) tea.Cmd {
	by := filters{inForce, r.filter}
	old := r.next.Load()
	if old == nil ||
		old[0].Text() != by[0].Text() ||
		old[1].Text() != by[1].Text() {
		r.next.Store(&by)
	}
	if r.busy || r.filter.Empty() {
		return nil
	}
	r.busy = true
	f := r.filter
	return func() tea.Msg {
		page.Prepare(s, f)
		return searchedMsg{}
	}
}

// finishSearch ends a search; filter is what the page is to be filtered by, where keep.
func (r *rankSearch) finishSearch() (text string, keep bool) {
	text, keep = r.filter.Text(), r.keep
	r.busy = false
	r.filter = filter.Filter{}
	r.keep = false
	return text, keep
}

// searchFor has a filter searched; keep = to filter the page by it.
func (r *rankSearch) searchFor(f filter.Filter, keep bool) {
	r.filter, r.keep = f, keep
}

// applySearched applies what was found; a newer state is searched again.
func (v *workspace) applySearched() {
	if text, keep := v.search.finishSearch(); keep {
		v.filterRanks(text)
	}
}

// filterText is the text that filters the present page, or "".
func (v *workspace) filterText() string {
	switch v.current {
	case key.Events:
		return v.state.Filter
	case key.Ranks:
		return v.state.RankFilter()
	}
	return ""
}

// commandFilter filters the page, where it has a filter.
func (v *workspace) commandFilter(text string) {
	if v.keys.ForAction(v.current, key.Filter).Action == key.None {
		v.showNote(themes.Warn, "this page has no filter; ranks and events have one")
		return
	}
	v.setFilter(text)
}

// setFilter filters the present page.
func (v *workspace) setFilter(text string) {
	if v.current == key.Events {
		v.state.Filter = text
		return
	}
	v.filterRanks(text)
}

// filterRanks filters the ranks page, at once or after a search, and moves the cursor to a match.
func (v *workspace) filterRanks(text string) {
	f, err := filter.Parse(text)
	if err != nil {
		v.showNote(themes.Warn, err.Error())
		return
	}
	v.search.keep = !v.state.Knows(f)
	if v.search.keep {
		v.search.searchFor(f, true)
		return
	}
	_ = v.state.FilterRanks(text) // it has been parsed
	if !v.state.Shown(v.state.Rank()) {
		v.state.StepShown(+1)
		v.shareChoice()
	}
}

// previewFilter returns how many ranks a typed filter leaves, or its mistake.
func (v *workspace) previewFilter(text string) (note string, mistake bool) {
	if v.current != key.Ranks {
		return "", false
	}
	f, err := filter.Parse(text)
	if err != nil {
		return err.Error(), true
	}
	n := "…"
	if v.state.Knows(f) {
		n = strconv.Itoa(v.state.CountRanks(f))
	} else if !v.search.keep {
		v.search.searchFor(f, false)
	}
	return n + " of " + strconv.Itoa(v.state.Roster.World()), false
}
