package tui

import (
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/widget"
)

// maxTrail bounds how many views back one can go.
const maxTrail = 50

// show opens a page, and remembers the way back.
func (m *Model) show(to key.Scope) {
	if to != m.current {
		m.trail = append(m.trail, m.current)
		m.trail = m.trail[max(0, len(m.trail)-maxTrail):]
		m.previous, m.current = m.current, to
	}
	m.ask()
}

// back undoes the last of: a pane that fills the page, a filter, a page opened.
func (m *Model) back() {
	switch n := len(m.trail); {
	case m.zoomed[m.current] > 0:
		delete(m.zoomed, m.current)
	case m.filter() != "":
		m.setFilter("")
	case n > 0:
		m.previous, m.current, m.trail = m.current, m.trail[n-1], m.trail[:n-1]
	}
	m.ask()
}

// panes are the parts of the present page that can fill it, or nil.
func (m *Model) panes() []page.Pane {
	if p, ok := m.pages[m.current].(page.Paned); ok {
		return p.Panes(m.state)
	}
	return nil
}

// zoomPane lets the next pane fill the page; after the last the whole page is
// back. Each page remembers its own.
func (m *Model) zoomPane() {
	n := len(m.panes())
	if n == 0 {
		m.say(themes.Dim, "nothing to zoom: the page is one pane")
		return
	}
	m.zoomed[m.current] = (m.zoomed[m.current] + 1) % (n + 1)
}

// drawPage draws the present page, or the one pane that fills it.
func (m *Model) drawPage(c *widget.Canvas) {
	if at := m.zoomed[m.current]; at > 0 {
		if panes := m.panes(); at <= len(panes) {
			panes[at-1].Draw(c, c.Whole(), m.drawnState(m.current))
			return
		}
	}
	m.pages[m.current].Draw(c, c.Whole(), m.drawnState(m.current))
}

// zoomNote says which pane fills the page, or "".
func (m *Model) zoomNote() string {
	at := m.zoomed[m.current]
	if at == 0 {
		return ""
	}
	panes := m.panes()
	n := len(panes)
	switch {
	case at > n:
		return ""
	case n == 1:
		return fmt.Sprintf(" %s: pane 1 of 1, %s all ", panes[0].Name, m.table.Name(key.Back, key.Global))
	}
	return fmt.Sprintf(" %s: pane %d of %d, %s next, %s all ", panes[at-1].Name, at, n, m.table.Name(key.ZoomPane, key.Global), m.table.Name(key.Back, key.Global))
}

// hintText is the one line of the first start.
func (m *Model) hintText() string {
	name := func(a key.Action) string { return m.table.Name(a, key.Global) }
	text := fmt.Sprintf("New here? %s shows the keys, %s finds anything, %s-%s pages", name(key.ShowHelp), name(key.Command), name(key.ShowOverview), name(key.ShowEvents))
	if m.mouseOn {
		text += ", " + name(key.Mouse) + " frees the mouse"
	}
	return text + "."
}

// seeHint takes the hint away for good; the caller remembers it, outside the
// event loop.
func (m *Model) seeHint() tea.Cmd {
	if !m.hinting {
		return nil
	}
	m.hinting = false
	seen := m.opts.HintSeen
	if seen == nil {
		return nil
	}
	return func() tea.Msg { seen(); return nil }
}

// countOf tells how many there are and which is chosen.
func countOf(n, cursor int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d ↑↓", cursor+1, n)
}
