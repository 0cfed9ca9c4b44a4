package tui

import (
	"cmp"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/keyguard"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// dialogW is a dialog's width where the screen has it.
const dialogW = 76

// drawOver draws the dialog over the page; clicks on zones focus its buttons.
func (d *dialog) drawOver(
	s *skin,
	live *page.State,
	g guardView,
	over widget.Rect,
) (*lipgloss.Layer, *tea.Cursor, []zone) {
	title, do := dialogTitles(d.question)
	w := min(dialogW, over.W-2)
	lines := dialogLines(d.question, live, w-4)
	message := d.messageRows(s, live, g, w-4)
	fixed := 4 + len(message) + d.fieldCount() // frame, gap, buttons
	others := reviewing(d.subjectName(), live)
	if others != "" {
		fixed++
	}
	box := widget.Centre(over, w, len(lines)+fixed)
	rows := s.scrolledRows(&d.pane, lines, w-4, box.H-fixed)
	rows, cursor := d.drawFields(s, rows, box, w-4)
	if others != "" {
		rows = append(rows, s.styled(themes.Warn, others))
	}
	rows = append(append(rows, message...), "", d.drawButtons(s, live, g, do))
	for i, r := range rows {
		rows[i] = lipgloss.PlaceHorizontal(
			w-4,
			lipgloss.Left,
			ansi.Truncate(r, w-4, "…"),
		)
	}
	zones, button := d.buttonZones(do, box.X+2, box.Y+len(rows))
	return s.framedLayer(box, title, moreBelow(&d.pane, "↓"), themes.Urgent, rows),
		cmp.Or(cursor, button),
		zones
}

// drawFields appends the text entries to the rows.
func (d *dialog) drawFields(s *skin, rows []string, box widget.Rect, w int) ([]string, *tea.Cursor) {
	var cursor *tea.Cursor
	if d.entry.Word != "" {
		var text string
		text, cursor = s.drawField(
			"type "+d.entry.Word+": ",
			&d.word,
			w,
			box.X+2,
			box.Y+1+len(rows),
		)
		rows = append(rows, text)
	}
	if d.entry.Reason == decision.NoReason {
		return rows, cursor
	}
	question := "reason: "
	if d.entry.Reason == decision.MayReason {
		question = "reason (optional): "
	}
	text, at := s.drawField(question, &d.reason, w, box.X+2, box.Y+1+len(rows))
	if cursor == nil || d.focus == fieldReason {
		cursor = at
	}
	return append(rows, text), cursor
}

// messageRows are what stands between the dialog and its answer, as a whole: a refusal that is cut
// hides why. There is at least one row.
func (d *dialog) messageRows(s *skin, live *page.State, g guardView, w int) []string {
	role, text := d.message(live, g)
	var out []string
	for _, l := range widget.Wrap(text, max(1, w)) {
		out = append(out, s.styled(role, l))
	}
	if len(out) == 0 {
		return []string{""}
	}
	return out
}

func (d *dialog) message(live *page.State, g guardView) (themes.Role, string) {
	switch why := d.blockedBy(live); {
	case d.sending || g.why == keyguard.Held:
		return themes.Accent, "sending …"
	case d.err != "":
		return themes.Bad, d.err
	case why != "":
		return themes.Warn, why
	}
	return themes.Warn, g.text
}

// drawButtons draws Cancel and the action; they look active when they can be pressed.
func (d *dialog) drawButtons(s *skin, live *page.State, g guardView, do string) string {
	if d.isSpent(live) {
		return s.styled(themes.Focus, focusMark(true, "Close")) +
			"  " +
			s.styled(themes.Dim, "nothing can be decided here any more; enter or esc closes")
	}
	out := ""
	for i, label := range []string{"Cancel", do} {
		role := themes.Button
		if i == d.focus {
			role = themes.Focus
		}
		if g.why != keyguard.Counts ||
			d.sending ||
			i == buttonDo && d.blockedBy(live) != "" {
			role = themes.Dim
		}
		out += s.styled(role, focusMark(i == d.focus, label)) + "  "
	}
	if d.twoFields() {
		return out + s.styled(themes.Dim, "tab goes on; only enter on the button acts")
	}
	switch d.question.(type) {
	case *decision.Take:
		out += s.styled(themes.Dim, "tab, then enter, takes it; esc cancels")
	case *decision.Approve:
		out += s.styled(themes.Dim, "tab, then enter, approves; esc cancels")
	case *decision.Freeze, *decision.EndTest, *decision.Veto:
		out += s.styled(themes.Dim, "enter does it; esc cancels")
	case *decision.Recovery, *decision.Demand, *decision.TakeBack, *decision.Unfreeze,
		*decision.Leave, *decision.SetMode, *decision.Test:
		out += s.styled(themes.Dim, "tab, then enter, does it; esc cancels")
	}
	return out
}

// focusMark shows the focus without colour too.
func focusMark(focused bool, label string) string {
	if focused {
		return "▸ " + label + "  "
	}
	return "  " + label + "  "
}

// buttonZones are the buttons: a click focuses and never presses. The cursor is on the focused one.
func (d *dialog) buttonZones(do string, x, y int) (zones []zone, cursor *tea.Cursor) {
	for i, label := range []string{"Cancel", do} {
		w := widget.Width(focusMark(true, label))
		zones = append(zones, zone{widget.Rect{X: x, Y: y, W: w, H: 1}, func(m *Model) tea.Cmd {
			return m.decisions.clickButton(d, i)
		}})
		if i == d.focus {
			cursor = underlineCursor(x+len("> "), y)
		}
		x += w + len("  ")
	}
	return zones, cursor
}

// reviewing names who else has the same question open, or "".
func reviewing(subject string, live *page.State) string {
	now := live.EngineNow()
	var names []string
	longest := time.Duration(0)
	for _, o := range live.Feed.Others() {
		if o.GetAttending() == subject && subject != "" {
			names = append(names, o.GetName())
			longest = max(longest, now.Sub(time.Unix(0, o.GetSinceUnixNs())))
		}
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0] + " is reviewing this too, for " + phrase.Seconds(longest)
	}
	const most = 3
	return phrase.Few(names, most) + " are reviewing this too"
}

