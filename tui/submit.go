package tui

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/key"
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
}

// submit sends a request in a command.
func submit(src Source, dialog int, r decision.Request) tea.Cmd {
	return func() tea.Msg {
		msg := sendRequest(src, r)
		msg.dialog = dialog
		return msg
	}
}

func sendRequest(src Source, r decision.Request) answerMsg {
	ctx := context.Background()
	switch {
	case r.Decide != nil:
		a, err := src.Decide(ctx, r.Decide)
		failed := "not vetoed or withdrawn"
		if r.Decide.Approve {
			failed = "not approved"
		}
		return answerOf(err, failed, func() string { return phrase.Action(a) })
	case r.Recover != nil:
		got, err := src.Recover(ctx, r.Recover)
		return answerOf(err, "not done ("+r.Recover.Verb+")", func() string {
			if got.GetId() == "" {
				return r.Recover.Verb + " taken"
			}
			return got.Id + " " + got.State
		})
	case r.Validate != nil:
		v, err := src.Validate(ctx, r.Validate)
		msg := answerOf(err, "no test", func() string { return v.GetId() + " " + v.GetState() })
		msg.begun = v
		return msg
	}
	p, err := src.SetPolicy(ctx, r.Policy)
	return policyAnswer(p, err)
}

func answerOf(err error, failed string, done func() string) answerMsg {
	if err != nil {
		return answerMsg{failed: failed, err: err}
	}
	return answerMsg{done: done()}
}

func policyAnswer(p *falconv1.Policy, err error) answerMsg {
	return answerOf(err, "mode not changed", func() string { return "mode is now " + phrase.Mode(p) })
}

// decisions owns the open dialog and what came of the questions before it.
type decisions struct {
	src    Source
	keys   *key.Map
	now    func() time.Time
	notes  *notes
	redraw func(time.Duration) tea.Cmd // draws again later; tests have no use for it

	dialog *dialog
	opened int                  // numbers dialogs, so that a late answer finds its own
	begun  *falconv1.Validation // the engine's newest answer to a test; a snapshot may come after it
}

// pose opens a question's dialog, or says why it is not asked.
func (d *decisions) pose(q decision.Question, why decision.Refusal) tea.Cmd {
	if q == nil {
		role := themes.Warn
		if why.Mild {
			role = themes.Dim
		}
		d.notes.say(role, why.Text)
		return nil
	}
	d.opened++
	d.dialog = newDialog(d.opened, q, d.keys, d.now())
	return d.redraw(decision.Guard + redrawMargin)
}

// interrupt leaves when it is pressed twice.
const interrupt = "ctrl+c"

// key handles a key while a dialog is open; leave is that the console ends.
func (d *decisions) key(k tea.KeyPressMsg, live *page.State) (cmd tea.Cmd, leave bool) {
	open := d.dialog
	if open.leaves() && k.String() == interrupt {
		return nil, true // asked for twice
	}
	switch open.key(k, d.keys.Lookup(k, key.Dialog), live, d.now()) {
	case cancelled:
		d.dialog = nil
	case pressed:
		r := open.submit()
		return submit(d.src, open.id, r), r.Leave
	case keepOpen:
	}
	return nil, false
}

// answered shows the engine's answer: a refusal in the dialog, or in the
// footer when the dialog has been closed since.
func (d *decisions) answered(msg answerMsg) {
	own := d.dialog != nil && d.dialog.id == msg.dialog
	switch {
	case msg.err != nil && own:
		d.dialog.refused(msg.failed + ": " + msg.err.Error())
	case msg.err != nil:
		d.notes.say(themes.Bad, msg.failed+": "+msg.err.Error())
	default:
		if own {
			d.dialog = nil
		}
		if msg.begun != nil {
			d.begun = msg.begun
		}
		d.notes.say(themes.Good, msg.done)
	}
}

// freeze acts at once; the way back asks.
func (d *decisions) freeze(by decision.Operator) tea.Cmd {
	if q, why := by.Freeze(); q != nil || why.Text != "" {
		return d.pose(q, why)
	}
	d.notes.say(themes.Accent, "freezing …")
	src := d.src
	return func() tea.Msg { return policyAnswer(src.Freeze(context.Background())) }
}

// demand asks about fencing a node, replacing a rank or lifting a fence; the
// reason may have been typed already.
func (d *decisions) demand(by decision.Operator, verb decision.Verb, words []string) tea.Cmd {
	q, reason, why := by.Demand(verb, words)
	cmd := d.pose(q, why)
	if q != nil {
		d.dialog.reason.SetValue(reason)
	}
	return cmd
}

// running is the newest validation that this console knows of: the engine may
// have answered with one that is in no snapshot yet.
func (d *decisions) running(live *page.State) *falconv1.Validation {
	v := live.Snap().GetValidation()
	if b := d.begun.GetId(); b > v.GetId() && len(b) >= len(v.GetId()) {
		return d.begun
	}
	return v
}

// stopTest lets the job go at once: the safe direction needs no dialog.
func (d *decisions) stopTest(by decision.Operator) tea.Cmd {
	v := d.running(by.Live)
	if why := by.StopTest(v); why.Text != "" {
		return d.pose(nil, why)
	}
	d.notes.say(themes.Accent, "letting the job go …")
	return submit(d.src, 0, decision.Request{Validate: &falconv1.ValidateRequest{Cancel: v.Id}})
}
