package overview

import (
	"fmt"
	"strings"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/statements"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// drawNow draws what is said first, then what stands behind it: who holds the job up, the incident,
// or what is known of ranks and agents.
func drawNow(c *widget.Canvas, r widget.Rect, s *page.State) {
	inc := s.Incident()
	detailed := inc != nil && (page.Open(inc) || page.Browses(s))
	right := ""
	if v := inc.GetVerdict(); detailed && v.GetConfidence() > 0 {
		right = fmt.Sprintf("confidence %.0f%%, severity %d of 4", 100*v.Confidence, v.Severity)
	}
	body := c.Rule(r, "NOW", right)
	lines, after := sayings(s, detailed)
	said, body := body.Rows(min(len(lines), max(1, body.H-detailLeast)))
	page.DrawLines(c, said, lines)
	switch h := s.Snap().GetHang(); {
	case h != nil:
		page.DrawLines(c, body, hangLines(s, h, body.W))
	case detailed:
		drawIncident(c, body, s, inc, after)
	default:
		drawCalm(c, body, s)
	}
}

// detailLeast is what is left for the detail below what is said first.
const detailLeast = 3

// sayings are the statements in lines: all of them, or those that the detail of an incident does
// not repeat and that are worth a look; after are those that come behind that incident.
func sayings(s *page.State, detailed bool) (before, after []page.Line) {
	passed := false
	for _, x := range page.Statements(s) {
		passed = passed ||
			detailed && x.Kind == statements.Incident && x.Incident.GetId() == s.Incident().GetId()
		// the detail has it
		own := x.IncidentID() == s.Incident().GetId() &&
			(x.Action == nil || x.Kind == statements.InForce)
		quiet := x.Severity <= statements.Plain &&
			x.Kind != statements.InForce &&
			x.Kind != statements.Fenced ||
			x.Kind == statements.Slow
		if detailed && (own || quiet) ||
			x.Kind == statements.Incident && s.Snap().GetHang() != nil {
			continue
		}
		line := page.Line{Text: page.Say(s, &x), Role: page.RoleOf(x.Severity)}
		if passed {
			after = append(after, line)
		} else {
			before = append(before, line)
		}
	}
	return before, after
}

// doingText is what is done about an incident beside what is said of it already: all that is in
// force for it, else what became of the last action; "" where what is said is all.
func doingText(s *page.State, inc *falconv1.Incident) string {
	var force []string
	said := false
	for _, x := range page.Statements(s) {
		switch {
		case x.Action == nil || x.IncidentID() != inc.GetId():
		case x.Kind == statements.InForce:
			force = append(force, page.Say(s, &x))
		default:
			said = true
		}
	}
	if len(force) > 0 || said {
		return strings.Join(force, "; ")
	}
	return page.Doing(s)
}

// drawIncident draws an incident with its evidence, and what is said after it.
func drawIncident(
	c *widget.Canvas,
	body widget.Rect,
	s *page.State,
	inc *falconv1.Incident,
	after []page.Line,
) {
	row, body := body.Rows(1)
	role := themes.Bad
	minor := falcon.IsMinor(inc.HealthyMs, inc.SlowMs)
	switch {
	case !page.Open(inc):
		role = themes.Good
	case minor:
		role = themes.Warn
	}
	c.Pen(row).Put(role, inc.Id+" "+inc.State).Put(themes.Title, "  "+phrase.Verdict(inc.Verdict))
	row, body = body.Rows(1)
	c.Pen(row).
		Put(themes.Text, spanText(s, inc, body.W < twoColumns)).
		Put(themes.Dim, costText(s, minor && page.Open(inc)))
	if v := feed.TriageOf(s.Snap(), inc.Id); v != nil {
		row, body = body.Rows(1)
		role := themes.Dim
		if phrase.Snoozed(v, s.EngineNow()) {
			role = themes.Warn
		}
		c.Pen(row).Put(role, phrase.Triage(v, s.EngineNow(), s.Zone))
	}
	if text := doingText(s, inc); text != "" {
		row, body = body.Rows(1)
		c.Pen(row).Put(themes.Accent, "→ ").Put(themes.Text, text)
	}
	if len(after) > 0 {
		rows, rest := body.Rows(min(len(after), body.H))
		page.DrawLines(c, rows, after)
		body = rest
	}
	if list := concernLines(s); len(list) > 0 && !roomForWatch(body) {
		row, body = body.Rows(1)
		text := list[0].Text
		if len(list) > 1 {
			text = fmt.Sprintf("%d things to watch: %s", len(list), text)
		}
		c.Pen(row).Put(list[0].Role, "▲ "+text)
	}
	past := ladder.PastLines(s, inc, body.W)
	evidence, below := body.Rows(body.H - min(len(past), body.H/3))
	lines := evidenceLines(s, inc, evidence)
	page.DrawLines(c, body, append(lines, past[:min(len(past), below.H)]...))
}

// roomForWatch reports whether concerns have a panel of their own beside NOW.
func roomForWatch(r widget.Rect) bool { return r.W >= twoColumns }

// spanText is since when the job is slow and by how much: by the clock, in short without the
// iterations, which are in the chart.
func spanText(s *page.State, inc *falconv1.Incident, short bool) string {
	since := phrase.Since(inc, s.EngineNow(), s.Zone)
	iterations := fmt.Sprintf("iteration %s, seen at %s",
		phrase.Iteration(inc.OnsetIteration), phrase.Iteration(inc.DetectedIteration))
	t := "slow since " + iterations
	switch {
	case inc.FromStart:
		t = "slow from the start"
	case since != "" && short:
		t = "slow since " + since
	case since != "":
		t = "slow since " + since + ", " + iterations
	}
	if inc.RelievedIteration >= 0 && !page.Open(inc) && !(short && since != "") {
		t += ", healthy from " + phrase.Iteration(inc.RelievedIteration)
	}
	return t + "; " + phrase.Slowdown(inc)
}

// costText is what the incident has cost; of a minor one also the rate, which says whether
// it is worth a look.
func costText(s *page.State, minor bool) string {
	l := s.Snap().GetLadder()
	if rate := 60 * l.GetLossPerMinuteGpuHours(); minor && rate > 0 {
		return fmt.Sprintf("; minor: %.2f GPU-h an hour, lost %.4f GPU-h", rate, l.LostGpuHours)
	}
	if l != nil {
		return fmt.Sprintf("; lost %s, %.4f GPU-h", phrase.Lost(l.ImpactMs), l.LostGpuHours)
	}
	return ""
}

// rankLines are how the ranks are laid out and how they do, or what to do about there being none.
func rankLines(s *page.State, r widget.Rect) []page.Line {
	if s.Roster.World() > 0 {
		heard := ""
		if page.Idle(s) { // what was measured says nothing of now
			heard = "when last heard "
		}
		return []page.Line{{
			Text: fmt.Sprintf("%d ranks: %s; %s%s",
				s.Roster.World(), layoutText(s), heard, s.Tally()),
			Role: themes.Text,
		}}
	}
	var out []page.Line
	for _, l := range widget.Wrap(phrase.Capital(page.NoRanks(s)), max(1, r.W)) {
		out = append(out, page.Line{Text: l, Role: themes.Accent})
	}
	return out[:min(len(out), max(0, r.H))]
}

// drawCalm draws what is known of ranks and agents, and the concerns.
func drawCalm(c *widget.Canvas, rest widget.Rect, s *page.State) {
	var row widget.Rect
	for _, l := range rankLines(s, rest) {
		row, rest = rest.Rows(1)
		c.Pen(row).Put(l.Role, l.Text)
	}
	row, rest = rest.Rows(1)
	c.Pen(row).Put(themes.Text, agentsText(s))
	for _, x := range concernLines(s) {
		row, rest = rest.Rows(1)
		c.Pen(row).Put(x.Role, "▲ "+x.Text)
	}
}
