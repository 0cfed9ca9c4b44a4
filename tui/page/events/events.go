// Package events draws the engine's event lines, newest at the bottom: what the
// detector noted, what was proposed, and, as audit lines, who did what from
// where on which plan. The list loses its oldest lines while it grows, so
// cursor and scroll hold on to sequence numbers, not to an offset as a viewport
// does. Pure drawing and the operator's cursor; no I/O.
package events

import (
	"cmp"
	"fmt"
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
	page.NoSeries
	anchor   uint64 // sequence number of the bottom line, 0 = the newest
	cursor   uint64 // of the line under the cursor, 0 = the newest
	class    int
	severity int
	alone    bool // the lines fill the page, as drawn last
	past     past
}

// New makes the page.
func New() *Page { return &Page{} }

// Under is the event under the cursor, or nil where none is shown.
func (p *Page) Under(s *page.State) *falconv1.EventLine {
	list := p.filteredEvents(s)
	if at := indexOfEvent(list, p.cursor); at >= 0 && !p.past.shown {
		return list[at]
	}
	return nil
}

// Act moves the cursor by lines, or by what the page shows at once; opens what
// the line under it is about; or chooses what kinds are shown.
func (p *Page) Act(a key.Action, s *page.State, r widget.Rect) key.Scope {
	if a == key.History {
		p.past.shown = !p.past.shown
		return ""
	}
	if p.past.shown {
		_, _, list := pastRects(r)
		return p.past.act(a, s, list.H-1)
	}
	switch a {
	case key.Kind:
		p.class = (p.class + 1) % len(classes)
		p.anchor, p.cursor = 0, 0
		return ""
	case key.Severity:
		p.severity = (p.severity + 1) % len(severities)
		p.anchor, p.cursor = 0, 0
		return ""
	}
	list := p.filteredEvents(s)
	at := indexOfEvent(list, p.cursor)
	if a == key.Open {
		if at >= 0 {
			if t, ok := s.TargetOf(list[at]); ok {
				return s.Go(t)
			}
		}
		return ""
	}
	p.moveCursor(a, list, at, p.bodyRect(r))
	return ""
}

// moveCursor sets cursor and bottom line.
func (p *Page) moveCursor(a key.Action, list []*falconv1.EventLine, at int, body widget.Rect) {
	if len(list) == 0 {
		return
	}
	rows := max(1, body.H)
	bottom := indexOfEvent(list, p.anchor)
	switch a {
	case key.Up:
		at--
	case key.Down:
		at++
	case key.PageUp:
		at = lastReachable(list, bottom, -1, body.W, rows) - 1
		bottom = at
	case key.PageDown:
		bottom = lastReachable(list, bottom+1, +1, body.W, rows)
		at = bottom
	case key.First:
		at = 0
	case key.Last:
		at = len(list) - 1
		bottom = len(list) - 1
	default:
		return
	}
	at = max(0, min(at, len(list)-1))
	bottom = max(bottom, at, lastReachable(list, 0, +1, body.W, rows))
	if at < lastReachable(list, bottom, -1, body.W, rows) {
		bottom = lastReachable(list, at, +1, body.W, rows)
	}
	p.cursor, p.anchor = heldSequence(list, at), heldSequence(list, bottom)
}

// heldSequence is the sequence number to hold on to; 0, the newest, at the list's end.
func heldSequence(list []*falconv1.EventLine, i int) uint64 {
	if i >= len(list)-1 {
		return 0
	}
	return list[i].Seq
}

// indexOfEvent is the index of a sequence number or the next one; 0 = the newest.
func indexOfEvent(list []*falconv1.EventLine, seq uint64) int {
	if seq != 0 {
		for i, e := range list {
			if e.Seq >= seq {
				return i
			}
		}
	}
	return len(list) - 1
}

// lastReachable is the last event that is seen from one on, in a direction, where
// wrapped events of width w fill rows; at least that one.
func lastReachable(list []*falconv1.EventLine, from, step, w, rows int) int {
	at := max(0, min(from, len(list)-1))
	for next := at; next >= 0 && next < len(list); next += step {
		rows -= len(wrapEvent(list[next], w))
		if rows < 0 {
			break
		}
		at = next
	}
	return at
}

