// Package overview draws what an engineer who has just been called needs at
// once: what is wrong and where, since when, at what cost, what is being done,
// and the pictures that prove it. Pure drawing; no I/O.
package overview

import (
	"fmt"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/events"
	"github.com/failslow/falcon/tui/page/grid"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/page/posterior"
	"github.com/failslow/falcon/tui/page/ranks"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// Page is the overview.
type Page struct{}

// New makes the page.
func New() *Page { return &Page{} }

// autoZoom lets the map choose.
const autoZoom = -1

// Breakpoints, in columns and rows of the body.
const (
	twoColumns   = 110
	threeColumns = 170
	tall         = 45
)

// Want asks for the chart's columns.
func (p *Page) Want(r widget.Rect) (columns, runLengths int) { return max(1, r.W-7), 0 }

// Act has nothing to move.
func (p *Page) Act(key.Action, *page.State, widget.Rect) key.Scope { return "" }

// Draw chooses by size: one column, two, or three.
func (p *Page) Draw(c *widget.Canvas, r widget.Rect, s *page.State) {
	switch {
	case r.W >= threeColumns && r.H >= tall:
		three(c, r, s)
	case r.W >= twoColumns && r.H >= 28:
		two(c, r, s)
	default:
		one(c, r, s)
	}
}

func one(c *widget.Canvas, r widget.Rect, s *page.State) {
	nowRows := min(7, r.H/2)
	top, rest := r.Rows(nowRows)
	now(c, top, s)
	mapRows := max(3, min(rest.H/3, ranks.Rows(widget.Rect{W: r.W, H: rest.H / 3}, s)+1))
	chart, rest := rest.Rows(max(4, rest.H-mapRows-3))
	posterior.Chart(c, chart, s)
	m, rest := rest.Rows(mapRows)
	ranks.Map(c, m, s, autoZoom)
	if rest.H >= 2 {
		events.Tail(c, rest, s)
	}
}

func two(c *widget.Canvas, r widget.Rect, s *page.State) {
	top, rest := r.Rows(10)
	now(c, top, s)
	middle, tail := rest.Rows(rest.H - 6)
	left, right := gap(middle, middle.W*55/100)
	chart, strip := left.Rows(left.H - 4)
	posterior.Chart(c, chart, s)
	posterior.Strip(c, strip, s)
	m, g := right.Rows(right.H - min(right.H/2, s.PP+4))
	ranks.Map(c, m, s, autoZoom)
	grid.Table(c, g, s)
	events.Tail(c, tail, s)
}

func three(c *widget.Canvas, r widget.Rect, s *page.State) {
	top, rest := r.Rows(12)
	now(c, top, s)
	left, rest := gap(rest, rest.W*36/100)
	m, g := left.Rows(left.H - min(left.H/2, s.PP+4))
	ranks.Map(c, m, s, autoZoom)
	grid.Table(c, g, s)
	middle, right := gap(rest, rest.W*52/100)
	chart, strip := middle.Rows(middle.H - 8)
	posterior.Chart(c, chart, s)
	posterior.Strip(c, strip, s)
	l, tail := right.Rows(min(right.H/2, len(s.Snap().GetLadder().GetRungs())+3))
	ladder.Rungs(c, l, s, -1)
	events.Tail(c, tail, s)
}

// gap cuts n columns off the left and leaves one column between.
func gap(r widget.Rect, n int) (left, right widget.Rect) {
	left, right = r.Columns(n)
	_, right = right.Columns(1)
	return left, right
}

// now tells the incident, or that there is none.
func now(c *widget.Canvas, r widget.Rect, s *page.State) {
	inc := s.Incident()
	if inc == nil {
		calm(c, c.Rule(r, "NOW", ""), s)
		return
	}
	right := ""
	if v := inc.Verdict; v != nil {
		right = fmt.Sprintf("confidence %.0f%%, severity %d of 4", 100*v.Confidence, v.Severity)
	}
	body := c.Rule(r, "NOW", right)
	row, body := body.Rows(1)
	role := themes.Bad
	if !page.Open(inc) {
		role = themes.Good
	}
	c.Pen(row).Put(role, inc.Id+" "+inc.State).Put(themes.Title, "  "+phrase.Verdict(inc.Verdict))
	row, body = body.Rows(1)
	c.Pen(row).Put(themes.Text, span(inc)).Put(themes.Dim, cost(s))
	doing, body := body.Rows(1)
	c.Pen(doing).Put(themes.Accent, "→ ").Put(themes.Text, page.Doing(s))
	for i, l := range ladder.EvidenceLines(inc.Verdict, body.W) {
		if i >= body.H {
			break
		}
		c.Text(body.X, body.Y+i, body.W, l.Text, c.Pal.Style(l.Role))
	}
}

func span(inc *falconv1.Incident) string {
	t := fmt.Sprintf("slow since iteration %s, seen at %s", phrase.Iteration(inc.OnsetIteration), phrase.Iteration(inc.DetectedIteration))
	if inc.FromStart {
		t = "slow from the start"
	}
	if inc.RelievedIteration >= 0 && !page.Open(inc) {
		t += ", healthy again from " + phrase.Iteration(inc.RelievedIteration)
	}
	return t + fmt.Sprintf("; %s → %s (%s)", phrase.Ms(inc.HealthyMs), phrase.Ms(inc.SlowMs), phrase.Change(inc.HealthyMs, inc.SlowMs))
}

func cost(s *page.State) string {
	if l := s.Snap().GetLadder(); l != nil {
		return fmt.Sprintf("; lost %s, %.4f GPU-h", phrase.Ms(l.ImpactMs), l.LostGpuHours)
	}
	return ""
}

func calm(c *widget.Canvas, r widget.Rect, s *page.State) {
	job := s.Snap().GetJob()
	row, rest := r.Rows(1)
	switch job.GetState() {
	case "":
		c.Pen(row).Put(themes.Dim, "nothing received yet")
	case "learning":
		c.Pen(row).Put(themes.Accent, "learning the healthy iteration time").Putf(themes.Dim, "  iteration %s", phrase.Iteration(job.Iteration))
	case "steady":
		c.Pen(row).Put(themes.Good, "steady: ").Putf(themes.Text, "no incident so far; %s an iteration, baseline %s", phrase.Ms(job.IterationMs), phrase.Ms(job.BaselineMs))
	default:
		c.Pen(row).Put(themes.Title, job.State)
	}
	row, rest = rest.Rows(1)
	c.Pen(row).Putf(themes.Text, "%d ranks: tp %d × dp %d × pp %d; %s", len(s.Ranks), s.TP, s.DP, s.PP, s.Tally())
	row, rest = rest.Rows(1)
	connected := 0
	for _, n := range s.Snap().Nodes {
		if n.Connected {
			connected++
		}
	}
	c.Pen(row).Putf(themes.Text, "%d of %d agents connected", connected, len(s.Snap().Nodes))
	if job.GetAlarm() != "" {
		c.Paragraph(rest, job.Alarm, c.Pal.Style(themes.Warn))
	}
}
