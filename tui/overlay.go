package tui

import (
	"fmt"

	tea "charm.land/bubbletea/v2"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// dialogW is a dialog's width where the screen has it.
const dialogW = 76

// drawDialog draws the open dialog over the page.
func (m *Model) drawDialog(c *widget.Canvas, over widget.Rect) *tea.Cursor {
	d := m.dialog
	title, do := d.titles()
	w := min(dialogW, over.W-2)
	lines := m.dialogLines(d, w-4)
	rows := len(lines) + 5 // frame, message, gap, buttons
	if d.takesText() {
		rows++
	}
	box := widget.Centre(over, w, rows)
	in := c.Box(box, title, themes.Urgent)
	content, foot := in.Rows(in.H - (rows - len(lines) - 2))
	d.scroll = max(0, min(d.scroll, len(lines)-content.H))
	for i, l := range lines[d.scroll:] {
		if i < content.H {
			c.Text(content.X, content.Y+i, content.W, l.Text, m.pal.Style(l.Role))
		}
	}
	var cursor *tea.Cursor
	if d.takesText() {
		var row widget.Rect
		row, foot = foot.Rows(1)
		p := c.Pen(row).Put(themes.Key, d.question()).Put(themes.Text, d.text)
		cursor = tea.NewCursor(p.X, row.Y)
	}
	message, foot := foot.Rows(1)
	m.dialogMessage(c, message, d)
	_, buttons := foot.Rows(foot.H - 1)
	m.buttons(c, buttons, d, do)
	return cursor
}

func (d *dialog) titles() (title, do string) {
	switch d.kind {
	case kindApprove:
		return "APPROVE " + d.action.Rung + "?", "Approve"
	case kindVeto:
		return "VETO " + d.action.Rung + "?", "Veto"
	case kindPolicy:
		return "WHO MAY ACT?", "Set"
	case kindUnfreeze:
		return "UNFREEZE?", "Unfreeze"
	case kindQuit:
		return "LEAVE?", "Leave"
	}
	return "", ""
}

func (d *dialog) question() string {
	if d.kind == kindVeto {
		return "reason (optional): "
	}
	return "type " + unfreezeWord + ": "
}

func (m *Model) dialogMessage(c *widget.Canvas, r widget.Rect, d *dialog) {
	p := c.Pen(r)
	switch why := m.blocked(d); {
	case d.sending:
		p.Put(themes.Accent, "sending …")
	case d.err != "":
		p.Put(themes.Bad, d.err)
	case why != "":
		p.Put(themes.Warn, why)
	}
}

// buttons draws Cancel and the action; they look pressable once the guard is
// over and nothing stands against it.
func (m *Model) buttons(c *widget.Canvas, r widget.Rect, d *dialog, do string) {
	p := c.Pen(r)
	for i, label := range []string{"Cancel", do} {
		role := themes.Button
		if i == d.focus {
			role = themes.Focus
		}
		off := i == buttonDo && m.blocked(d) != ""
		if off || m.now().Sub(d.opened) < guard || d.sending {
			p.Style(m.pal.Style(themes.Dim), mark(i == d.focus, label))
		} else {
			p.Put(role, mark(i == d.focus, label))
		}
		p.Space(2)
	}
	if d.kind == kindApprove {
		p.Put(themes.Dim, "tab, then enter, approves; esc cancels")
	}
}

// mark shows the focus without colour too.
func mark(focused bool, label string) string {
	if focused {
		return "▸ " + label + "  "
	}
	return "  " + label + "  "
}

func (m *Model) dialogLines(d *dialog, w int) []ladder.Line {
	switch d.kind {
	case kindApprove:
		return approveLines(d, w)
	case kindVeto:
		return append(planLines(d, w), wrapped(themes.Text, "Nothing is changed in the job. The plan is not proposed again for this incident unless it changes.", w)...)
	case kindPolicy:
		return policyLines(d, w)
	case kindUnfreeze:
		return wrapped(themes.Text, "The engine may propose and dispatch actions again, in mode "+phrase.Mode(unfrozen(d.policy))+".", w)
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

func planLines(d *dialog, w int) []ladder.Line {
	a := d.action
	out := wrapped(themes.Title, fmt.Sprintf("%s for %s: %s", a.Rung, a.Incident, phrase.Rung(a.Rung)), w)
	out = append(out, wrapped(themes.Text, "Plan: micro-batches a replica "+phrase.Plan(a.Previous, a.MicroBatches, w-34), w)...)
	gain := fmt.Sprintf("Predicted: %s → %s an iteration (%s), switch costs %s", phrase.Ms(a.BeforeMs), phrase.Ms(a.PredictedMs),
		phrase.Change(a.BeforeMs, a.PredictedMs), phrase.Ms(a.OverheadMs))
	return append(out, wrapped(themes.Text, gain, w)...)
}

func approveLines(d *dialog, w int) []ladder.Line {
	out := planLines(d, w)
	if d.action.Why != "" {
		out = append(out, wrapped(themes.Text, "Why now: "+d.action.Why, w)...)
	}
	conf := ""
	if d.verdict != nil {
		conf = fmt.Sprintf(", confidence %.0f%%", 100*d.verdict.Confidence)
	}
	out = append(out, wrapped(themes.Title, "Evidence: "+phrase.Verdict(d.verdict)+conf, w)...)
	out = append(out, ladder.EvidenceLines(d.verdict, w)...)
	return append(out, wrapped(themes.Text, "If wrong: the gain is measured; without one the plan is reverted by itself, and when the fault clears, too.", w)...)
}

func policyLines(d *dialog, w int) []ladder.Line {
	explain := []string{
		"only watch: nothing is proposed for execution",
		"every rung waits for a person",
		"S1 (ignore) acts by itself, S2 waits for a person",
		"S1 and S2 act by themselves, higher rungs wait",
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

// help lists the keys of the present page, then those that work everywhere.
type help struct {
	scope  key.Scope
	scroll int
}

func (h *help) act(m *Model, a key.Action) {
	switch a {
	case key.Up:
		h.scroll = max(0, h.scroll-1)
	case key.Down:
		h.scroll++
	case key.Cancel:
		m.help = nil
	}
}

// helpKeyW is the room for a key's name.
const helpKeyW = 11

func (h *help) lines(w int) []ladder.Line {
	var out []ladder.Line
	for _, s := range []key.Scope{h.scope, key.Global, key.Dialog, key.Prompt, key.Help} {
		list := key.In(s)
		if len(list) == 0 {
			continue
		}
		out = append(out, ladder.Line{Text: string(s), Role: themes.Title})
		for _, b := range list {
			for i, l := range widget.Wrap(b.Help, max(10, w-helpKeyW-2)) {
				name := ""
				if i == 0 {
					name = b.Show
				}
				out = append(out, ladder.Line{Text: "  " + name + spaces(helpKeyW-widget.Width(name)-1) + l, Role: themes.Text})
			}
		}
	}
	return out
}

func spaces(n int) string { return fmt.Sprintf("%*s", max(1, n), "") }

func (h *help) draw(c *widget.Canvas, over widget.Rect) {
	box := widget.Centre(over, min(dialogW, over.W-2), over.H)
	in := c.Box(box, "KEYS", themes.Accent)
	lines := h.lines(in.W)
	h.scroll = max(0, min(h.scroll, len(lines)-in.H))
	for i, l := range lines[h.scroll:] {
		if i >= in.H {
			break
		}
		c.Text(in.X, in.Y+i, in.W, l.Text, c.Pal.Style(l.Role))
	}
	if rest := len(lines) - h.scroll - in.H; rest > 0 {
		c.Right(box.X+box.W-2, box.Y+box.H-1, fmt.Sprintf(" %d more, j ↓ ", rest), c.Pal.Style(themes.Key))
	}
}