// wrapEvent is an event's text in the lines that it takes at width w.
func wrapEvent(e *falconv1.EventLine, w int) []string {
	if lines := widget.Wrap(e.Text, max(1, w-textColumn(w))); len(lines) > 0 {
		return lines
	}
	return []string{""}
}

// detailRows are those about the line under the cursor.
const detailRows = 4

// bodyRect is where the lines are.
func (p *Page) bodyRect(r widget.Rect) widget.Rect {
	_, body := r.Rows(1)
	if r.H >= 3*detailRows && !p.alone {
		body, _ = body.Rows(body.H - detailRows)
	}
	return body
}

// Draw draws the lines above the anchor, and the one under the cursor in full.
func (p *Page) Draw(c *widget.Canvas, r widget.Rect, s *page.State) {
	p.alone = false
	if p.past.shown {
		p.past.draw(c, r, s)
		return
	}
	p.drawList(c, r, s)
}

// Panes are the parts that can fill the page alone.
func (p *Page) Panes(s *page.State) []page.Pane {
	if p.past.shown {
		return p.past.panes(s)
	}
	list := p.filteredEvents(s)
	if len(list) == 0 {
		return nil
	}
	return []page.Pane{
		{
			Name: "events",
			Draw: func(c *widget.Canvas, r widget.Rect, s *page.State) {
				p.alone = true
				p.drawList(c, r, s)
			},
		},
		{
			Name: "one event",
			Draw: func(c *widget.Canvas, r widget.Rect, s *page.State) {
				drawDetail(c, r, s, list[indexOfEvent(list, p.cursor)])
			},
		},
	}
}

func (p *Page) drawList(c *widget.Canvas, r widget.Rect, s *page.State) {
	list := p.filteredEvents(s)
	bottom := indexOfEvent(list, p.anchor)
	right := fmt.Sprintf("%d held, newest last", len(s.Feed.Events))
	if text := p.narrowedText(s); text != "" {
		right = fmt.Sprintf("%s: %d of %d", text, len(list), len(s.Feed.Events))
	}
	if below := len(list) - 1 - bottom; below > 0 {
		right = fmt.Sprintf("%d newer below, G follows", below)
	}
	c.Rule(r, "EVENTS", right)
	body := p.bodyRect(r)
	if len(list) == 0 {
		page.Empty(c, body, p.emptyReason(s))
		return
	}
	cursor := indexOfEvent(list, p.cursor)
	detail := widget.Rect{
		X: r.X,
		Y: body.Y + body.H,
		W: r.W,
		H: r.Y + r.H - body.Y - body.H,
	}
	for i := lastReachable(list, bottom, -1, body.W, body.H); i <= bottom; i++ {
		body = p.drawLine(c, body, list[i], s.Zone, i == cursor)
	}
	if !detail.Empty() {
		drawDetail(c, detail, s, list[cursor])
	}
}

// drawLine draws one event and returns the room below it.
func (p *Page) drawLine(
	c *widget.Canvas,
	body widget.Rect,
	e *falconv1.EventLine,
	zone *time.Location,
	cursor bool,
) widget.Rect {
	for n, l := range wrapEvent(e, body.W) {
		row, rest := body.Rows(1)
		body = rest
		if row.Empty() {
			return body
		}
		text := severityRole(e)
		if cursor {
			c.Fill(row, ' ', c.Pal.Style(themes.Selected))
			text = themes.Selected
		}
		if n == 0 {
			drawLineHead(c, row, e, zone, cursor).Put(text, l)
		} else {
			c.Pen(row).Space(textColumn(row.W)).Put(text, l)
		}
	}
	return body
}

