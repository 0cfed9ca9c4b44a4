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

// Where the focus may stand; 0 is always Cancel. Only a restart's dialog has
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
	d.word, d.reason = newInput(keys, key.Dialog, "", decision.ReasonMax), newInput(keys, key.Dialog, "", decision.ReasonMax)
	return d
}

// subject names what is decided on, for other operators to see; "" where
// nothing is.
func (d *dialog) subject() string {
	if d == nil {
		return ""
	}
	return d.question.Subject()
}

// incident is the one that the dialog is about; "" where it is about none.
func (d *dialog) incident() string {
	if d == nil {
		return ""
	}
	return d.question.Incident()
}

// leaves reports whether the dialog asks about ending the console.
func (d *dialog) leaves() bool {
	if d == nil {
		return false
	}
	_, is := d.question.(*decision.Leave)
	return is
}

// typed is what has been typed so far.
func (d *dialog) typed() decision.Typed {
	t := decision.Typed{Reason: d.reason.Value()}
	if d.entry.Word != "" {
		t.Word = d.word.Value()
	}
	return t
}

// blocked returns why the button can't be pressed now, or "".
func (d *dialog) blocked(live *page.State) string {
	return decision.Blocked(d.question, live, d.typed())
}

// guarded reports whether the dialog is too young to take an answer.
func (d *dialog) guarded(now time.Time) bool { return now.Sub(d.opened) < decision.Guard }

// twoFields reports whether the dialog asks for a word and a reason.
func (d *dialog) twoFields() bool { return d.entry.Word != "" && d.entry.Reason != decision.NoReason }

// fields is how many text entries the dialog has.
func (d *dialog) fields() int {
	switch {
	case d.twoFields():
		return 2
	case d.entry != decision.Entry{}:
		return 1
	}
	return 0
}

// stops are where tab takes the focus, in turn.
func (d *dialog) stops() []int {
	if d.twoFields() {
		return []int{buttonCancel, fieldWord, fieldReason, buttonDo}
	}
	return []int{buttonCancel, buttonDo}
}

func (d *dialog) moveFocus(by int) {
	list := d.stops()
	d.focus = list[(slices.Index(list, d.focus)+by+len(list))%len(list)]
}

// outcome is what a key does to an open dialog.
type outcome int

const (
	keepOpen outcome = iota
	cancelled
	pressed // the button; all is typed and nothing stands against it
)

// key handles a key. Cancelling always works; everything else waits for the
// guard and for a call under way.
func (d *dialog) key(k tea.KeyPressMsg, a key.Action, live *page.State, now time.Time) outcome {
	if a == key.Cancel {
		return cancelled
	}
	if d.sending || d.guarded(now) {
		return keepOpen
	}
	switch a {
	case key.Left:
		d.moveFocus(-1)
	case key.Right:
		d.moveFocus(+1)
	case key.Up:
		d.move(-1)
	case key.Down:
		d.move(+1)
	case key.Confirm:
		return d.press(live)
	default:
		d.write(k)
	}
	return keepOpen
}

// press presses what has the focus.
func (d *dialog) press(live *page.State) outcome {
	switch d.focus {
	case buttonCancel:
		return cancelled
	case fieldWord, fieldReason:
		d.moveFocus(+1) // enter ends a field; only the button acts
		return keepOpen
	}
	if d.blocked(live) != "" {
		return keepOpen
	}
	return pressed
}

// submit marks the question as sent and returns what to send.
func (d *dialog) submit() decision.Request {
	d.sending, d.err = true, ""
	return d.question.Request(d.typed())
}

// refused shows why what was sent was not done.
func (d *dialog) refused(text string) { d.sending, d.err = false, text }

// move scrolls what is asked, or moves the choice of a mode.
func (d *dialog) move(by int) {
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

// roll turns the wheel: it scrolls what is asked and never changes a choice.
func (d *dialog) roll(notches int) {
	if _, choice := d.question.(*decision.SetMode); choice {
		return
	}
	for range max(notches, -notches) {
		d.move(notches)
	}
}

// write gives a key to the text entry; of two, to the one in focus. What is
// typed on a button of a dialog with two begins the word.
func (d *dialog) write(k tea.KeyPressMsg) {
	switch {
	case d.fields() == 0:
	case !d.twoFields() && d.entry.Word != "":
		d.word = enter(d.word, k)
	case !d.twoFields() || d.focus == fieldReason:
		d.reason = enter(d.reason, k)
	default:
		if k.Text != "" {
			d.focus = fieldWord
		}
		if d.focus == fieldWord {
			d.word = enter(d.word, k)
		}
	}
}

// paste is taken as a reason, never as a confirmation.
func (d *dialog) paste(msg tea.PasteMsg) {
	if d.sending || d.entry.Reason == decision.NoReason || d.twoFields() && d.focus != fieldReason {
		return
	}
	d.reason = enter(d.reason, msg)
}