// dialogTitles are a question's title and what its button says.
func dialogTitles(q decision.Question) (title, do string) {
	switch q := q.(type) {
	case *decision.Approve:
		return q.Incident() + ": APPROVE " + q.Action.Rung + "?", "Approve"
	case *decision.Veto:
		if q.Withdraws() {
			return q.Incident() + ": WITHDRAW " + q.Action.Rung + "?", "Withdraw"
		}
		return q.Incident() + ": VETO " + q.Action.Rung + "?", "Veto"
	case *decision.Take:
		return q.Incident() + ": TAKE " + phrase.RungName(q.Rung) + " NOW?", "Take it"
	case *decision.TakeBack:
		return q.Incident() + ": UNDO " + q.Action.Rung + "?", "Undo it"
	case *decision.SetMode:
		return "WHO MAY ACT?", "Set"
	case *decision.Freeze:
		return "FREEZE?", "Freeze"
	case *decision.EndTest:
		return "END " + q.ID + "?", "End it"
	case *decision.Unfreeze:
		return "UNFREEZE?", "Unfreeze"
	case *decision.Recovery:
		return verbs[q.Verb].title + q.Recovery.Id + "?", verbs[q.Verb].button
	case *decision.Demand:
		if q.Verb == decision.VerbRenew {
			return verbs[q.Verb].title + strings.ToUpper(phrase.Ranks(q.Ranks, 1)) + "?", verbs[q.Verb].button
		}
		return verbs[q.Verb].title + q.Node + "?", verbs[q.Verb].button
	case *decision.Test:
		return "HOLD THE JOB AND TEST?", "Test"
	case *decision.Leave:
		return "LEAVE?", "Leave"
	}
	return "", ""
}

// verbs are the titles and buttons of decisions on recoveries.
var verbs = map[decision.Verb]struct{ title, button string }{
	decision.VerbApprove: {"APPROVE RECOVERY ", "Approve"},
	decision.VerbDeny:    {"DENY RECOVERY ", "Deny"},
	decision.VerbAbort:   {"ABORT RECOVERY ", "Abort it"},
	decision.VerbEnded:   {"HAS ALL ENDED? ", "It has ended"},
	decision.VerbFence:   {"FENCE NODE ", "Fence it"},
	decision.VerbRenew:   {"REPLACE ", "Replace it"},
	decision.VerbLift:    {"LIFT THE FENCE OF ", "Lift it"},
	decision.VerbBar:     {"BAR ", "Bar it"},
	decision.VerbUnbar:   {"LIFT THE BAR OF ", "Lift it"},
}
