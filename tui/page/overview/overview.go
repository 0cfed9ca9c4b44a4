// Package overview draws what an engineer who has just been called needs at
// once: what is wrong and where, since when, at what cost, what is being done,
// and the pictures that prove it. Pure drawing; no I/O.
package overview

import (
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/events"
	"github.com/failslow/falcon/tui/page/grid"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/page/posterior"
	"github.com/failslow/falcon/tui/page/ranks"
	"github.com/failslow/falcon/tui/widget"
)

// Page is the overview.
type Page struct{}

// New makes the page.
func New() *Page { return &Page{} }

// Breakpoints, in columns and rows of the body.
const (
	twoColumns   = 110
	twoRows      = 28
	threeColumns = 170
	tall         = 45
)

// labels is what a chart keeps for its axis.
const labels = 7

// Rows of the strip, and of the posterior at most: it has no more bins.
const (
	stripRows = 4
	heatMost  = 13
)

// IsLarge reports whether all of the page is drawn.
func IsLarge(r widget.Rect) bool {
	return r.W >= threeColumns && r.H >= tall
}

// Want asks for the chart's columns, and for the posterior where it is drawn.
func (p *Page) Want(r widget.Rect) (columns, runLengths int) {
	if IsLarge(r) {
		runLengths = posterior.RunLengths
	}
	return max(1, r.W-labels), runLengths
}

// Act has nothing to move.
func (p *Page) Act(key.Action, *page.State, widget.Rect) key.Scope {
	return ""
}

// Panes are the parts that can fill the page alone.
func (p *Page) Panes(*page.State) []page.Pane {
	return []page.Pane{
		{Name: "now", Draw: drawNow},
		{
			Name: "iteration time",
			Draw: func(c *widget.Canvas, r widget.Rect, s *page.State) {
				chart, strip := r.Rows(r.H - 5)
				posterior.Chart(c, chart, s)
				posterior.Strip(c, strip, s)
			},
		},
		{Name: "ranks", Draw: ranks.Map},
		{Name: "grid", Draw: grid.Table},
		{
			Name: "ladder",
			Draw: func(c *widget.Canvas, r widget.Rect, s *page.State) {
				ladder.Rungs(c, r, s, -1)
			},
		},
		{Name: "events", Draw: events.Tail},
	}
}

// Draw chooses by size: one column, two, or three.
func (p *Page) Draw(c *widget.Canvas, r widget.Rect, s *page.State) {
	switch {
	case IsLarge(r):
		drawThreeColumns(c, r, s)
	case r.W >= twoColumns && r.H >= twoRows:
		drawTwoColumns(c, r, s)
	default:
		drawOneColumn(c, r, s)
	}
}

// drawOneColumn is what matters now, the chart, the map, and the newest events.
func drawOneColumn(c *widget.Canvas, r widget.Rect, s *page.State) {
	nowRows := min(7, r.H/2)
	top, rest := r.Rows(nowRows)
	drawNow(c, top, s)
	mapRows := max(3, min(rest.H/3, ranks.Rows(widget.Rect{W: r.W, H: rest.H / 3}, s)+1))
	chart, rest := rest.Rows(max(4, rest.H-mapRows-3))
	posterior.Chart(c, chart, s)
	m, rest := rest.Rows(mapRows)
	ranks.Map(c, m, s)
	if rest.H >= 2 {
		events.Tail(c, rest, s)
	}
}

// drawTwoColumns has the map and the chart with its strip on the left; grid, suspects and
// what else to watch on the right; events below.
func drawTwoColumns(c *widget.Canvas, r widget.Rect, s *page.State) {
	top, rest := r.Rows(mediumNowRows(s))
	drawNow(c, top, s)
	middle, tail := rest.Rows(rest.H - 5)
	left, right := cutColumns(middle, middle.W*56/100)
	mapRows := max(4, min(left.H*2/5, ranks.Rows(widget.Rect{W: left.W, H: left.H * 2 / 5}, s)+1))
	m, left := left.Rows(mapRows)
	ranks.Map(c, m, s)
	chart, strip := left.Rows(left.H - 3)
	posterior.Chart(c, chart, s)
	posterior.Strip(c, strip, s)
	g, right := right.Rows(min(right.H/2, s.PP+3))
	grid.Table(c, g, s)
	sus, right := right.Rows(max(4, right.H-watchRows(s, right.W)))
	if spare := sus.H - keyRows - suspectRows(s); spare >= 0 {
		var keys widget.Rect
		sus, keys = sus.Rows(sus.H - keyRows)
		drawKeys(c, keys, s)
	}
	drawSuspects(c, sus, s)
	drawWatch(c, right, s)
	events.Tail(c, tail, s)
}

// keyRows is the room for the keys of the situation, with title and a blank row.
const keyRows = page.SituationMost + 2

// drawKeys lists the keys that are needed first now.
func drawKeys(c *widget.Canvas, r widget.Rect, s *page.State) {
	body := c.Rule(r, "KEYS NOW", "")
	for _, b := range page.Situation(s, key.Overview) {
		var row widget.Rect
		row, body = body.Rows(1)
		c.Pen(row).
			Putf(themes.Key, "%-7s", b.Help().Key).
			Put(themes.Text, widget.Cut(page.InShort(b), max(0, row.W-7)))
	}
}

// suspectRows is the room that the suspects need at least, with title, heading and a blank row.
func suspectRows(s *page.State) int {
	return 3 + min(suspectsLeast, len(s.Anomalies()))
}

// suspectsLeast is how many suspects come before the keys.
const suspectsLeast = 4

// mediumNowRows is the room of NOW beside two columns: more where more is said, so that evidence stays.
func mediumNowRows(s *page.State) int {
	const usual, most = 9, 12
	inc := s.Incident()
	if inc == nil || !page.Open(inc) && !page.Browses(s) {
		return usual
	}
	before, after := sayings(s, true)
	return max(usual, min(most, usual+len(before)+len(after)-1))
}

// cutColumns cuts n columns off the left and leaves one column between.
func cutColumns(r widget.Rect, n int) (left, right widget.Rect) {
	left, right = r.Columns(n)
	_, right = right.Columns(1)
	return left, right
}
