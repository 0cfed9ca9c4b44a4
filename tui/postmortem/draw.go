package postmortem

import (
	"fmt"
	"math"
	"strings"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/widget"
)

// row is one line of the page.
type row struct {
	text  string
	role  themes.Role
	item  int // of the evidence that it belongs to, -1 = none
	chart *Chart
	part  int // of the chart, from its top
}

// Sizes of the page.
const (
	chartRows = 5
	chartMost = 2
	inputMost = 200
	indent    = 10
)

// wordOf are the kinds as the heading has them.
var wordOf = map[string]struct {
	word string
	role themes.Role
}{
	"hang":    {"HANG", themes.Bad},
	"failed":  {"FAILED", themes.Bad},
	"slow":    {"SLOW", themes.Warn},
	"healthy": {"HEALTHY", themes.Good},
	"unknown": {"CAN'T BE TOLD", themes.Dim},
}

// rows lays the document out for a width. open is the evidence whose line is shown, -1 = none.
func (d *Document) rows(w, open int) []row {
	var out []row
	add := func(role themes.Role, text string, item int) {
		out = append(out, row{text: text, role: role, item: item})
	}
	summary := clean.String(d.Summary)
	if widget.Width(wordOf[d.Kind].word+"  "+summary) > w { // the heading has it cut
		for _, l := range widget.Wrap(summary, w) {
			add(themes.Title, l, -1)
		}
	}
	for _, n := range d.Notes {
		add(themes.Dim, clean.String(n), -1)
	}
	for i := range d.Charts[:min(chartMost, len(d.Charts))] {
		out = append(out, chartRowsOf(&d.Charts[i])...)
	}
	if len(d.Evidence) > 0 {
		add(themes.Header, "EVIDENCE", -1)
	}
	for i, e := range d.Evidence {
		out = append(out, e.rows(w, i, i == open)...)
	}
	if len(d.Next) > 0 {
		add(themes.Header, "NEXT", -1)
	}
	for _, n := range d.Next {
		for k, l := range widget.Wrap(clean.String(n), w-2) {
			add(themes.Text, []string{"• ", "  "}[min(k, 1)]+l, -1)
		}
	}
	add(themes.Header, fmt.Sprintf("READ  %d files", len(d.Inputs)), -1)
	for _, in := range d.Inputs[:min(inputMost, len(d.Inputs))] {
		word := "read      "
		role := themes.Text
		if !in.Used {
			word = "not used  "
			role = themes.Dim
		}
		add(
			role,
			widget.Cut(word+clean.String(in.Path)+": "+clean.String(in.Says), w),
			-1,
		)
	}
	return out
}

func (e Evidence) rows(w, item int, open bool) []row {
	word := "for"
	role := themes.Text
	if e.Against {
		word = "against"
		role = themes.Dim
	}
	var out []row
	for k, l := range widget.Wrap(clean.String(e.Text), w-indent) {
		head := strings.Repeat(" ", indent)
		if k == 0 {
			head = fmt.Sprintf("%-*s", indent, word)
		}
		out = append(out, row{text: head + l, role: role, item: item})
	}
	if !open {
		return out
	}
	for _, l := range widget.Wrap(clean.String(e.At), w-indent) {
		out = append(out, row{
			text: strings.Repeat(" ", indent) + l,
			role: themes.Accent,
			item: item,
		})
	}
	for _, l := range widget.Wrap(clean.String(e.Quote), w-indent-2) {
		out = append(out, row{
			text: strings.Repeat(" ", indent) + "│ " + l,
			role: themes.Text,
			item: item,
		})
	}
	return out
}

func chartRowsOf(c *Chart) []row {
	if len(c.Values) == 0 {
		return nil
	}
	out := []row{{
		text: clean.String(c.Name) + "  " + c.span(),
		role: themes.Header,
		item: -1,
	}}
	for part := range chartRows {
		out = append(out, row{item: -1, chart: c, part: part})
	}
	return out
}

