// Package ladder draws the mitigation ladder of the present incident: what
// each rung costs and gains, why it is or is not taken, the evidence of the
// verdict, and the actions so far with predicted against measured times.
// Pure drawing; no I/O.
package ladder

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// Page is the ladder page.
type Page struct {
	page.NoSeries
	of     string // the incident that the next ones are about
	rung   int    // row under the cursor
	moved  bool   // the operator has moved; until then the cursor stays on what matters
	scroll page.Scroll
}

// New makes the page.
func New() *Page { return &Page{} }

// Act steps through the rungs and scrolls.
func (p *Page) Act(a key.Action, s *page.State, r widget.Rect) key.Scope {
	n := len(s.Snap().GetLadder().GetRungs())
	switch a {
	case key.Up:
		p.stepCursor(s, -1, n)
	case key.Down:
		p.stepCursor(s, +1, n)
	default:
		p.scroll.Act(a, r.H)
	}
	return ""
}

func (p *Page) stepCursor(s *page.State, by, n int) {
	if n == 0 {
		return
	}
	p.rung = max(0, min(n-1, p.cursorRung(s)+by))
	p.moved = true
}

// Point puts the cursor on a rung.
func (p *Page) Point(t widget.Target, s *page.State) {
	if t.Kind == widget.TargetRow {
		p.stepCursor(
			s,
			int(t.N)-p.cursorRung(s),
			len(s.Snap().GetLadder().GetRungs()),
		)
	}
}

// cursorRung is the row chosen by the operator, else the proposal's, else the rung in force.
func (p *Page) cursorRung(s *page.State) int {
	if id := s.Snap().GetLadder().GetIncident(); id != p.of { // a choice among another's rungs says nothing
		p.of = id
		p.moved = false
		p.scroll = page.Scroll{}
	}
	rungs := s.Snap().GetLadder().GetRungs()
	if p.moved {
		return max(0, min(len(rungs)-1, p.rung))
	}
	if prop := s.Awaited(); prop != nil {
		i := slices.IndexFunc(rungs, func(r *falconv1.RungView) bool {
			return r.Rung == prop.Rung && r.Variant == prop.Variant
		})
		if i >= 0 {
			return i
		}
	}
	return max(0, slices.IndexFunc(rungs, func(r *falconv1.RungView) bool { return r.Current }))
}

// Draw draws rungs, the chosen rung's reason, evidence and actions.
func (p *Page) Draw(c *widget.Canvas, r widget.Rect, s *page.State) {
	l := s.Snap().GetLadder()
	if l == nil || len(l.Rungs) == 0 {
		body := c.Rule(r, "LADDER", "")
		c.Pen(body).Put(themes.Dim, "no incident: nothing to mitigate")
		return
	}
	rest := Rungs(c, r, s, p.cursorRung(s))
	rest = automatic(c, rest, s)
	if rest.W >= sideW {
		left, right := rest.Columns(rest.W * 11 / 20)
		left.W -= 2
		left = p.drawReason(c, left, s, l)
		p.drawEvidence(c, left, s)
		right = drawBefore(c, right, s, l.Rungs[p.cursorRung(s)])
		drawActions(c, right, s, l)
		return
	}
	rest = p.drawReason(c, rest, s, l)
	rest = drawBefore(c, rest, s, l.Rungs[p.cursorRung(s)])
	n := actionRows(s, l, rest.H)
	evidence, actions := rest.Rows(rest.H - n)
	p.drawEvidence(c, evidence, s)
	drawActions(c, actions, s, l)
}

