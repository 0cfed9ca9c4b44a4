package tui

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"charm.land/bubbles/v2/textinput"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/keyguard"
	"github.com/failslow/falcon/tui/page"
)

// Where the focus may be; 0 is always Cancel. Only a restart's dialog has
// the fields as stops: it alone has two.
const (
	buttonCancel = iota
	buttonDo
	fieldWord
	fieldReason
)

// dialog shows one question and takes its answer. It owns what is typed and
// where the focus is; what may be submitted is the question's to say.
type dialog struct {
	id       int // a late answer finds its own dialog by it
	question decision.Question
	entry    decision.Entry
	opened   time.Time
	focus    int
	word     textinput.Model
	reason   textinput.Model
	pane     viewport.Model // what is asked
	sending  bool
	err      string
	code     string          // letters that stand in for a report, "" where none are asked for
	refused  keyguard.Reason // why the last key did not count
}

func newDialog(id int, q decision.Question, keys *key.Map, now time.Time) *dialog {
	d := &dialog{
		id:       id,
		question: q,
		entry:    q.Entry(),
		opened:   now,
		focus:    buttonCancel,
		pane:     viewport.New(),
	}
	switch q.(type) {
	case *decision.Veto, *decision.Freeze, *decision.EndTest:
		// the safe choice is to do it: nothing acts on the job
		d.focus = buttonDo
	}
	d.word = newTextEntry(keys, key.Dialog, "", decision.ReasonMax)
	d.reason = newTextEntry(keys, key.Dialog, "", decision.ReasonMax)
	return d
}

// subjectName names what is decided on, for other operators to see; or "".
func (d *dialog) subjectName() string {
	if d == nil {
		return ""
	}
	return d.question.Subject()
}

// incidentID is the one that the dialog is about; "" where it is about none.
func (d *dialog) incidentID() string {
	if d == nil {
		return ""
	}
	return d.question.Incident()
}

// asksToLeave reports whether the dialog asks about ending the console.
func (d *dialog) asksToLeave() bool {
	if d == nil {
		return false
	}
	_, is := d.question.(*decision.Leave)
	return is
}

// typedSoFar is what has been typed so far.
func (d *dialog) typedSoFar() decision.Typed {
	t := decision.Typed{Reason: d.reason.Value()}
	if d.entry.Word != "" {
		t.Word = strings.TrimSpace(strings.TrimSuffix(d.word.Value(), d.code))
	}
	return t
}

// blockedBy returns why the button can't be pressed now, or "".
func (d *dialog) blockedBy(live *page.State) string {
	return cmp.Or(decision.Blocked(d.question, live, d.typedSoFar()), d.missingCode())
}

// isSpent reports whether the question no longer fits what the engine shows: there is nothing left to decide.
func (d *dialog) isSpent(live *page.State) bool {
	return !d.sending && d.question.Stale(live) != ""
}

// twoFields reports whether the dialog asks for a typed word and a reason.
func (d *dialog) twoFields() bool {
	return d.entry.Word != "" && d.entry.Reason != decision.NoReason
}

// fieldCount is how many text entries the dialog has.
func (d *dialog) fieldCount() int {
	switch {
	case d.twoFields():
		return 2
	case d.entry != decision.Entry{}:
		return 1
	}
	return 0
}

// focusStops are where tab takes the focus, in turn.
func (d *dialog) focusStops() []int {
	if d.twoFields() {
		return []int{buttonCancel, fieldWord, fieldReason, buttonDo}
	}
	return []int{buttonCancel, buttonDo}
}

func (d *dialog) moveFocus(by int) {
	list := d.focusStops()
	d.focus = list[(slices.Index(list, d.focus)+by+len(list))%len(list)]
}

// takeKey takes a key that counts and confirms nothing; it reports whether it closes the dialog.
func (d *dialog) takeKey(k tea.KeyPressMsg, a key.Action, live *page.State) (closed bool) {
	switch a {
	case key.Left:
		d.moveFocus(-1)
	case key.Right:
		d.moveFocus(+1)
	case key.Up:
		d.moveChoice(-1)
	case key.Down:
		d.moveChoice(+1)
	case key.Confirm:
		return d.pressFocused(live)
	default:
		d.writeText(k, live)
	}
	return false
}

// pressFocused presses what has the focus, but the button that acts; it reports whether that
// closes the dialog.
func (d *dialog) pressFocused(live *page.State) (closed bool) {
	switch {
	case d.focus == buttonCancel:
		return true
	case d.isSpent(live):
		d.focus = buttonCancel // who pressed as it changed still reads why; the next one closes
	case d.focus == fieldWord || d.focus == fieldReason:
		d.moveFocus(+1) // enter ends a field; only the button acts
	}
	return false
}

// takeRequest marks the question as sent and returns what to send.
func (d *dialog) takeRequest() decision.Request {
	d.sending, d.err = true, ""
	return d.question.Request(d.typedSoFar())
}

// showRefusal shows why what was sent was not done.
func (d *dialog) showRefusal(text string) {
	d.sending, d.err = false, text
}

// moveChoice scrolls what is asked, or moves the choice of a mode.
func (d *dialog) moveChoice(by int) {
	q, choice := d.question.(*decision.SetMode)
	switch {
	case choice:
		q.Move(by)
	case by < 0:
		d.pane.ScrollUp(1)
	default:
		d.pane.ScrollDown(1)
	}
}

// rollWheel turns the wheel: it scrolls what is asked and never changes a choice.
func (d *dialog) rollWheel(notches int) {
	if _, choice := d.question.(*decision.SetMode); choice {
		return
	}
	for range max(notches, -notches) {
		d.moveChoice(notches)
	}
}

// writeText gives a key to the text entry; of two, to the one in focus. What is
// typed on a button of a dialog with two begins the word.
func (d *dialog) writeText(k tea.KeyPressMsg, live *page.State) {
	switch {
	case d.fieldCount() == 0 || d.isSpent(live):
	case !d.twoFields() && d.entry.Word != "":
		d.word = enterText(d.word, k)
	case !d.twoFields() || d.focus == fieldReason:
		d.reason = enterText(d.reason, k)
	default:
		if k.Text != "" {
			d.focus = fieldWord
		}
		if d.focus == fieldWord {
			d.word = enterText(d.word, k)
		}
	}
}

// pasteText is taken as a reason, never as a confirmation.
func (d *dialog) pasteText(msg tea.PasteMsg, live *page.State) {
	if d.sending ||
		d.isSpent(live) ||
		d.entry.Reason == decision.NoReason ||
		d.twoFields() && d.focus != fieldReason {
		return
	}
	d.reason = enterText(d.reason, msg)
}
