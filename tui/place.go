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
func (v *workspace) arrive() tea.Cmd {
	if v.pending == nil || v.live.Feed.Conn != feed.Live || v.live.Roster.World() == 0 {
		return nil
	}
	to := *v.pending
	v.pending = nil
	return v.goTo(to)
}

// openTyped is the command "open".
func (v *workspace) openTyped(text string) tea.Cmd {
	if up := strings.ToUpper(text); strings.HasPrefix(up, "INC-") || strings.HasPrefix(up, "REC-") {
		text = strings.ToLower(text[:3]) + "/" + text
	}
	to, err := link.Parse(text)
	if err != nil {
		v.say(themes.Warn, err.Error())
		return nil
	}
	return v.goTo(to)
}

// goTo shows a place. It moves what the operator looks at and nothing else.
func (v *workspace) goTo(to link.Target) tea.Cmd {
	view, cmd := to.View, tea.Cmd(nil)
	switch to.Kind {
	case link.Page:
	case link.Incident:
		view, cmd = or(view, key.Ladder), v.open(to.ID)
	case link.Recovery:
		view = or(view, key.Recovery)
		v.chooseRecovery(to.ID)
	case link.Rank:
		view = or(view, key.Ranks)
		if !v.state.Select(to.Rank) {
			v.say(themes.Warn, fmt.Sprintf("there is no rank %d; they go from 0 to %d", to.Rank, v.state.Roster.World()-1))
		}
	case link.Link:
		view = or(view, key.Validate)
		v.pickLink(to.ID)
	}
	v.place(view, to)
	v.show(view)
	v.shareChoice()
	return cmd
}

func or(a, b key.Scope) key.Scope {
	if a != "" {
		return a
	}
	return b
}

// place sets what a link says about the page itself.
func (v *workspace) place(view key.Scope, to link.Target) {
	if len(to.Sel) > 0 {
		v.state.Unpick()
		v.state.PickAll(to.Sel)
	}
	if z, ok := v.pages[view].(page.Zoomer); ok && to.Zoom != link.Unset {
		z.SetZoom(to.Zoom)
	}
	if s, ok := v.pages[view].(page.Scrubber); ok && to.At != link.Unset {
		s.SetAt(to.At)
	}
	switch {
	case to.Filter == "":
	case view == key.Events:
		v.state.Filter = to.Filter
	default:
		v.filterRanks(to.Filter)
	}
}

// pickLink marks the ranks at both ends of a link.
func (v *workspace) pickLink(id string) {
	a, b, _ := strings.Cut(id, "-")
	ranks := v.state.RanksOn(a, b)
	if len(ranks) == 0 {
		v.say(themes.Warn, "no rank runs on "+a+" or "+b)
		return
	}
	v.state.Unpick()
	v.state.PickAll(ranks)
	v.state.Select(ranks[0])
	v.say(themes.Accent, "the ranks at both ends of "+id+" are picked; :test "+id+" tests the link")
}

// here is the link to what is on screen.
func (v *workspace) here() link.Target {
	t := link.ToPage(v.current)
	switch v.current {
	case key.Overview, key.Ladder:
		if id := v.lookedAt(); id != "" {
			t.Kind, t.ID = link.Incident, id
		}
	case key.Recovery:
		if p, ok := v.pages[key.Recovery].(page.Chooser); ok && p.Chosen(v.state) != "" {
			t.Kind, t.ID = link.Recovery, p.Chosen(v.state)
		}
	case key.Ranks, key.Grid, key.Posterior, key.Validate:
		if v.state.Roster.World() > 0 {
			t.Kind, t.Rank = link.Rank, v.state.Rank()
		}
		t.Sel = v.state.Picks()
		t.Sel = t.Sel[:min(len(t.Sel), link.MaxSel)]
	}
	v.where(&t)
	return t
}

// where adds what the page itself says of the place.
func (v *workspace) where(t *link.Target) {
	if z, ok := v.pages[v.current].(page.Zoomer); ok {
		if level, chosen := z.Zoom(); chosen {
			t.Zoom = level
		}
	}
	if s, ok := v.pages[v.current].(page.Scrubber); ok {
		if at, chosen := s.At(); chosen {
			t.At = at
		}
	}
	t.Filter = v.filter()
}