// drawDetail draws the line under the cursor in full: when, how serious, who,
// on what plan, and what enter opens.
func drawDetail(c *widget.Canvas, r widget.Rect, s *page.State, e *falconv1.EventLine) {
	open := ""
	if t, ok := s.TargetOf(e); ok {
		open = s.Key(key.Events, key.Open) + " opens " + t.Name()
	}
	body := c.Rule(r, e.Kind, open)
	row, body := body.Rows(1)
	at := time.Unix(0, e.AtUnixNs).UTC()
	c.Pen(row).
		Put(themes.Text, at.Format("2006-01-02 15:04:05.000Z")).
		Putf(themes.Text, "  iteration %s", phrase.Iteration(e.Iteration)).
		Put(themes.Dim, "  ").
		Put(severityRole(e), severityWord(e.Severity))
	if a := e.Audit; a != nil {
		row, body = body.Rows(1)
		pen := c.Pen(row).
			Put(themes.Title, a.Actor).
			Putf(themes.Text, " (%s) from %s: ", a.Role, a.From).
			Put(themes.Accent, a.Verb+" "+a.About)
		if a.PlanHash != "" {
			pen.Put(themes.Dim, "  plan "+a.PlanHash)
		}
		if a.Reason == "" {
			c.Pen(body).Put(themes.Dim, "no reason given")
			return
		}
		c.Paragraph(body, "because: "+a.Reason, c.Pal.Style(themes.Text))
		return
	}
	c.Paragraph(body, e.Text, c.Pal.Style(severityRole(e)))
}

func severityWord(n int32) string {
	switch {
	case n >= 3:
		return "✖ serious"
	case n == 2:
		return "▲ warning"
	case n == 1:
		return "● notice"
	}
	return "○ note"
}

// Tail draws title and newest lines for other pages, one row each.
func Tail(c *widget.Canvas, r widget.Rect, s *page.State) {
	drawTail(c, r, withoutJitter(s.Feed.Events), "EVENTS", s.Zone)
}

// IsAudit reports whether an event is an act of a person, or of policy on a person's behalf.
func IsAudit(e *falconv1.EventLine) bool { return e.GetKind() == "audit" }

// AuditTail draws the newest audit lines for other pages.
func AuditTail(c *widget.Canvas, r widget.Rect, s *page.State) {
	var list []*falconv1.EventLine
	for _, e := range s.Feed.Events {
		if IsAudit(e) {
			list = append(list, e)
		}
	}
	drawTail(c, r, list, "AUDIT", s.Zone)
}

func drawTail(
	c *widget.Canvas,
	r widget.Rect,
	list []*falconv1.EventLine,
	title string,
	zone *time.Location,
) {
	body := c.Rule(r, title, "")
	if len(list) == 0 {
		page.Empty(c, body, "nothing so far")
	}
	for _, e := range list[max(0, len(list)-max(0, body.H)):] {
		var row widget.Rect
		row, body = body.Rows(1)
		drawLineHead(c, row, e, zone, false).Put(severityRole(e), e.Text)
	}
}

// wide is the width from which on the kind of an event has a column.
const wide = 100

// textColumn is the column of the text.
func textColumn(w int) int {
	if w >= wide {
		return 30
	}
	return 19
}

// drawLineHead writes what precedes an event's text: time, iteration, a shape for
// its severity, and its kind where there is room.
func drawLineHead(
	c *widget.Canvas,
	r widget.Rect,
	e *falconv1.EventLine,
	zone *time.Location,
	cursor bool,
) *widget.Pen {
	dim := themes.Dim
	accent := themes.Accent
	mark := severityRole(e)
	pen := c.Pen(r)
	if cursor {
		pen.Over(c.Pal.Style(themes.Selected))
		dim = themes.Selected
		accent = themes.Selected
		mark = themes.Selected
	}
	pen.Put(dim, time.Unix(0, e.AtUnixNs).In(cmp.Or(zone, time.UTC)).Format("15:04:05"))
	pen.Putf(dim, " %7s ", phrase.Iteration(e.Iteration)).Put(mark, severitySign(e.Severity)+" ")
	if r.W >= wide {
		pen.Putf(accent, "%-11s", widget.Cut(e.Kind, 10))
	}
	return pen
}

func severitySign(severity int32) string {
	switch {
	case severity >= 3:
		return "✖"
	case severity == 2:
		return "▲"
	}
	return " "
}

func severityRole(e *falconv1.EventLine) themes.Role {
	switch {
	case e.Severity >= 3:
		return themes.Bad
	case e.Severity == 2:
		return themes.Warn
	case e.Kind == "audit":
		return themes.Accent
	}
	return themes.Text
}
