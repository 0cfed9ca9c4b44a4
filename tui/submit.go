package tui

import (
	"context"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/keyguard"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
)

// answerMsg is what came of a request.
type answerMsg struct {
	dialog int    // 0 = not from a dialog
	done   string // what is now
	failed string // what was not done, with err
	err    error
	begun  *falconv1.Validation // a test's answer; a snapshot may come after it
	claim  *claim               // what done says of the job, where that can change
}

// submitRequest sends a request in a command.
func submitRequest(src feed.Source, dialog int, r decision.Request) tea.Cmd {
	return func() tea.Msg {
		msg := sendRequest(src, r)
		msg.dialog = dialog
		return msg
	}
}

func sendRequest(src feed.Source, r decision.Request) answerMsg {
	ctx := context.Background()
	switch {
	case r.Decide != nil:
		a, err := src.Decide(ctx, r.Decide)
		failed := "not vetoed or withdrawn"
		switch {
		case r.Decide.Undo:
			failed = "not undone"
		case r.Decide.Approve:
			failed = "not approved"
		}
		msg := answerMessage(err, failed, func() string { return phrase.Action(a) })
		msg.claim = actionClaim(a)
		return msg
	case r.Recover != nil:
		got, err := src.Recover(ctx, r.Recover)
		if got.GetId() == "" {
			return answerMessage(err, "not done ("+r.Recover.Verb+")", func() string {
				return r.Recover.Verb + " taken"
			})
		}
		msg := answerMessage(err, "not done ("+r.Recover.Verb+")", func() string {
			return got.Id + " " + got.State
		})
		msg.claim = recoveryClaim(got)
		return msg
	case r.Validate != nil:
		v, err := src.Validate(ctx, r.Validate)
		msg := answerMessage(err, "no test", func() string {
			return v.GetId() + " " + v.GetState()
		})
		msg.begun, msg.claim = v, testClaim(v)
		return msg
	}
	if r.Freeze {
		return policyAnswer(src.Freeze(ctx))
	}
	if r.Triage != nil {
		got, err := src.Triage(ctx, r.Triage)
		return answerMessage(err, "not taken down ("+r.Triage.Verb+
			")", func() string { return triageAnswer(got) })
	}
	p, err := src.SetPolicy(ctx, r.Policy)
	return policyAnswer(p, err)
}

func answerMessage(err error, failed string, done func() string) answerMsg {
	if err != nil {
		return answerMsg{failed: failed, err: err}
	}
	return answerMsg{done: done()}
}

// triageAnswer is what is known of the incidents now, the first of several as an example.
func triageAnswer(r *falconv1.TriageReply) string {
	list := r.GetTriage()
	if len(list) == 0 {
		return "taken down"
	}
	text := list[0].GetIncident() + ": " + phrase.Triage(list[0], time.Unix(0, r.GetAtUnixNs()), nil)
	if more := len(list) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more incidents)", more)
	}
	return text
}

func policyAnswer(p *falconv1.Policy, err error) answerMsg {
	msg := answerMessage(err, "mode not changed", func() string { return "mode is now " + phrase.Mode(p) })
	msg.claim = policyClaim(p)
	return msg
}

// decisions owns the open dialog and what came of the questions before it.
type decisions struct {
	src    feed.Source
	keys   *key.Map
	now    func() time.Time
	notes  *notes
	redraw func(time.Duration) tea.Cmd // draws again later; tests have no use for it

	guard   *keyguard.Guard
	keyTime func() time.Time // of keys and reports
	w, h    int              // the screen
	again   bool             // it is to be asked when it has answered

	dialog *dialog
	opened int                  // numbers dialogs, so that a late answer finds its own
	begun  *falconv1.Validation // the engine's newest answer to a test; a snapshot may come after it
}

