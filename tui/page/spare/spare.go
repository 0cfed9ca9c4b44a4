// Package spare fills what a page leaves of a large screen, so that no box stands empty: the
// incident's evidence, the chosen rank's chart, what was named before, the newest events. It draws
// nothing where little is left, and nothing that the page above could need. Pure drawing; no I/O.
package spare

import (
	"fmt"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/events"
	"github.com/failslow/falcon/tui/page/posterior"
	"github.com/failslow/falcon/tui/widget"
)

// Rows from which on what is left is worth filling, and those of its parts.
const (
	Least      = 12
	chartLeast = 9
	eventsMost = 16
	namedMost  = 12
	sideBySide = 110 // columns
)

// Columns is how much of the series a page that fills its room needs in r.
func Columns(r widget.Rect) int {
	return max(1, r.W-posterior.LabelWidth)
}

// Below is what is left of r below what has been drawn in it; empty where that is too little.
func Below(c *widget.Canvas, r widget.Rect) widget.Rect {
	last := r.Y - 1
	for y := r.Y; y < r.Y+r.H; y++ {
		if !c.Blank(widget.Rect{X: r.X, Y: y, W: r.W, H: 1}) {
			last = y
		}
	}
	_, rest := r.Rows(last + 2 - r.Y) // a blank row between
	if rest.H < Least {
		return widget.Rect{}
	}
	return rest
}

// Fill fills r; evidence is left out by a page that shows it itself.
func Fill(c *widget.Canvas, r widget.Rect, s *page.State, evidence []page.Line) {
	if r.H < Least {
		return
	}
	if len(evidence) > 0 {
		var top widget.Rect
		top, r = r.Rows(min(1+len(evidence), r.H/2))
		page.DrawLines(
			c,
			c.Rule(top, "EVIDENCE "+s.Incident().GetId(), ""),
			evidence,
		)
	}
	tail := min(eventsMost, 1+max(1, len(s.Feed.Events)))
	chart := r.H - tail
	if chart >= chartLeast && len(s.Snap().GetSeries().GetMs()) > 0 {
		var top widget.Rect
		top, r = r.Rows(chart)
		posterior.Chart(c, top, s)
	}
	if named := len(s.Snap().GetCulprits()); named > 0 && r.W >= sideBySide {
		var left widget.Rect
		left, r = r.Columns(r.W * 3 / 5)
		_, r = r.Columns(1)
		Named(c, r, s)
		r = left
	}
	events.Tail(c, r, s)
}

// Named lists what incidents have named so far, highest score first.
func Named(c *widget.Canvas, r widget.Rect, s *page.State) {
	page.DrawLines(c, c.Rule(r, "NAMED BEFORE", ""), NamedLines(s))
}

// NamedLines are the lines of Named.
func NamedLines(s *page.State) []page.Line {
	list := s.Snap().GetCulprits()
	var out []page.Line
	for _, x := range list[:min(len(list), namedMost)] {
		text := page.CulpritName(x) + ": culprit of " + s.CulpritAgo(x)
		if n := x.GetTimes(); n > 1 {
			text += fmt.Sprintf(", %d times", n)
		}
		out = append(out, page.Line{Text: text, Role: themes.Text})
	}
	return out
}
