package overview

import (
	"slices"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/events"
	"github.com/failslow/falcon/tui/page/grid"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/page/posterior"
	"github.com/failslow/falcon/tui/page/ranks"
	"github.com/failslow/falcon/tui/page/recovery"
	"github.com/failslow/falcon/tui/page/spare"
	"github.com/failslow/falcon/tui/report"
	"github.com/failslow/falcon/tui/widget"
)

// Rows of NOW on a large screen, and of the events below at least.
const (
	nowLeast  = 7
	nowMost   = 14
	tailRows  = 8
	tallTails = 16 // of a job of few ranks, whose table leaves the room
	heatLeast = 8
)

// drawThreeColumns has everything: ranks and suspects; grid, chart and posterior; ladder, what
// the step would do, what else to watch, and what there is of recovery, tests and the past. What
// would be empty gives its room to the others.
func drawThreeColumns(c *widget.Canvas, r widget.Rect, s *page.State) {
	few := s.Roster.World() < page.Few
	top, rest := r.Rows(nowRows(s, r.W))
	drawNow(c, top, s)
	tail := tailRows
	if few {
		tail = min(tallTails, max(tailRows, len(s.Feed.Events)+1))
	}
	body, below := rest.Rows(rest.H - tail)
	left, body := cutColumns(body, body.W*34/100)
	middle, right := cutColumns(body, body.W*53/100)
	heat := drawRankColumn(c, left, s, few)
	g, middle := middle.Rows(min(middle.H/3, s.PP+4))
	grid.Table(c, g, s)
	middle, strip := middle.Rows(middle.H - stripRows)
	if heat.Empty() {
		middle, heat = middle.Rows(max(middle.H*2/5, middle.H-heatMost))
	}
	posterior.Chart(c, middle, s)
	posterior.Heat(c, heat, s)
	posterior.Strip(c, strip, s)
	drawActionColumn(c, right, s)
	drawTails(c, below, s)
}

// nowRows is the room that NOW needs, evidence and past of an incident included.
func nowRows(s *page.State, w int) int {
	rows := nowLeast
	if inc := s.Incident(); inc != nil {
		rows = 5 + len(ladder.EvidenceLines(inc.GetVerdict(), w)) + len(ladder.PastLines(s, inc, w))
	}
	return max(nowLeast, min(nowMost, rows))
}

// drawRankColumn is a table of few ranks with the worst one's details, else the map and the
// suspects, where there are any. It returns what is left for the posterior.
func drawRankColumn(c *widget.Canvas, r widget.Rect, s *page.State, few bool) widget.Rect {
	if few {
		ranks.List(c, r, s)
		_, rest := r.Rows(ranks.ListRows(s))
		if rest.H < heatLeast {
			return widget.Rect{}
		}
		return rest
	}
	suspects := 0
	if n := len(s.Anomalies()); n > 0 {
		suspects = min(r.H/3, n+3)
	}
	m, rest := r.Rows(r.H - suspects)
	ranks.Map(c, m, s)
	if suspects > 0 {
		drawSuspects(c, rest, s)
	}
	return widget.Rect{}
}

// drawActionColumn stacks what can be done, what else to watch, and what is known besides; each
// part takes what it needs, the last the rest.
func drawActionColumn(c *widget.Canvas, r widget.Rect, s *page.State) {
	if n := len(s.Snap().GetLadder().GetRungs()); n > 0 {
		var l widget.Rect
		l, r = r.Rows(min(r.H/3, max(4, n+2)))
		ladder.Rungs(c, l, s, -1)
		r = drawSection(c, r, "THE STEP", stepLines(s, r.W))
	}
	k, r := r.Rows(min(r.H, keyRows))
	drawKeys(c, k, s)
	w, r := r.Rows(min(r.H, watchRows(s, r.W)+1))
	drawWatch(c, w, s)
	if v := s.Snap().GetRecovery(); v != nil {
		r = drawSection(
			c,
			r,
			"RECOVERY "+v.Id+" "+v.State,
			recovery.Details(s, v, r.W),
		)
	}
	if v := s.Snap().GetValidation(); v.GetId() != "" {
		text := report.Headline(report.ValidationOf(v))
		if page.Underway(v) {
			text = "it is " + v.State
		}
		r = drawSection(c, r, "TEST "+v.Id, wrapped(text, r.W))
	}
	r = drawSection(c, r, "NAMED BEFORE", spare.NamedLines(s))
	r = drawSection(c, r, "IF IT FAILED NOW", recovery.ExposureLines(s))
	drawSection(c, r, "AGENTS", agentLines(s))
}

// drawSection draws lines below a title where there are any, and returns what is left; a blank
// row follows.
func drawSection(c *widget.Canvas, r widget.Rect, title string, lines []page.Line) widget.Rect {
	if len(lines) == 0 || r.H < 2 {
		return r
	}
	top, rest := r.Rows(min(r.H, 1+len(lines)))
	page.DrawLines(c, c.Rule(top, title, ""), lines)
	_, rest = rest.Rows(1)
	return rest
}

func wrapped(text string, w int) []page.Line {
	var out []page.Line
	for _, l := range widget.Wrap(text, max(1, w)) {
		out = append(out, page.Line{Text: l, Role: themes.Text})
	}
	return out
}

// stepLines are what the step that waits, or comes next, would do.
func stepLines(s *page.State, w int) []page.Line {
	if !page.Open(s.Incident()) {
		return nil
	}
	rungs := s.Snap().GetLadder().GetRungs()
	if a := s.Awaited(); a != nil {
		for _, g := range rungs {
			if g.Rung == a.Rung && g.Variant == a.Variant {
				return wrapped(ladder.Explain(g, w), w)
			}
		}
	}
	for _, g := range rungs {
		if g.Next {
			return wrapped(ladder.Explain(g, w), w)
		}
	}
	return nil
}

// agentLines are the nodes' agents, those that are lost first.
func agentLines(s *page.State) []page.Line {
	nodes := slices.Clone(s.Snap().GetNodes())
	var lost, fine []page.Line
	for _, n := range nodes {
		line := page.Line{Text: page.AgentText(s, n.GetNode()), Role: themes.Text}
		if n.GetConnected() {
			fine = append(fine, line)
			continue
		}
		line.Role = themes.Bad
		lost = append(lost, line)
	}
	return append(lost, fine...)
}

// drawTails has the newest events, and who did what where anybody has.
func drawTails(c *widget.Canvas, r widget.Rect, s *page.State) {
	audited := slices.ContainsFunc(s.Feed.Events, events.IsAudit)
	if !audited {
		events.Tail(c, r, s)
		return
	}
	left, right := cutColumns(r, r.W*55/100)
	events.Tail(c, left, s)
	events.AuditTail(c, right, s)
}
