package overview

import (
	"fmt"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// drawNow draws who holds the job up, else the incident, or that there is none.
func drawNow(c *widget.Canvas, r widget.Rect, s *page.State) {
	if h := s.Snap().GetHang(); h != nil {
		drawHang(c, r, s, h)
		return
	}
	inc := s.Incident()
	if inc == nil {
		drawCalm(c, c.Rule(r, "NOW", ""), s)
		return
	}
	right := ""
	if v := inc.Verdict; v != nil {
		right = fmt.Sprintf("confidence %.0f%%, severity %d of 4", 100*v.Confidence, v.Severity)
	}
	body := c.Rule(r, "NOW", right)
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
	c.Pen(row).Put(themes.Text, spanText(s, inc, r.W < twoColumns)).Put(themes.Dim, costText(s, minor && page.Open(inc)))
	if v := feed.TriageOf(s.Snap(), inc.Id); v != nil {
		row, body = body.Rows(1)
		role := themes.Dim
		if phrase.Snoozed(v, s.EngineNow()) {
			role = themes.Warn
		}
		c.Pen(row).Put(role, phrase.Triage(v, s.EngineNow(), s.Zone))
	}
	doing, body := body.Rows(1)
	c.Pen(doing).Put(themes.Accent, "→ ").Put(themes.Text, page.Doing(s))
	if list := concernLines(s); len(list) > 0 && !roomForWatch(r) {
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
	iterations := fmt.Sprintf("iteration %s, seen at %s", phrase.Iteration(inc.OnsetIteration), phrase.Iteration(inc.DetectedIteration))
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
		return fmt.Sprintf("; lost %s, %.4f GPU-h", phrase.Ms(l.ImpactMs), l.LostGpuHours)
	}
	return ""
}

// rankLines are how the ranks are laid out and how they do, or what to do about there being none.
func rankLines(s *page.State, r widget.Rect) []page.Line {
	if s.Roster.World() > 0 {
		return []page.Line{{Text: fmt.Sprintf("%d ranks: %s; %s", s.Roster.World(), layoutText(s), s.Tally()), Role: themes.Text}}
	}
	var out []page.Line
	for _, l := range widget.Wrap(phrase.Capital(page.NoRanks(s)), max(1, r.W)) {
		out = append(out, page.Line{Text: l, Role: themes.Accent})
	}
	return out[:min(len(out), max(0, r.H))]
}

// standingFaults are what the recovery that is under way is about, or "".
func standingFaults(s *page.State) string {
	if v := s.Recovering(); v != nil {
		return phrase.Faults(v.GetFaults())
	}
	return ""
}

// pastRecovery is how the newest recovery ended, or "".
func pastRecovery(s *page.State) string {
	v := s.Snap().GetRecovery()
	if v == nil || s.Recovering() != nil {
		return ""
	}
	return fmt.Sprintf("%s (%s) %s", v.Id, phrase.Faults(v.GetFaults()), s.RecoverySummary(v))
}

// drawCalm shows that all is well or what is awaited, and the concerns.
func drawCalm(c *widget.Canvas, r widget.Rect, s *page.State) {
	job := s.Snap().GetJob()
	row, rest := r.Rows(1)
	switch falcon.JobState(job.GetState()) {
	case "":
		c.Pen(row).Put(themes.Title, "nothing received yet")
	case falcon.JobLearning:
		c.Pen(row).Put(themes.Accent, "learning the healthy iteration time").Putf(themes.Dim, "  iteration %s", phrase.Iteration(job.Iteration))
	case falcon.JobSteady:
		c.Pen(row).Put(themes.Good, "steady: ").Putf(themes.Text, "no incident so far; %s an iteration, baseline %s", phrase.Ms(job.IterationMs), phrase.Ms(job.BaselineMs))
	case falcon.JobRecovering, falcon.JobRestarting, falcon.JobLost:
		c.Pen(row).Put(themes.Bad, "nothing trains: ").Put(themes.Title, job.State).Put(themes.Text, phrase.Prefixed(": ", standingFaults(s)))
	default:
		c.Pen(row).Put(themes.Title, job.State)
	}
	if text := pastRecovery(s); text != "" {
		row, rest = rest.Rows(1)
		c.Pen(row).Put(themes.Text, text)
	}
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
