package tui

import (
	"cmp"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/link"
	"github.com/failslow/falcon/tui/page"
)

// openPending goes where Options.Open points as soon as there is something to see.
func (v *workspace) openPending() tea.Cmd {
	if v.pending == nil ||
		v.live.Feed.Conn != feed.Live ||
		v.live.Roster.World() == 0 {
		return nil
	}
	to := *v.pending
	v.pending = nil
	return v.goToTarget(to)
}

// openTyped is the command "open".
func (v *workspace) openTyped(text string) tea.Cmd {
	up := strings.ToUpper(text)
	if strings.HasPrefix(up, "INC-") || strings.HasPrefix(up, "REC-") {
		text = strings.ToLower(text[:3]) + "/" + text
	}
	to, err := link.Parse(text)
	if err != nil {
		v.showNote(themes.Warn, err.Error())
		return nil
	}
	return v.goToTarget(to)
}

// goToTarget shows a place. It moves what the operator looks at and nothing else.
func (v *workspace) goToTarget(to link.Target) tea.Cmd {
	here := v.state.Snap().GetJob().GetName()
	if to.Job != "" && to.Job != here && to.Job != v.context {
		return v.goElsewhere(to, here)
	}
	view := to.View
	cmd := tea.Cmd(nil)
	switch to.Kind {
	case link.Page:
	case link.Incident:
		view = cmp.Or(view, key.Ladder)
		cmd = v.openIncident(to.ID)
	case link.Recovery:
		view = cmp.Or(view, key.Recovery)
		v.chooseRecovery(to.ID)
	case link.Rank:
		view = cmp.Or(view, key.Ranks)
		if !v.state.Select(to.Rank) {
			v.showNote(themes.Warn, fmt.Sprintf("there is no rank %d; they go from 0 to %d",
				to.Rank, v.state.Roster.World()-1))
		}
	case link.Link:
		view = cmp.Or(view, key.Validate)
		v.pickLinkEnds(to.ID)
	}
	v.placeOnPage(view, to)
	v.showPage(view)
	v.shareChoice()
	return cmd
}

// goElsewhere is for a place in another job: another console of several shows it.
func (v *workspace) goElsewhere(to link.Target, here string) tea.Cmd {
	if v.context == "" {
		v.showNote(themes.Warn, "the link is to job "+to.Job+", and this console shows "+here)
		return nil
	}
	return func() tea.Msg { return elsewhereMsg{to} }
}

// placeOnPage sets what a link says about the page itself.
func (v *workspace) placeOnPage(view key.Scope, to link.Target) {
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

// pickLinkEnds marks the ranks at both ends of a link.
func (v *workspace) pickLinkEnds(id string) {
	a, b, _ := strings.Cut(id, "-")
	ranks := v.state.RanksOn(a, b)
	if len(ranks) == 0 {
		v.showNote(themes.Warn, "no rank runs on "+a+" or "+b)
		return
	}
	v.state.Unpick()
	v.state.PickAll(ranks)
	v.state.Select(ranks[0])
	v.showNote(themes.Accent, "the ranks at both ends of "+id+" are picked; :test "+id+" tests the link")
}

// linkToHere is the link to what is on screen.
func (v *workspace) linkToHere() link.Target {
	t := link.ToPage(v.current)
	switch v.current {
	case key.Overview, key.Ladder:
		if id := v.shownIncident(); id != "" {
			t.Kind = link.Incident
			t.ID = id
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
	v.addPagePlace(&t)
	if v.context != "" {
		t.Job = v.state.Snap().GetJob().GetName()
	}
	return t
}

// addPagePlace adds what the page itself says of the place.
func (v *workspace) addPagePlace(t *link.Target) {
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
	t.Filter = v.filterText()
}