// Panes are the parts that can fill the page alone.
func (p *Page) Panes(s *page.State) []page.Pane {
	if len(s.Snap().GetLadder().GetRungs()) == 0 {
		return nil
	}
	return []page.Pane{
		{
			Name: "rungs",
			Draw: func(c *widget.Canvas, r widget.Rect, s *page.State) {
				rest := automatic(c, Rungs(c, r, s, p.cursorRung(s)), s)
				// an incident that is looked at may have none
				if l := s.Snap().GetLadder(); len(l.GetRungs()) > 0 {
					drawBefore(
						c,
						p.drawReason(c, rest, s, l),
						s,
						l.Rungs[p.cursorRung(s)],
					)
				}
			},
		},
		{Name: "evidence", Draw: p.drawEvidence},
		{
			Name: "actions",
			Draw: func(c *widget.Canvas, r widget.Rect, s *page.State) {
				drawActions(c, r, s, s.Snap().GetLadder())
			},
		},
	}
}

// sideW is the width from which on what changes is drawn beside what speaks for it.
const sideW = 150

// automatic returns in reverse video what acts without a person.
func automatic(c *widget.Canvas, r widget.Rect, s *page.State) widget.Rect {
	text := page.Auto(s)
	if text == "" {
		return r
	}
	row, rest := r.Rows(1)
	c.Pen(row).Space(1).Put(themes.Auto, " "+widget.Cut(text, max(0, row.W-4))+" ")
	return rest
}

// actionRows is the room for actions below the evidence: on a small screen none
// for what the rungs and the bar say already.
func actionRows(s *page.State, l *falconv1.Ladder, h int) int {
	if h < tightH && (len(l.Actions) == 0 || len(l.Actions) == 1 && s.Proposal() != nil) {
		return 0
	}
	rows := 0
	for _, a := range l.Actions {
		rows += len(ActionLines(s, a, 80))
	}
	return max(0, min(h/2, 1+max(2, rows)))
}

// tightH is the height below which evidence and actions don't both fit.
const tightH = 10

// Rungs draws title and table; cursor -1 marks none. It returns what is left.
func Rungs(c *widget.Canvas, r widget.Rect, s *page.State, cursor int) widget.Rect {
	l := s.Snap().GetLadder()
	title := "LADDER"
	if l.GetIncident() != "" {
		title += " " + l.Incident
		if inc := s.Incident(); inc.GetId() == l.Incident && r.W >= sinceW {
			title += phrase.Prefixed(" since ", phrase.Since(inc, s.EngineNow(), s.Zone))
		}
	}
	right := fmt.Sprintf("lost so far %s, %.4f GPU-h",
		phrase.Lost(l.GetImpactMs()), l.GetLostGpuHours())
	if rate := l.GetLossPerMinuteGpuHours(); rate > 0 && r.W >= wideW {
		right += fmt.Sprintf(", %.4f more a minute", rate)
	}
	body := c.Rule(r, title, right)
	row, body := body.Rows(1)
	cols := rungNameWidth(r.W)
	c.Pen(row).Put(themes.Dim, headingText(cols))
	for i, g := range l.GetRungs() {
		row, body = body.Rows(1)
		if !row.Empty() {
			c.Hit(row, widget.Target{Kind: widget.TargetRow, N: int64(i)})
			if i == cursor {
				c.Focus(row.X, row.Y)
			}
			drawRung(c, row, s, g, cols, i == cursor)
		}
	}
	return body
}

// sinceW is the width from which on the head line shows since when the job is slow.
const sinceW = 78

// wideW is the width from which on the head line shows the present loss too.
const wideW = 100

// Widths of a rung's name. Narrow screens shorten it and leave out the break-even, never the variant:
// the variants of S4 do different things.
const (
	narrowNameW = 12
	wideNameW   = 22
	narrowW     = 70 // below which the table is narrow
)

func rungNameWidth(w int) int {
	if w < narrowW {
		return narrowNameW
	}
	return wideNameW
}

func headingText(name int) string {
	return fmt.Sprintf("  %-*s%10s%10s%s%10s",
		name, "rung", "overhead", "gain/iter", evenText(name, "break-even"), "predicted")
}

// evenText is the column of the break-even, where there is room for one.
func evenText(name int, text string) string {
	if name < wideNameW {
		return ""
	}
	return fmt.Sprintf("%12s", text)
}

