package tui

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/link"
	"github.com/failslow/falcon/tui/page"
)

// arrive goes where Options.Open points as soon as there is something to see.
func (m *Model) arrive() tea.Cmd {
	if m.pending == nil || m.live.Feed.Conn != feed.Live || len(m.live.Ranks) == 0 {
		return nil
	}
	to := *m.pending
	m.pending = nil
	return m.goTo(to)
}

// openTyped is the command "open".
func (m *Model) openTyped(text string) tea.Cmd {
	if up := strings.ToUpper(text); strings.HasPrefix(up, "INC-") || strings.HasPrefix(up, "REC-") {
		text = strings.ToLower(text[:3]) + "/" + text
	}
	to, err := link.Parse(text)
	if err != nil {
		m.say(themes.Warn, err.Error())
		return nil
	}
	return m.goTo(to)
}

// goTo shows a place. It moves what the operator looks at and nothing else.
func (m *Model) goTo(to link.Target) tea.Cmd {
	view, cmd := to.View, tea.Cmd(nil)
	switch to.Kind {
	case link.Page:
	case link.Incident:
		view, cmd = or(view, key.Ladder), m.browse(to.ID)
	case link.Recovery:
		view = or(view, key.Recovery)
		if p, ok := m.pages[key.Recovery].(page.Chooser); ok {
			p.Choose(to.ID)
		}
	case link.Rank:
		view = or(view, key.Ranks)
		if !m.state.Select(to.Rank) {
			m.say(themes.Warn, fmt.Sprintf("there is no rank %d; they go from 0 to %d", to.Rank, len(m.state.Ranks)-1))
		}
	case link.Link:
		view = or(view, key.Validate)
		m.pickLink(to.ID)
	}
	m.place(view, to)
	m.show(view)
	m.shareChoice()
	m.dirty = true
	return cmd
}

func or(a, b key.Scope) key.Scope {
	if a != "" {
		return a
	}
	return b
}

// place sets what a link says about the page itself.
func (m *Model) place(view key.Scope, to link.Target) {
	if len(to.Sel) > 0 {
		m.state.Unpick()
		m.state.PickAll(to.Sel)
	}
	if z, ok := m.pages[view].(page.Zoomer); ok && to.Zoom != link.Unset {
		z.SetZoom(to.Zoom)
	}
	if s, ok := m.pages[view].(page.Scrubber); ok && to.At != link.Unset {
		s.SetAt(to.At)
	}
	switch {
	case to.Filter == "":
	case view == key.Events:
		m.state.Filter = to.Filter
	default:
		m.filterRanks(to.Filter)
	}
}

// pickLink marks the ranks at both ends of a link.
func (m *Model) pickLink(id string) {
	a, b, _ := strings.Cut(id, "-")
	ranks := m.state.RanksOn(a, b)
	if len(ranks) == 0 {
		m.say(themes.Warn, "no rank runs on "+a+" or "+b)
		return
	}
	m.state.Unpick()
	m.state.PickAll(ranks)
	m.state.Select(ranks[0])
	m.say(themes.Accent, "the ranks at both ends of "+id+" are picked; :test "+id+" tests the link")
}

// here is the link to what is on screen.
func (m *Model) here() link.Target {
	t := link.ToPage(m.current)
	switch m.current {
	case key.Overview, key.Ladder:
		if id := m.lookedAt(); id != "" {
			t.Kind, t.ID = link.Incident, id
		}
	case key.Recovery:
		if p, ok := m.pages[key.Recovery].(page.Chooser); ok && p.Chosen(m.state) != "" {
			t.Kind, t.ID = link.Recovery, p.Chosen(m.state)
		}
	case key.Ranks, key.Grid, key.Posterior, key.Validate:
		if len(m.state.Ranks) > 0 {
			t.Kind, t.Rank = link.Rank, m.state.Rank()
		}
		t.Sel = m.state.Picks()
		t.Sel = t.Sel[:min(len(t.Sel), link.MaxSel)]
	}
	m.where(&t)
	return t
}

// where adds what the page itself says of the place.
func (m *Model) where(t *link.Target) {
	if z, ok := m.pages[m.current].(page.Zoomer); ok {
		if level, chosen := z.Zoom(); chosen {
			t.Zoom = level
		}
	}
	if s, ok := m.pages[m.current].(page.Scrubber); ok {
		if at, chosen := s.At(); chosen {
			t.At = at
		}
	}
	t.Filter = m.filter()
}

// lookedAt is the incident on screen, or "".
func (m *Model) lookedAt() string {
	if m.look != nil {
		return m.look.id
	}
	return m.live.Incident().GetId()
}
