package recovery

import (
	"fmt"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

const dim = themes.Dim

// in are the phases of a state; groups and restore are distinguished only at the end.
var in = map[falcon.RecoveryState][]string{
	falcon.RecoveryProposed: {falcon.PhaseDecide},
	falcon.RecoverySuspend:  {falcon.PhaseSuspend, falcon.PhaseFence},
	falcon.RecoveryReplace:  {falcon.PhaseReplace},
	falcon.RecoveryTable:    {falcon.PhaseTable},
	falcon.RecoveryCollect:  {falcon.PhaseCollect},
	falcon.RecoveryRejoin:   {falcon.PhaseGroups, falcon.PhaseRestore, falcon.PhaseResume},
}

// phaseRowsOf is the row of the present phase and their number; none when it is over.
func phaseRowsOf(v *falconv1.Recovery) (row, n int) {
	now := in[falcon.RecoveryState(v.GetState())]
	for i, name := range phrase.Phases {
		if len(now) > 0 && name == now[0] {
			return i, len(now)
		}
	}
	return len(phrase.Phases), 0
}

// drawPhases draws the table; where not all rows fit, those around the present.
func drawPhases(c *widget.Canvas, r widget.Rect, s *page.State, v *falconv1.Recovery) {
	head, body := r.Rows(1)
	c.Pen(head).Putf(dim, "  %-10s%10s%12s", "phase", "predicted", "actual")
	now, n := phaseRowsOf(v)
	rows := max(0, body.H-1)
	from := 0
	if rows < len(phrase.Phases) {
		from = max(0, min(now-rows/2, len(phrase.Phases)-rows))
	}
	line := rows > len(phrase.Phases)
	for i := from; i < len(phrase.Phases) && i-from < rows; i++ {
		if line && phrase.Phases[i] == noReturn {
			row, rest := body.Rows(1)
			body = rest
			drawNoReturn(c, row, v)
		}
		row, rest := body.Rows(1)
		body = rest
		drawPhase(c, row, s, v, phrase.Phases[i], i >= now && i < now+n, i == now)
	}
	drawTotal(c, body, s, v)
}

// noReturn is the first phase that can't be taken back: rejoin has been ordered.
const noReturn = falcon.PhaseGroups

// drawNoReturn draws the line between what can be aborted and what can't.
func drawNoReturn(c *widget.Canvas, r widget.Rect, v *falconv1.Recovery) {
	text := "──── no return from here ────"
	role := themes.Warn
	switch {
	case v.GetNoReturn():
		text = "──── no return: passed ──────"
		role = dim
	case !feed.Recovering(v):
		role = dim
	}
	c.Pen(r).Put(role, "  "+text)
}

func drawPhase(
	c *widget.Canvas,
	r widget.Rect,
	s *page.State,
	v *falconv1.Recovery,
	name string,
	present, clock bool,
) {
	pen := c.Pen(r)
	role := themes.Text
	mark := "  "
	actual, known := v.GetPhasesMs()[name]
	switch {
	case present:
		pen = c.SelectedPen(r)
		role = themes.Selected
		mark = "▸ "
	case !known:
		role = dim
	}
	text := spanText(actual)
	switch {
	case clock:
		text = spanText(actual+s.Running(v)) + "…"
	case !known && name == falcon.PhaseFence:
		text = "in suspend"
	case !known:
		text = "—"
	}
	shown := name
	if name == noReturn {
		shown += " !"
	}
	pen.Putf(role, "%s%-10s%10s%12s", mark, shown, predicted(v, name), text)
}

func predicted(v *falconv1.Recovery, name string) string {
	if ms, ok := v.GetPredictedMs()[name]; ok {
		return spanText(ms)
	}
	return "—"
}

// spanText describes a phase that took no time as such, unlike Ms.
func spanText(ms float64) string {
	if ms >= 0 && ms < 0.05 {
		return "0 ms"
	}
	return phrase.Ms(ms)
}

// drawTotal adds up; where the recovery is not over the time runs.
func drawTotal(c *widget.Canvas, r widget.Rect, s *page.State, v *falconv1.Recovery) {
	sum := 0.0
	for _, name := range phrase.Phases {
		sum += v.GetPredictedMs()[name]
	}
	ms := page.Took(v)
	dots := ""
	if feed.Recovering(v) {
		ms = s.Running(v)
		dots = "…"
		for _, x := range v.GetPhasesMs() {
			ms += x
		}
	}
	c.Pen(r).Put(themes.Title, fmt.Sprintf("  %-10s%10s%12s",
		"total", phrase.Ms(sum), phrase.Ms(ms)+dots))
}