func drawRung(c *widget.Canvas, r widget.Rect, s *page.State, g *falconv1.RungView, name int, cursor bool) {
	pen := c.Pen(r)
	role := themes.Text
	if !g.Applicable {
		role = themes.Dim
	}
	mark := "  "
	if cursor {
		pen = c.SelectedPen(r)
		role = themes.Selected
		mark = "▸ "
	}
	label := fmt.Sprintf("%-*s", name, widget.Cut(g.Rung+" "+purposeOf(g), name))
	pen.Put(role, mark+label)
	if g.Applicable {
		even := "—"
		if g.BreakEven >= 0 && g.OverheadMs > 0 {
			even = phrase.Count(g.BreakEven) + " iter"
		}
		pen.Putf(role, "%10s%10s%s%10s",
			costText(g.OverheadMs), phrase.Ms(g.GainMs), evenText(name, even),
			phrase.Ms(g.PredictedMs))
	} else {
		pen.Put(role, "  not applicable")
	}
	drawStatus(pen, s, g)
}

// purposeOf is what a rung does: the variant's name says it best.
func purposeOf(g *falconv1.RungView) string {
	return cmp.Or(g.Variant, phrase.Rung(g.Rung))
}

// costText says "none" where a price of zero is meant, unlike Ms.
func costText(ms float64) string {
	if ms == 0 {
		return "none"
	}
	return phrase.Ms(ms)
}

func drawStatus(pen *widget.Pen, s *page.State, g *falconv1.RungView) {
	switch prop := s.Awaited(); {
	case page.Standing(s, prop) != "" &&
		prop.Rung == g.Rung &&
		prop.Variant == g.Variant:
		drawApproved(pen, s, prop)
	case prop != nil && prop.Rung == g.Rung && prop.Variant == g.Variant:
		pen.Space(2).Put(themes.Urgent, " PROPOSED ")
		if left, ok := page.Countdown(s, prop); ok && pen.Left() > 8 {
			pen.Space(1).Put(themes.Warn, phrase.Seconds(left))
		}
	case g.Current:
		pen.Space(2).Put(themes.Accent, "in force")
	case g.Applicable && g.Approval == falcon.ApprovalNever:
		pen.Space(2).Put(themes.Dim, "forbidden")
	case g.Applicable && g.Next && g.ClockMs > 0:
		pen.Space(2).Put(themes.Dim, dueText(g))
		now := s.EngineNow()
		text := ", " + phrase.Clock(now.Add(time.Duration(g.DueInMs*1e6)), now, s.Zone)
		if g.DueInMs > 0 && pen.Fits(text) {
			pen.Put(themes.Dim, text)
		}
	case g.Applicable && g.Next:
		pen.Space(2).Put(themes.Warn, "due")
	default:
		pen.Space(2).Put(themes.Dim, endedState(s.Snap().GetLadder(), g))
	}
}

// endedState is how the last action by a rung came to nothing, or "".
func endedState(l *falconv1.Ladder, g *falconv1.RungView) string {
	state := ""
	for _, a := range l.GetActions() {
		if a.Rung == g.Rung && a.Variant == g.Variant {
			state = a.State
		}
	}
	switch falcon.ActionState(state) {
	case falcon.ActionVetoed, falcon.ActionReverted, falcon.ActionRetained, falcon.ActionFailed:
		return state
	}
	return ""
}

// drawApproved marks the rung that was approved and has not gone out.
func drawApproved(pen *widget.Pen, s *page.State, a *falconv1.Action) {
	if phrase.Waits(a) {
		pen.Space(2).Put(themes.Urgent, " 1 OF 2 ")
		return
	}
	pen.Space(2).Put(themes.Urgent, " APPROVED ")
	if left, ok := page.GoesOut(s, a); ok && pen.Left() > 8 {
		pen.Space(1).Put(themes.Warn, phrase.Seconds(left))
	}
}

// reasonRows is the most that the chosen rung's explanation takes.
const reasonRows = 7

