// Package events draws the engine's event lines, newest at the bottom. The
// list loses its oldest lines while it grows, so the scroll holds on to a
// sequence number, not to an offset as a viewport does. Pure drawing; no I/O.
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

// Act scrolls by lines, or by what the page shows at once.
func (p *Page) Act(a key.Action, s *page.State, r widget.Rect) key.Scope {
	list := filtered(s)
	bottom := p.bottom(list)
	rows := max(1, r.H-1)
	lowest := reach(list, 0, +1, r.W, rows)
	switch a {
	case key.Up:
		bottom--
	case key.Down:
		bottom++
	case key.PageUp:
		bottom = reach(list, bottom, -1, r.W, rows) - 1
	case key.PageDown:
		bottom = reach(list, bottom+1, +1, r.W, rows)
	case key.First:
		bottom = lowest
	case key.Last:
		bottom = len(list) - 1
	}
	p.anchor = 0
	if bottom < len(list)-1 && len(list) > 0 {
		p.anchor = list[max(lowest, bottom)].Seq
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

// reach is the last event that is seen from one on, in a direction, where
// wrapped events of width w fill rows; at least that one.
func reach(list []*falconv1.EventLine, from, step, w, rows int) int {
	at := max(0, min(from, len(list)-1))
	for next := at; next >= 0 && next < len(list); next += step {
		rows -= len(wrap(list[next], w))
		if rows < 0 {
			break
		}
		at = next
	}
	return at
}

// wrap is an event's text in the lines that it takes at width w.
func wrap(e *falconv1.EventLine, w int) []string {
	if lines := widget.Wrap(e.Text, max(1, w-textAt(w))); len(lines) > 0 {
		return lines
	}
	return []string{""}
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
	for i := reach(list, bottom, -1, body.W, body.H); i <= bottom; i++ {
		for n, l := range wrap(list[i], body.W) {
			var row widget.Rect
			row, body = body.Rows(1)
			switch {
			case row.Empty():
			case n == 0:
				head(c, row, list[i]).Put(role(list[i]), l)
			default:
				c.Pen(row).Space(textAt(r.W)).Put(role(list[i]), l)
			}
		}
	}
}

// Tail draws title and newest lines for other pages, one row each.
func Tail(c *widget.Canvas, r widget.Rect, s *page.State) {
	body := c.Rule(r, "EVENTS", "")
	list := s.Feed.Events
	for _, e := range list[max(0, len(list)-max(0, body.H)):] {
		var row widget.Rect
		row, body = body.Rows(1)
		head(c, row, e).Put(role(e), e.Text)
	}
}

// wide is the width from which on the kind of an event has a column.
const wide = 100

// textAt is the column of the text.
func textAt(w int) int {
	if w >= wide {
		return 28
	}
	return 17
}

// head writes what stands before an event's text.
func head(c *widget.Canvas, r widget.Rect, e *falconv1.EventLine) *widget.Pen {
	pen := c.Pen(r).Put(themes.Dim, time.Unix(0, e.AtUnixNs).UTC().Format("15:04:05"))
	pen.Putf(themes.Dim, " %7s ", phrase.Iteration(e.Iteration))
	if r.W >= wide {
		pen.Putf(themes.Accent, "%-11s", widget.Cut(e.Kind, 10))
	}
	return pen
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
