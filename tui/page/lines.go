package page

import (
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/widget"
)

// Line is one row of wrapped text with its role.
type Line struct {
	Text string
	Role themes.Role
}

// DrawLines draws as many lines as fit in r.
func DrawLines(c *widget.Canvas, r widget.Rect, lines []Line) {
	for i, l := range lines[:min(len(lines), max(0, r.H))] {
		c.Text(r.X, r.Y+i, r.W, l.Text, c.Pal.Style(l.Role))
	}
}

// Scroll is a list's first row on screen; the zero Scroll is at the top.
type Scroll struct{ first int }

// Act scrolls by a part of a page of h rows, and reports whether the action does that.
func (s *Scroll) Act(a key.Action, h int) bool {
	switch a {
	case key.PageUp:
		s.first = max(0, s.first-max(1, h/4))
	case key.PageDown:
		s.first += max(1, h/4)
	default:
		return false
	}
	return true
}

// First is the first of n rows shown where h fit.
func (s *Scroll) First(n, h int) int {
	s.first = max(0, min(s.first, n-max(1, h)))
	return s.first
}

// Rows draws the rows of a list that fit in r; the last row counts the hidden ones.
func (s *Scroll) Rows(c *widget.Canvas, r widget.Rect, n int, draw func(row widget.Rect, i int)) {
	first := s.First(n, r.H)
	hidden := n - first - r.H
	for i := range min(r.H, n-first) {
		row := widget.Rect{X: r.X, Y: r.Y + i, W: r.W, H: 1}
		if i == r.H-1 && hidden > 0 && r.H > 1 {
			c.Pen(row).Putf(themes.Dim, "… %d more, ctrl-d", hidden+1)
			return
		}
		draw(row, first+i)
	}
}

// NoSeries is a part of pages that draw no series.
type NoSeries struct{}

// Want asks for no series.
func (NoSeries) Want(widget.Rect) (columns, runLengths int) { return 1, 0 }
