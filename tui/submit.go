package tui

import (
	"context"
	"strconv"

	tea "charm.land/bubbletea/v2"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/page/recovery"
	"github.com/failslow/falcon/tui/page/validate"
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
		return answerOf(err, failed, func() string { return page.Action(a) })
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

// answered shows the engine's answer: a refusal in the dialog, or in the
// footer when the dialog has been closed meanwhile.
func (m *Model) answered(msg answerMsg) {
	m.dirty = true
	own := m.dialog != nil && m.dialog.id == msg.dialog
	switch {
	case msg.err != nil && own:
		m.dialog.refused(msg.failed + ": " + msg.err.Error())
	case msg.err != nil:
		m.say(themes.Bad, msg.failed+": "+msg.err.Error())
	default:
		if own {
			m.dialog = nil
		}
		if msg.begun != nil {
			m.begun = msg.begun
		}
		m.say(themes.Good, msg.done)
	}
}

// operator is who decides at this console, and what they see.
func (m *Model) operator() decision.Operator {
	return decision.Operator{
		Live: m.live, Subject: m.subject(), At: m.awaited(), Replay: m.opts.Replay != nil,
		Unseen: m.unseen(), ReadOnly: m.readOnly(), Others: m.waitingElse(),
	}
}

// pose opens a question's dialog, or says why it is not asked.
func (m *Model) pose(q decision.Question, why decision.Refusal) tea.Cmd {
	if q == nil {
		role := themes.Warn
		if why.Mild {
			role = themes.Dim
		}
		m.say(role, why.Text)
		return nil
	}
	m.opened++
	m.dialog = newDialog(m.opened, q, m.table, m.now())
	return m.redrawAfter(decision.Guard + redrawMargin)
}

// decideBy leads to what decides something; all but freezing and letting a job
// go ask first.
func (m *Model) decideBy(a key.Action) tea.Cmd {
	switch a {
	case key.Approve:
		return m.pose(m.operator().Decide(true))
	case key.Veto:
		return m.pose(m.operator().Decide(false))
	case key.TakeRung:
		if at, ok := m.pages[key.Ladder].(*ladder.Page); ok {
			return m.pose(m.operator().Take(at.Chosen(m.subject()), m.now()))
		}
	case key.Mode:
		return m.pose(m.operator().SetMode())
	case key.Freeze:
		return m.freeze()
	case key.RunTest:
		return m.openTest(nil)
	case key.StopTest:
		return m.stopTest()
	case key.AbortRecovery:
		return m.pose(m.operator().Recover(decision.VerbAbort))
	case key.FenceNode:
		m.promptFor(decision.VerbFence)
	case key.RenewRank:
		m.promptFor(decision.VerbRenew)
	}
	return nil
}

// freeze acts at once; the way back asks.
func (m *Model) freeze() tea.Cmd {
	if q, why := m.operator().Freeze(); q != nil || why.Text != "" {
		return m.pose(q, why)
	}
	m.say(themes.Accent, "freezing …")
	src := m.src
	return func() tea.Msg { return policyAnswer(src.Freeze(context.Background())) }
}

// promptFor fills a command in, for the reason to be typed behind.
func (m *Model) promptFor(verb decision.Verb) {
	at, ok := m.pages[key.Recovery].(*recovery.Page)
	if !ok {
		return
	}
	what := at.Node(m.state)
	if verb == decision.VerbRenew {
		what = strconv.Itoa(int(at.Rank(m.state)))
	}
	text := string(verb) + " "
	if what != "" {
		text += what + " "
	}
	m.openPalette(text)
}

// demand asks about fencing a node, replacing a rank or lifting a fence; the
// reason may have been typed already.
func (m *Model) demand(verb decision.Verb, words []string) tea.Cmd {
	q, reason, why := m.operator().Demand(verb, words)
	cmd := m.pose(q, why)
	if q != nil {
		m.dialog.reason.SetValue(reason)
	}
	return cmd
}

// openTest asks before the job is held: for the links named, else for what is
// picked.
func (m *Model) openTest(links []string) tea.Cmd {
	if why := m.operator().LacksApprover("a test"); why != "" {
		return m.pose(nil, decision.Refusal{Text: why})
	}
	m.show(key.Validate)
	return m.pose(m.operator().Test(m.pages[key.Validate].(*validate.Page).Request(links, m.state)))
}

// running is the newest validation that this console knows of: the engine may
// have answered with one that is in no snapshot yet.
func (m *Model) running() *falconv1.Validation {
	v := m.live.Snap().GetValidation()
	if b := m.begun.GetId(); b > v.GetId() && len(b) >= len(v.GetId()) {
		return m.begun
	}
	return v
}

// stopTest lets the job go at once: the safe direction needs no dialog.
func (m *Model) stopTest() tea.Cmd {
	v := m.running()
	if why := m.operator().StopTest(v); why.Text != "" {
		return m.pose(nil, why)
	}
	m.say(themes.Accent, "letting the job go …")
	return submit(m.src, 0, decision.Request{Validate: &falconv1.ValidateRequest{Cancel: v.Id}})
}