func (p *Page) drawReason(c *widget.Canvas, r widget.Rect, s *page.State, l *falconv1.Ladder) widget.Rect {
	g := l.Rungs[p.cursorRung(s)]
	text, taken := takenText(l, g)
	if !taken {
		text = briefText(g)
	}
	if g.Reason == "" && !g.Applicable {
		text = g.Rung + ": " + phrase.Rung(g.Rung)
	}
	a := s.Awaited()
	if page.Standing(s, a) != "" && a.Rung == g.Rung && a.Variant == g.Variant {
		text = phrase.Capital(strings.TrimSuffix(g.Reason, ": "+a.State)) // the rest of it repeats its state
		if !taken && g.IfWrong != "" {
			text += ". If wrong: " + g.IfWrong
		}
		text = phrase.RungName(g) + phrase.Prefixed(": ", page.Standing(s, a)) + withdrawal(a) + ". " + text
	} else if prop := s.Proposal(); prop != nil && prop.Rung == g.Rung && prop.Variant == g.Variant {
		text += ". When proposed: " + prop.Why
		if left, ok := page.Countdown(s, prop); ok {
			text += ". Policy approves it in " + phrase.Seconds(left) + " unless vetoed"
		}
	}
	box, _ := r.Rows(min(reasonRows, max(3, r.H/3), r.H))
	used := c.Paragraph(
		widget.Rect{
			X: box.X + 2,
			Y: box.Y,
			W: box.W - 3,
			H: box.H,
		},
		text,
		c.Pal.Style(themes.Text),
	)
	_, rest := r.Rows(min(used, box.H))
	return rest
}

// withdrawal returns how what is approved is taken back.
func withdrawal(a *falconv1.Action) string {
	switch {
	case phrase.Waits(a):
		return "; a veto ends it"
	case a.DeadlineUnixNs != 0:
		return ", a veto withdraws it"
	}
	return ""
}

func (p *Page) drawEvidence(c *widget.Canvas, r widget.Rect, s *page.State) {
	inc := s.Incident()
	if inc == nil || r.Empty() {
		return
	}
	v := inc.Verdict
	right := ""
	if v.GetConfidence() > 0 {
		right = fmt.Sprintf("confidence %.0f%%, severity %d of 4", 100*v.Confidence, v.Severity)
	}
	body := c.Rule(r, "EVIDENCE as it was found", right)
	head, body := body.Rows(1)
	c.Pen(head).Put(themes.Title, phrase.Verdict(v))
	shown := &falconv1.Verdict{Evidence: slices.Concat(page.KernelEvidence(s, inc), v.GetEvidence())}
	lines := append(EvidenceLines(shown, body.W), PastLines(s, inc, body.W)...)
	p.scroll.Rows(c, body, len(lines), func(row widget.Rect, i int) {
		page.DrawLines(c, row, lines[i:i+1])
	})
}

// EvidenceLines wraps a verdict's evidence for width w, the clearest first: + for the cause,
// − against it.
func EvidenceLines(v *falconv1.Verdict, w int) []page.Line {
	var out []page.Line
	for _, e := range page.ClearestFirst(v.GetEvidence()) {
		sign := "+"
		role := themes.Text
		if e.Against {
			sign = "−"
			role = themes.Warn
		}
		head := fmt.Sprintf("%s %-8s", sign, e.Kind)
		for i, l := range widget.Wrap(e.Text, max(10, w-len(head)-1)) {
			if i > 0 {
				head = fmt.Sprintf("%*s", 10, "")
			}
			out = append(out, page.Line{Text: head + " " + l, Role: role})
		}
	}
	return out
}

// PastLines are what an incident's culprits were named for besides.
func PastLines(s *page.State, inc *falconv1.Incident, w int) []page.Line {
	var out []page.Line
	for _, text := range s.Histories(inc) {
		for i, l := range widget.Wrap(text, max(10, w-11)) {
			head := "· past    "
			if i > 0 {
				head = fmt.Sprintf("%*s", 10, "")
			}
			out = append(out, page.Line{Text: head + " " + l, Role: themes.Warn})
		}
	}
	return out
}

