package tui

import (
	"fmt"
	"slices"
	"strings"

	"charm.land/bubbles/v2/textinput"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// dialogW is a dialog's width where the screen has it.
const dialogW = 76

// drawDialog draws the open dialog over the page.
func (m *Model) drawDialog(over widget.Rect) (*lipgloss.Layer, *tea.Cursor) {
	d := m.dialog
	title, do := d.titles()
	w := min(dialogW, over.W-2)
	lines := m.dialogLines(d, w-4)
	fixed := 5 // frame, message, gap, buttons
	fixed += d.fields()
	others := m.reviewing(d)
	if others != "" {
		fixed++
	}
	box := widget.Centre(over, w, len(lines)+fixed)
	rows := m.scrolled(&d.pane, lines, w-4, box.H-fixed)
	var cursor *tea.Cursor
	if d.takesText() {
		var text string
		text, cursor = m.field(d.question(), &d.input, w-4, box.X+2, box.Y+1+len(rows))
		rows = append(rows, text)
	}
	if d.word != "" {
		text, at := m.field("reason: ", &d.reason, w-4, box.X+2, box.Y+1+len(rows))
		rows = append(rows, text)
		if d.focus == fieldReason {
			cursor = at
		}
	}
	if others != "" {
		rows = append(rows, m.put(themes.Warn, others))
	}
	rows = append(rows, m.dialogMessage(d), "", m.buttons(d, do))
	for i, r := range rows {
		rows[i] = lipgloss.PlaceHorizontal(w-4, lipgloss.Left, ansi.Truncate(r, w-4, "…"))
	}
	button := m.buttonZones(d, do, box.X+2, box.Y+len(rows))
	if cursor == nil {
		cursor = button
	}
	return m.frame(box, title, below(&d.pane, "↓"), themes.Urgent, rows), cursor
}

// fields is how many text entries a dialog has.
func (d *dialog) fields() int {
	switch {
	case d.word != "":
		return 2
	case d.takesText():
		return 1
	}
	return 0
}

// field draws a question and its text entry at x, y in w columns.
func (m *Model) field(question string, in *textinput.Model, w, x, y int) (string, *tea.Cursor) {
	ask := m.put(themes.Key, question)
	n := lipgloss.Width(ask)
	text, cursor := showInput(in, w-n, x+n, y)
	return ask + text, cursor
}

// scrolled is what a pane of w × h shows of the lines.
func (m *Model) scrolled(pane *viewport.Model, lines []ladder.Line, w, h int) []string {
	text := make([]string, len(lines))
	for i, l := range lines {
		text[i] = widget.Cut(widget.Arrows(l.Text, m.opts.ASCII), w)
	}
	pane.SetWidth(w)
	pane.SetHeight(max(1, h))
	pane.StyleLineFunc = func(i int) lipgloss.Style { return m.pal.Style(lines[i].Role).Lipgloss() }
	pane.SetContentLines(text)
	return strings.Split(pane.View(), "\n")
}

// below says how many lines a pane has under those it shows, and the key that
// goes there.
func below(pane *viewport.Model, key string) string {
	if rest := pane.TotalLineCount() - pane.YOffset() - pane.VisibleLineCount(); rest > 0 {
		return fmt.Sprintf("%d more, %s", rest, key)
	}
	return ""
}

func (d *dialog) titles() (title, do string) {
	switch d.kind {
	case kindApprove:
		return d.inc + ": APPROVE " + d.action.Rung + "?", "Approve"
	case kindVeto:
		if d.withdraws() {
			return d.inc + ": WITHDRAW " + d.action.Rung + "?", "Withdraw"
		}
		return d.inc + ": VETO " + d.action.Rung + "?", "Veto"
	case kindTake:
		return d.inc + ": TAKE " + ladder.Name(d.rung) + " NOW?", "Take it"
	case kindPolicy:
		return "WHO MAY ACT?", "Set"
	case kindUnfreeze:
		return "UNFREEZE?", "Unfreeze"
	case kindRecover:
		return d.ask.titles()
	case kindValidate:
		return "HOLD THE JOB AND TEST?", "Test"
	case kindQuit:
		return "LEAVE?", "Leave"
	}
	return "", ""
}

func (d *dialog) question() string {
	switch {
	case d.ask.wantsReason():
		return "reason: "
	case d.kind == kindVeto || d.kind == kindRecover:
		return "reason (optional): "
	case d.word != "":
		return "type " + d.word + ": "
	}
	return "type " + unfreezeWord + ": "
}

func (m *Model) dialogMessage(d *dialog) string {
	switch why := m.blocked(d); {
	case d.sending:
		return m.put(themes.Accent, "sending …")
	case d.err != "":
		return m.put(themes.Bad, d.err)
	case why != "":
		return m.put(themes.Warn, why)
	}
	return ""
}

// buttons draws Cancel and the action; they look pressable once the guard is
// over and nothing stands against it.
func (m *Model) buttons(d *dialog, do string) string {
	out := ""
	for i, label := range []string{"Cancel", do} {
		role := themes.Button
		if i == d.focus {
			role = themes.Focus
		}
		if m.now().Sub(d.opened) < guard || d.sending || i == buttonDo && m.blocked(d) != "" {
			role = themes.Dim
		}
		out += m.put(role, mark(i == d.focus, label)) + "  "
	}
	if d.word != "" {
		return out + m.put(themes.Dim, "tab goes on; only enter on the button acts")
	}
	switch d.kind {
	case kindTake:
		out += m.put(themes.Dim, "tab, then enter, takes it; esc cancels")
	case kindApprove:
		out += m.put(themes.Dim, "tab, then enter, approves; esc cancels")
	case kindRecover:
		out += m.put(themes.Dim, "tab, then enter, does it; esc cancels")
	}
	return out
}

// mark shows the focus without colour too.
func mark(focused bool, label string) string {
	if focused {
		return "▸ " + label + "  "
	}
	return "  " + label + "  "
}

func (m *Model) dialogLines(d *dialog, w int) []ladder.Line {
	return slices.Concat(m.changedLines(d, w), m.countdownLines(d, w), m.approvalLines(d, w), m.askedLines(d, w))
}

// askedLines say what the dialog asks, as it was when it opened.
func (m *Model) askedLines(d *dialog, w int) []ladder.Line {
	switch d.kind {
	case kindApprove:
		return approveLines(d, w)
	case kindVeto:
		return append(planLines(d, w), wrapped(themes.Text, "Nothing is changed in the job. The plan is not proposed again for this incident unless it changes.", w)...)
	case kindTake:
		return takeLines(d, w)
	case kindPolicy:
		return policyLines(d, w)
	case kindUnfreeze:
		return wrapped(themes.Text, "The engine may propose and dispatch actions again, in mode "+phrase.Mode(unfrozen(d.policy))+".", w)
	case kindRecover:
		return m.recoverLines(d.ask, w)
	case kindValidate:
		return testLines(d.test, len(m.live.Ranks), w)
	case kindQuit:
		return wrapped(themes.Text, m.opts.QuitNote, w)
	}
	return nil
}

func wrapped(role themes.Role, text string, w int) []ladder.Line {
	var out []ladder.Line
	for _, l := range widget.Wrap(text, w) {
		out = append(out, ladder.Line{Text: l, Role: role})
	}
	return out
}

// planLines tell what would be done to the job, and what it is predicted to
// bring.
func planLines(d *dialog, w int) []ladder.Line {
	a := d.action
	out := wrapped(themes.Title, fmt.Sprintf("%s for %s, plan %s: %s", a.Rung, d.inc, a.PlanHash, phrase.Rung(a.Rung)), w)
	if plan := phrase.Plan(a.Previous, a.MicroBatches, w-34); plan != "" {
		out = append(out, wrapped(themes.Text, "Plan: micro-batches a replica "+plan, w)...)
	}
	for _, l := range ladder.Preview(a.Preview) {
		out = append(out, wrapped(themes.Text, l, w)...)
	}
	gain := fmt.Sprintf("Predicted: %s → %s an iteration (%s)", phrase.Ms(a.BeforeMs), phrase.Ms(a.PredictedMs), phrase.Change(a.BeforeMs, a.PredictedMs))
	if a.OverheadMs > 0 { // else the reason below says what is known of it
		gain += ", switch costs " + phrase.Ms(a.OverheadMs)
	}
	return append(out, wrapped(themes.Text, gain, w)...)
}

// impacts are what carrying a rung out does to the job meanwhile.
var impacts = map[string]string{
	"S3": "Impact: the job stands at an iteration boundary while the ranks named exchange their state; no process ends.",
	"S4": "Impact: all processes of the job end after a checkpoint and are started again; nothing trains until they are up.",
}

func approveLines(d *dialog, w int) []ladder.Line {
	out := planLines(d, w)
	if text := impacts[d.action.Rung]; text != "" {
		out = append(out, wrapped(themes.Warn, text, w)...)
	}
	if d.action.Why != "" {
		out = append(out, wrapped(themes.Text, "When proposed: "+d.action.Why, w)...)
	}
	conf := ""
	if d.verdict != nil {
		conf = fmt.Sprintf(", confidence %.0f%%", 100*d.verdict.Confidence)
	}
	out = append(out, wrapped(themes.Title, "Evidence: "+phrase.Verdict(d.verdict)+conf, w)...)
	out = append(out, ladder.EvidenceLines(d.verdict, w)...)
	return append(out, wrapped(themes.Text, "If wrong: "+rollback(d), w)...)
}

// rollback is the engine's word on what happens when the rung does not help.
func rollback(d *dialog) string {
	if d.ifWrong != "" {
		return d.ifWrong
	}
	return "the gain is measured; without one the plan is reverted by itself, and when the fault clears, too"
}

func policyLines(d *dialog, w int) []ladder.Line {
	explain := []string{
		"only watch: nothing is proposed for execution",
		"every rung waits for a person",
		"S1 (ignore) acts by itself, S2 waits for a person",
		"S1 and S2 act by themselves, higher rungs wait",
		"S1 to S3 act by themselves, a restart (S4) waits",
	}
	var out []ladder.Line
	for i, o := range d.options {
		sign, role := "  ○ ", themes.Text
		if i == d.choice {
			sign, role = "▸ ● ", themes.Selected
		}
		text := fmt.Sprintf("%s%-10s %s", sign, phrase.Mode(unfrozen(o)), explain[i])
		if o.Mode == d.policy.Mode && (o.Mode != "auto" || o.Cap == d.policy.Cap) {
			text += " (now)"
		}
		out = append(out, ladder.Line{Text: widget.Cut(text, w), Role: role})
	}
	return out
}

// unfrozen is the policy that would hold without the freeze.
func unfrozen(p *falconv1.Policy) *falconv1.Policy {
	return &falconv1.Policy{Mode: p.Mode, Cap: p.Cap}
}
