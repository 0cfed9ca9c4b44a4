package tui

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/keyguard"
	"github.com/failslow/falcon/tui/page"
)

// unseenSaid is how long a dialog is unseen before it says so: most terminals answer within
// two pictures.
const unseenSaid = 300 * time.Millisecond

// guardTexts say why a key does not count.
var guardTexts = map[keyguard.Reason]string{
	keyguard.Unseen:   "waiting for the terminal to show this",
	keyguard.Ahead:    "a key came before this could be read: pause a moment, then press again",
	keyguard.Strayed:  "keys came that mean nothing here: pause for two seconds, then press again",
	keyguard.Pasted:   "text was pasted: pause a moment, then press again",
	keyguard.Fast:     "keys come faster than a person types: pause a moment, then press again",
	keyguard.Followed: "not sent, as more keys came right behind: pause for two seconds, then press again",
	keyguard.Held:     "sending …",
}

// keyKind is what a key means to the dialog.
func (d *dialog) keyKind(k tea.KeyPressMsg, a key.Action, live *page.State) keyguard.Kind {
	switch {
	case a == key.Cancel:
		return keyguard.KeyClose
	case a == key.Confirm:
		return d.confirmKind(live)
	case a == key.Left || a == key.Right || a == key.Up || a == key.Down:
		return keyguard.KeyStep
	case d.fieldCount() > 0 && (k.Text != "" || a != key.None):
		return keyguard.KeyText
	}
	return keyguard.KeyStray
}

// confirmKind is what enter means: only on the button, with all typed, it confirms.
func (d *dialog) confirmKind(live *page.State) keyguard.Kind {
	switch {
	case d.focus == buttonCancel || d.isSpent(live):
		return keyguard.KeyClose
	case d.focus != buttonDo || d.blockedBy(live) != "":
		return keyguard.KeyStep
	}
	return keyguard.KeyConfirm
}

// guardView is the guard of keys in one picture.
type guardView struct {
	why  keyguard.Reason // what stands between the dialog and a confirmation
	text string
}

// guardText is what stands between the dialog and a confirmation, "" where nothing does or it
// passes before it could be read.
func (d *dialog) guardText(guard *keyguard.Guard, now time.Time) string {
	why, _ := guard.Block(now)
	switch {
	case why == keyguard.Unseen && now.Sub(d.opened) < unseenSaid:
		return ""
	case why == keyguard.Unseen && d.code != "":
		return ""
	case why == keyguard.Unseen:
		return fmt.Sprintf("%s (%d s)", guardTexts[why], int(now.Sub(d.opened).Seconds()))
	case why == keyguard.Counts || why == keyguard.Fresh:
		return guardTexts[d.refused]
	}
	return guardTexts[why]
}

// offerCode has letters typed that only who sees the dialog knows.
func (d *dialog) offerCode(code string) {
	d.code = code
	d.entry.Word = strings.TrimSpace(d.entry.Word + " " + code)
}

// dropCode asks for no letters any more: the terminal has told what it shows after all.
func (d *dialog) dropCode() {
	d.code, d.entry = "", d.question.Entry()
	d.word.SetValue("")
	d.focus = min(d.focus, buttonDo)
}

// missingCode returns that the letters are not typed yet, or "".
func (d *dialog) missingCode() string {
	if d.code == "" || d.word.Value() == d.entry.Word {
		return ""
	}
	return "this terminal does not tell what it shows: type " + d.entry.Word
}

// watchDialog asks the terminal to tell when the dialog is drawn.
func (d *decisions) watchDialog() tea.Cmd {
	d.guard.Repaint()
	return markReport(d.guard.Ask(d.w, d.h))
}

// watchResized asks again where a dialog is drawn again. While sizes come faster than answers,
// the last one is asked for. Nothing is asked without a dialog: an answer that comes when the
// console has ended would be typed into the shell.
func (d *decisions) watchResized() tea.Cmd {
	switch {
	case d.dialog == nil:
		return nil
	case d.guard.Awaits(d.keyTime()):
		d.guard.Repaint()
		d.again = true
		return nil
	}
	return d.watchDialog()
}

// takeSent asks for a report whose mark has come by.
func (d *decisions) takeSent(msg sentMsg) tea.Cmd {
	if d.dialog == nil {
		return nil // it was closed meanwhile
	}
	q, ok := d.guard.Sent(d.keyTime(), msg.number)
	if !ok {
		return nil // of another job's console
	}
	return askReport(q)
}

// takeReport takes a report, and draws again when the dialog has been there for long enough.
func (d *decisions) takeReport(msg tea.CursorPositionMsg) tea.Cmd {
	seen := d.guard.Answer(d.keyTime(), msg.X, msg.Y)
	if d.again && d.dialog != nil {
		d.again = false
		return d.watchDialog()
	}
	if !seen {
		return nil
	}
	if d.dialog != nil && d.dialog.code != "" {
		d.dialog.dropCode()
	}
	return d.redraw(keyguard.Look + redrawMargin)
}

// settleKeys sends a confirmation that no key has followed, and offers letters where the
// terminal tells nothing.
func (d *decisions) settleKeys(live *page.State) (cmd tea.Cmd, leave bool) {
	open, now := d.dialog, d.keyTime()
	if open == nil {
		return nil, false
	}
	if d.again && !d.guard.Awaits(now) {
		d.again = false
		return d.watchDialog(), false
	}
	if open.code == "" && d.guard.IsMute(now) {
		open.offerCode(d.guard.OfferCode(now))
	}
	if !d.guard.Due(now) || open.blockedBy(live) != "" {
		return nil, false
	}
	r := open.takeRequest()
	return submitRequest(d.src, open.id, r), r.Leave
}

// closeDialog takes the dialog away.
func (d *decisions) closeDialog() {
	d.dialog = nil
	d.guard.Close()
}

// noteKey tells the guard of a key that no dialog takes.
func (d *decisions) noteKey(kind keyguard.Kind) {
	d.guard.Press(d.keyTime(), kind)
}

// viewGuard is the guard as the dialog draws it.
func (d *decisions) viewGuard() guardView {
	now := d.keyTime()
	why, _ := d.guard.Block(now)
	return guardView{why, d.dialog.guardText(d.guard, now)}
}

// clickButton focuses a button that was clicked.
func (d *decisions) clickButton(open *dialog, button int) tea.Cmd {
	if d.dialog != open {
		return nil
	}
	now := d.keyTime()
	if open.refused = d.guard.Press(now, keyguard.KeyStep); open.refused != keyguard.Counts {
		return d.refuseKey(now)
	}
	if !open.sending {
		open.focus = button
	}
	return nil
}

// leaveWait is how long leaving waits for a report: one that comes later is typed into the shell.
const leaveWait = time.Second

// leave ends the console.
func (m *Model) leave() tea.Cmd {
	if m.leaving || !m.decisions.guard.Awaits(m.decisions.keyTime()) {
		m.leaving = true
		return tea.Quit
	}
	m.leaving = true
	return tea.Tick(leaveWait, func(time.Time) tea.Msg { return tea.Quit() })
}

// handleGuard takes what the guard of keys waits for: time, marks and reports.
func (m *Model) handleGuard(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case sentMsg:
		return m.decisions.takeSent(msg)
	case tea.CursorPositionMsg:
		cmd := m.decisions.takeReport(msg)
		if m.leaving && !m.decisions.guard.Awaits(m.decisions.keyTime()) {
			return tea.Quit
		}
		return cmd
	}
	m.screen.dirty = true
	cmd, leave := m.decisions.settleKeys(m.work.live)
	if leave {
		return m.leave()
	}
	return cmd
}