// span is the least and the largest value in words.
func (c *Chart) span() string {
	low := math.Inf(1)
	high := 0.0
	for _, v := range c.Values {
		low = min(low, v)
		high = max(high, v)
	}
	unit := c.Unit
	if unit == "" {
		return fmt.Sprintf("%d points, the largest %.3g times the least", len(c.Values), high/low)
	}
	return fmt.Sprintf("%d points, %.4g to %.4g %s, drawn from %.4g",
		len(c.Values), low, high, unit, c.bottom())
}

// bottom is the value of the chart's lower edge: iterations from zero up would be a block without a shape.
func (c *Chart) bottom() float64 {
	low := math.Inf(1)
	high := 0.0
	for _, v := range c.Values {
		low = min(low, v)
		high = max(high, v)
	}
	return max(0, low-(high-low)*belowLeast)
}

const belowLeast = 0.3 // of the span

// columns are the values at a width, the slowest of each part.
func (c *Chart) columns(w int) (values []float64, onset int) {
	per := max(1, (len(c.Values)+w-1)/max(1, w))
	onset = -1
	bottom := c.bottom()
	for from := 0; from < len(c.Values); from += per {
		most := 0.0
		for _, v := range c.Values[from:min(len(c.Values), from+per)] {
			most = max(most, v)
		}
		values = append(values, most-bottom)
	}
	if c.Onset >= 0 && c.Onset < len(c.Values) {
		onset = c.Onset / per
	}
	return values, onset
}

// draw composes the screen: a heading, the part of the page that is looked at, and the keys.
func (s *Screen) draw() string {
	c := widget.NewCanvas(s.w, s.h, s.pal, s.ascii)
	kind := wordOf[s.doc.Kind]
	pen := c.Pen(widget.Rect{X: 0, Y: 0, W: s.w, H: 1})
	pen.Put(kind.role, kind.word).
		Space(2).
		Put(themes.Text, widget.Cut(clean.String(s.doc.Summary), pen.Left()))
	body := widget.Rect{X: 0, Y: 1, W: s.w, H: s.h - 2}
	rows := s.doc.rows(s.w, s.open)
	s.keepInSight(rows, body.H)
	for y := range body.H {
		if i := s.top + y; i < len(rows) {
			s.drawRow(c, body.Y+y, rows[i])
		}
	}
	foot := c.Pen(widget.Rect{X: 0, Y: s.h - 1, W: s.w, H: 1})
	for _, k := range []struct{ key, does string }{
		{"↑↓", "evidence"},
		{"enter", "its line"},
		{"space", "page"},
		{"q", "quit"},
	} {
		foot.Put(themes.Key, widget.Arrows(k.key, s.ascii)).Space(1).Put(themes.Dim, k.does).Space(2)
	}
	if below := len(rows) - s.top - body.H; below > 0 {
		foot.Putf(themes.Dim, "%d more lines", below)
	}
	return c.String()
}

func (s *Screen) drawRow(c *widget.Canvas, y int, r row) {
	if r.chart == nil {
		role := r.role
		if r.item >= 0 && r.item == s.at {
			role = themes.Selected
		}
		c.Text(0, y, s.w, r.text, s.pal.Style(role))
		return
	}
	values, onset := r.chart.columns(s.w)
	whole := widget.NewCanvas(s.w, chartRows, s.pal, s.ascii)
	style := func(i int) themes.Style {
		if onset >= 0 && i >= onset {
			return s.pal.Style(themes.Warn)
		}
		return s.pal.Style(themes.Text)
	}
	whole.Bars(
		widget.Rect{W: min(s.w, len(values)), H: chartRows},
		widget.Bars{Values: values, Cursor: -1, Style: style},
	)
	for x := range s.w { // a chart may be seen in part
		cell := whole.At(x, r.part)
		c.Set(x, y, cell.R, cell.S)
	}
}

// keepInSight scrolls so that the evidence under the cursor is seen, where there is any.
func (s *Screen) keepInSight(rows []row, h int) {
	if s.follow {
		first, last := -1, -1
		for i, r := range rows {
			if r.item == s.at && s.at >= 0 {
				if last = i; first < 0 {
					first = i
				}
			}
		}
		if first >= 0 && last >= s.top+h {
			s.top = last - h + 1
		}
		if first >= 0 && first < s.top {
			s.top = first
		}
	}
	s.top = max(0, min(s.top, len(rows)-h))
}
