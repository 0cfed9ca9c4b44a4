package tui

import (
	"slices"
	"time"

	"charm.land/bubbles/v2/textinput"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/key"
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
}

func newDialog(id int, q decision.Question, keys *key.Map, now time.Time) *dialog {
	d := &dialog{id: id, question: q, entry: q.Entry(), opened: now, focus: buttonCancel, pane: viewport.New()}
	switch q.(type) {
	case *decision.Veto, *decision.Unfreeze, *decision.Leave: // none of them changes the job
		d.focus = buttonDo
	}
	d.word, d.reason = newTextEntry(keys, key.Dialog, "", decision.ReasonMax), newTextEntry(keys, key.Dialog, "", decision.ReasonMax)
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
		t.Word = d.word.Value()
	}
	return t
}

// blockedBy returns why the button can't be pressed now, or "".
func (d *dialog) blockedBy(live *page.State) string {
	return decision.Blocked(d.question, live, d.typedSoFar())
}

// isGuarded reports whether the dialog is too young to take an answer.
// isSpent reports whether the question no longer fits what the engine shows: there is nothing left to decide.
func (d *dialog) isSpent(live *page.State) bool { return !d.sending && d.question.Stale(live) != "" }

func (d *dialog) isGuarded(now time.Time) bool { return now.Sub(d.opened) < decision.Guard }

// twoFields reports whether the dialog asks for a typed word and a reason.
func (d *dialog) twoFields() bool { return d.entry.Word != "" && d.entry.Reason != decision.NoReason }

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

// outcome is what a key does to an open dialog.
type outcome int

const (
	keepOpen outcome = iota
	cancelled
	pressed // the button; all is typed and nothing prevents it
)

// handleKey handles a key. Cancelling always works; the rest waits for the guard and for a call.
func (d *dialog) handleKey(k tea.KeyPressMsg, a key.Action, live *page.State, now time.Time) outcome {
	if a == key.Cancel {
		return cancelled
	}
	if d.sending || d.isGuarded(now) {
		return keepOpen
	}
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
		d.writeText(k)
	}
	return keepOpen
}

// pressFocused presses what has the focus.
func (d *dialog) pressFocused(live *page.State) outcome {
	if d.isSpent(live) && d.focus != buttonCancel {
		d.focus = buttonCancel // who pressed as it changed still reads why; the next one closes
		return keepOpen
	}
	switch d.focus {
	case buttonCancel:
		return cancelled
	case fieldWord, fieldReason:
		d.moveFocus(+1) // enter ends a field; only the button acts
		return keepOpen
	}
	if d.blockedBy(live) != "" {
		return keepOpen
	}
	return pressed
}

// takeRequest marks the question as sent and returns what to send.
func (d *dialog) takeRequest() decision.Request {
	d.sending, d.err = true, ""
	return d.question.Request(d.typedSoFar())
}

// showRefusal shows why what was sent was not done.
func (d *dialog) showRefusal(text string) { d.sending, d.err = false, text }

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
func (d *dialog) writeText(k tea.KeyPressMsg) {
	switch {
	case d.fieldCount() == 0:
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
func (d *dialog) pasteText(msg tea.PasteMsg) {
	if d.sending || d.entry.Reason == decision.NoReason || d.twoFields() && d.focus != fieldReason {
		return
	}
	d.reason = enterText(d.reason, msg)
}
