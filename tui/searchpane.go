package tui

import (
	"charm.land/bubbles/v2/textinput"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/tui/key"
)

// searchPane scrolls through lines of which only those are shown that hold what is sought.
type searchPane struct {
	table  *key.Map
	pane   viewport.Model
	wanted string           // show only what holds this
	search *textinput.Model // while it is being typed, else nil
}

func newSearchPane(table *key.Map) searchPane {
	return searchPane{table: table, pane: viewport.New()}
}

// act scrolls, or begins a search on a screen of w columns; closed says to take the pane away.
func (p *searchPane) act(a key.Action, w int) (closed bool) {
	switch a {
	case key.Up:
		p.pane.ScrollUp(1)
	case key.Down:
		p.pane.ScrollDown(1)
	case key.PageUp:
		p.pane.PageUp()
	case key.PageDown:
		p.pane.PageDown()
	case key.First:
		p.pane.GotoTop()
	case key.Last:
		p.pane.GotoBottom()
	case key.Filter:
		in := newTextEntry(p.table, key.Prompt, p.wanted, max(1, w-promptKeysW-4))
		p.search = &in
	case key.Cancel:
		if p.wanted == "" {
			return true
		}
		p.searchFor("")
	}
	return false
}

// searchKey handles a key while a search is typed: the lines follow it.
func (p *searchPane) searchKey(k tea.KeyPressMsg) {
	switch p.table.Lookup(k, key.Prompt) {
	case key.Confirm:
		p.search = nil
	case key.Cancel:
		p.search = nil
		p.searchFor("")
	case key.Up:
		p.pane.ScrollUp(1)
	case key.Down:
		p.pane.ScrollDown(1)
	default:
		p.takeText(k)
	}
}

// takeText gives the search a key or pasted text.
func (p *searchPane) takeText(msg tea.Msg) {
	in := enterText(*p.search, msg)
	p.search = &in
	p.searchFor(in.Value())
}

func (p *searchPane) searchFor(text string) {
	p.wanted = text
	p.pane.GotoTop()
}

// rollWheel turns the wheel.
func (p *searchPane) rollWheel(notches int) {
	if notches < 0 {
		p.pane.ScrollUp(-notches)
		return
	}
	p.pane.ScrollDown(notches)
}

// drawSearch draws the search that is being typed.
func (p *searchPane) drawSearch(s *skin, w, y int) (string, *tea.Cursor) {
	return drawInputRow(s, p.table, "/", p.search, w, y, withoutNote)
}

// searching is the pane over the page in which a search is being typed, or nil.
func (m *Model) searching() *searchPane {
	switch {
	case m.help != nil && m.help.search != nil:
		return &m.help.searchPane
	case m.output != nil && m.output.search != nil:
		return &m.output.searchPane
	}
	return nil
}
