// Package events draws the engine's event lines, newest at the bottom. Pure
// drawing; no I/O.
package events

import (
	"fmt"
	"strings"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// Page is the events page.
type Page struct {
	anchor uint64 // sequence number of the bottom line, 0 = the newest
}

// New makes the page.
func New() *Page { return &Page{} }

// Want says that no series is needed.
func (p *Page) Want(widget.Rect) (columns, runLengths int) { return 1, 0 }

// Act scrolls.
func (p *Page) Act(a key.Action, s *page.State, r widget.Rect) key.Scope {
	list := filtered(s)
	bottom := p.bottom(list)
	rows := max(1, r.H-1)
	switch a {
	case key.Up:
		bottom--
	case key.Down:
		bottom++
	case key.PageUp:
		bottom -= rows
	case key.PageDown:
		bottom += rows
	case key.First:
		bottom = min(rows, len(list)) - 1
	case key.Last:
		bottom = len(list) - 1
	}
	p.anchor = 0
	if bottom < len(list)-1 && len(list) > 0 {
		p.anchor = list[max(min(rows, len(list))-1, bottom)].Seq
	}
	return ""
}

// bottom is the index of the bottom line.
func (p *Page) bottom(list []*falconv1.EventLine) int {
	if p.anchor != 0 {
		for i, e := range list {
			if e.Seq >= p.anchor {
				return i
			}
		}
	}
	return len(list) - 1
}

func filtered(s *page.State) []*falconv1.EventLine {
	if s.Filter == "" {
		return s.Feed.Events
	}
	want := strings.ToLower(s.Filter)
	var out []*falconv1.EventLine
	for _, e := range s.Feed.Events {
		if strings.Contains(strings.ToLower(e.Kind+" "+e.Text), want) {
			out = append(out, e)
		}
	}
	return out
}

// Draw draws the lines above the anchor.
func (p *Page) Draw(c *widget.Canvas, r widget.Rect, s *page.State) {
	list := filtered(s)
	bottom := p.bottom(list)
	right := fmt.Sprintf("%d held, newest last", len(s.Feed.Events))
	if s.Filter != "" {
		right = fmt.Sprintf("filter %q: %d of %d, esc shows all", s.Filter, len(list), len(s.Feed.Events))
	}
	if below := len(list) - 1 - bottom; below > 0 {
		right = fmt.Sprintf("%d newer below, G follows", below)
	}
	body := c.Rule(r, "EVENTS", right)
	if len(list) == 0 {
		page.Empty(c, body, "nothing has happened yet")
		return
	}
	draw(c, body, list[:bottom+1])
}

// Tail draws title and newest lines for other pages.
func Tail(c *widget.Canvas, r widget.Rect, s *page.State) {
	body := c.Rule(r, "EVENTS", "")
	draw(c, body, s.Feed.Events)
}

// draw fills r with the last lines of the list, oldest on top.
func draw(c *widget.Canvas, r widget.Rect, list []*falconv1.EventLine) {
	list = list[max(0, len(list)-max(0, r.H)):]
	for i, e := range list {
		line := widget.Rect{X: r.X, Y: r.Y + i, W: r.W, H: 1}
		pen := c.Pen(line).Put(themes.Dim, time.Unix(0, e.AtUnixNs).UTC().Format("15:04:05"))
		pen.Putf(themes.Dim, " %7s ", phrase.Iteration(e.Iteration))
		if r.W >= 100 {
			pen.Putf(themes.Accent, "%-9s", widget.Cut(e.Kind, 9))
		}
		pen.Put(role(e), e.Text)
	}
}

func role(e *falconv1.EventLine) themes.Role {
	switch {
	case e.Severity >= 3:
		return themes.Bad
	case e.Severity == 2:
		return themes.Warn
	}
	return themes.Text
}