func drawActions(c *widget.Canvas, r widget.Rect, s *page.State, l *falconv1.Ladder) {
	if r.H < 2 {
		return
	}
	body := c.Rule(r, "ACTIONS", widget.Cut(l.Model, max(0, r.W-14)))
	if len(l.Actions) == 0 {
		c.Pen(body).Put(themes.Dim, "none taken or proposed")
		return
	}
	var lines []page.Line
	for _, a := range slices.Backward(l.Actions) {
		lines = append(lines, ActionLines(s, a, body.W)...)
	}
	page.DrawLines(c, body, lines)
}

// ActionLines describes an action in two lines, a placement's steps in a third.
func ActionLines(s *page.State, a *falconv1.Action, w int) []page.Line {
	head := fmt.Sprintf("%s %s", a.Rung, a.State)
	if a.Variant != "" {
		head = fmt.Sprintf("%s %s %s", a.Rung, a.Variant, a.State)
	}
	if len(a.Approvals) > 0 {
		head += " · approved by " + phrase.Approvers(a)
	}
	switch {
	case a.DecidedBy != "" && len(a.Approvals) == 0:
		head += " · decided by " + a.DecidedBy
	case a.State == string(falcon.ActionVetoed):
		head += " · withdrawn by " + a.DecidedBy
	}
	at := func(iteration, unixNs int64) string { return whenText(s, iteration, unixNs, w) }
	head += " · proposed at " + at(a.ProposedIteration, a.ProposedUnixNs)
	if a.AppliedIteration > 0 {
		head += ", in force from " + at(a.AppliedIteration, a.AppliedUnixNs)
	}
	if a.RevertedIteration > 0 {
		head += " to " + at(a.RevertedIteration-1, a.RevertedUnixNs)
	}
	times := fmt.Sprintf("   %s, predicted %s", phrase.Ms(a.BeforeMs), phrase.Ms(a.PredictedMs))
	if a.MeasuredMs > 0 {
		times += fmt.Sprintf(", measured %s (%s; prediction off by %s)", phrase.Ms(a.MeasuredMs),
			phrase.Change(a.BeforeMs, a.MeasuredMs), predictionError(a.PredictedMs, a.MeasuredMs))
	}
	p := phrase.Plan(a.Previous, a.MicroBatches, max(20, w-len(times)-6))
	if p != "" {
		times += " · " + p
	}
	if because := phrase.Because(a); because != "" {
		times += " · " + because[2:]
	}
	out := []page.Line{
		{Text: head, Role: stateRole(falcon.ActionState(a.State))},
		{Text: times, Role: themes.Text},
	}
	if steps := SwapSteps(a); steps != "" {
		out = append(out, page.Line{Text: "   " + steps, Role: themes.Dim})
	}
	return out
}

// whenText is an iteration with its time by the clock; where room is short the time alone.
func whenText(s *page.State, iteration, unixNs int64, w int) string {
	if unixNs == 0 {
		return phrase.Iteration(iteration)
	}
	at := phrase.Clock(time.Unix(0, unixNs), s.EngineNow(), s.Zone)
	if w < wideW {
		return at
	}
	return phrase.Iteration(iteration) + " (" + at + ")"
}

func predictionError(predicted, measured float64) string {
	if predicted <= 0 {
		return "—"
	}
	return fmt.Sprintf("%.1f%%", 100*max(measured/predicted-1, 1-measured/predicted))
}

func stateRole(state falcon.ActionState) themes.Role {
	switch state {
	case falcon.ActionKept, falcon.ActionApplied:
		return themes.Good
	case falcon.ActionProposed:
		return themes.Warn
	case falcon.ActionFailed, falcon.ActionVetoed, falcon.ActionExpired:
		return themes.Bad
	}
	return themes.Accent
}