// askQuestion opens a question's dialog, or says why it is not asked.
func (d *decisions) askQuestion(q decision.Question, why decision.Refusal) tea.Cmd {
	if q == nil {
		role := themes.Warn
		if why.Mild {
			role = themes.Dim
		}
		d.notes.showNote(role, why.Text)
		return nil
	}
	d.opened++
	d.dialog = newDialog(d.opened, q, d.keys, d.keyTime())
	d.guard.Open(d.keyTime())
	return tea.Batch(d.watchDialog(), d.redraw(unseenSaid+redrawMargin))
}

// interrupt leaves when it is pressed twice.
const interrupt = "ctrl+c"

// handleKey handles a key while a dialog is open; leave is that the console ends.
func (d *decisions) handleKey(k tea.KeyPressMsg, live *page.State) (cmd tea.Cmd, leave bool) {
	open, now := d.dialog, d.keyTime()
	if open.asksToLeave() && k.String() == interrupt && d.guard.Interrupt(now) {
		return nil, true // asked for twice
	}
	a := d.keys.Lookup(k, key.Dialog)
	open.refused = d.guard.Press(now, open.keyKind(k, a, live))
	switch {
	case a == key.Cancel:
		d.closeDialog()
	case open.sending:
	case open.refused == keyguard.Held:
		return d.redraw(d.guard.Wait(now) + redrawMargin), false
	case open.refused == keyguard.Counts:
		unspent := a == key.Confirm && !open.isSpent(live)
		if open.takeKey(k, a, live) {
			d.closeDialog()
			if unspent {
				d.notes.showNote(themes.Warn, "cancelled: nothing was done")
			}
		}
	default:
		return d.refuseKey(now), false
	}
	return nil, false
}

// refuseKey says why a key does not count, for as long as that holds. After keys that were
// not meant for the dialog the focus is where enter decides nothing.
func (d *decisions) refuseKey(now time.Time) tea.Cmd {
	if why := d.dialog.refused; why == keyguard.Strayed || why == keyguard.Followed {
		d.dialog.focus = buttonCancel
	}
	_, left := d.guard.Block(now)
	return d.redraw(left + redrawMargin)
}

// takeAnswer shows the engine's answer: a refusal in the dialog, or in the
// footer when the dialog has been closed since.
func (d *decisions) takeAnswer(msg answerMsg, live *page.State) {
	own := d.dialog != nil && d.dialog.id == msg.dialog
	switch {
	case msg.err != nil && own:
		d.dialog.showRefusal(msg.failed + ": " + feed.Said(msg.err))
	case msg.err != nil:
		d.notes.showNote(themes.Bad, msg.failed+": "+feed.Said(msg.err))
	default:
		if own {
			d.closeDialog()
		}
		if msg.begun != nil {
			d.begun = msg.begun
		}
		d.notes.showClaim(themes.Good, msg.done, msg.claim, live)
	}
}

// say takes down who looks after the incident on screen. It changes nothing that the engine
// does, and can be said again: no dialog asks.
func (d *decisions) say(by decision.Operator, verb string, words []string) tea.Cmd {
	q, why := by.Say(verb, words)
	if q == nil {
		return d.askQuestion(nil, why)
	}
	return submitRequest(d.src, 0, decision.Request{Triage: q})
}

// askDemand asks about fencing a node, replacing a rank or lifting a fence; the
// reason may have been typed already.
func (d *decisions) askDemand(by decision.Operator, verb decision.Verb, words []string) tea.Cmd {
	ask := func() (decision.Question, string, decision.Refusal) {
		return by.Demand(verb, words)
	}
	if verb == decision.VerbBar {
		ask = func() (decision.Question, string, decision.Refusal) {
			return by.Bar(words)
		}
	}
	q, reason, why := ask()
	cmd := d.askQuestion(q, why)
	if q != nil {
		d.dialog.reason.SetValue(reason)
	}
	return cmd
}

// runningTest is the newest validation that this console knows of: the engine may
// have answered with one that is in no snapshot yet.
func (d *decisions) runningTest(live *page.State) *falconv1.Validation {
	v := live.Snap().GetValidation()
	if b := d.begun.GetId(); b > v.GetId() && len(b) >= len(v.GetId()) {
		return d.begun
	}
	return v
}
