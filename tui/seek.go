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
// it is sought in a command, one at a time, so that no key waits for it: what
// was typed meanwhile is sought next.

// hunt is what is to be found.
type hunt struct {
	filter filter.Filter // empty = nothing
	keep   bool          // it is to filter the page
	busy   bool          // a command is under way
	next   atomic.Pointer[filters]
}

// filters are those that a new picture is prepared for: in force, and to come.
type filters [2]filter.Filter

type soughtMsg struct{}

// prepare makes a new picture ready for the filters as they are by now. It runs
// in a command.
func (m *Model) prepare(s *feed.State) {
	if by := m.hunt.next.Load(); by != nil {
		page.Prepare(s, by[:]...)
		return
	}
	page.Prepare(s)
}

// again prepares a picture that was prepared for another filter than the present one;
// nil where it is ready.
func (m *Model) again(s *feed.State) tea.Cmd {
	by := m.live.Chooses()
	if page.Ready(s, by) {
		return nil
	}
	return func() tea.Msg {
		page.Prepare(s, by)
		return updateMsg{s}
	}
}

// seekNext begins to seek what is wanted, after any message.
func (m *Model) seekNext() tea.Cmd {
	by := filters{m.live.Chooses(), m.hunt.filter}
	if old := m.hunt.next.Load(); old == nil || old[0].Text() != by[0].Text() || old[1].Text() != by[1].Text() {
		m.hunt.next.Store(&by)
	}
	if m.hunt.busy || m.hunt.filter.Empty() {
		return nil
	}
	m.hunt.busy = true
	s, f := m.state.Feed, m.hunt.filter
	return func() tea.Msg {
		page.Prepare(s, f)
		return soughtMsg{}
	}
}

// sought goes on with what has been found; it is sought again where a newer
// picture is shown by now.
func (m *Model) sought() {
	want := m.hunt.filter
	m.hunt.busy, m.hunt.filter = false, filter.Filter{}
	if m.hunt.keep {
		m.hunt.keep = false
		m.filterRanks(want.Text())
	}
	if m.prompt != nil {
		m.preview(m.prompt)
	}
	m.dirty = true
}

// filterRanks filters the ranks page, now or once the ranks are found; the
// cursor goes to one that is left.
func (m *Model) filterRanks(text string) {
	f, err := filter.Parse(text)
	if err != nil {
		m.say(themes.Warn, err.Error())
		return
	}
	if m.hunt.keep = !m.state.Knows(f); m.hunt.keep {
		m.hunt.filter = f
		return
	}
	_ = m.state.FilterRanks(text) // it has been parsed
	if !m.state.Shown(m.state.Rank()) {
		m.state.StepShown(+1)
		m.shareChoice()
	}
}

// preview says while a filter of ranks is typed how many it leaves.
func (m *Model) preview(p *prompt) {
	if p.sign != "/" || m.current != key.Ranks {
		return
	}
	f, err := filter.Parse(p.input.Value())
	if p.mistake = err != nil; p.mistake {
		p.note = err.Error()
		return
	}
	n := "…"
	if m.state.Knows(f) {
		n = strconv.Itoa(m.state.CountRanks(f))
	} else if !m.hunt.keep {
		m.hunt.filter = f
	}
	p.note = n + " of " + strconv.Itoa(len(m.state.Ranks))
}
