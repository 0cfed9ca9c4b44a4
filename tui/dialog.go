package tui

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"charm.land/bubbles/v2/textinput"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"
	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/validate"
	"github.com/failslow/falcon/tui/phrase"
)

// guard is how long a dialog that has just opened ignores keys: what was
// typed for the screen below must not press its buttons.
const guard = 400 * time.Millisecond

type kind int

const (
	kindApprove kind = iota
	kindVeto
	kindTake
	kindPolicy
	kindUnfreeze
	kindValidate
	kindRecover
	kindQuit
)

// interrupt leaves when it is pressed twice.
const interrupt = "ctrl+c"

// unfreezeWord must be typed; it can't be pasted.
const unfreezeWord = "unfreeze"

// Where the focus may stand; 0 is always Cancel. Only a restart's dialog has
// the fields as stops: it alone has two.
const (
	buttonCancel = iota
	buttonDo
	fieldWord
	fieldReason
)

// dialog is one question. What it would send is fixed when it opens: the
// operator decides on what was on screen then.
type dialog struct {
	id      int
	kind    kind
	opened  time.Time
	focus   int
	choice  int
	input   textinput.Model // reason, or the typed word
	word    string          // a restart: what must be typed
	reason  textinput.Model // a restart: why, beside the word
	pane    viewport.Model  // what is asked
	sending bool
	err     string

	action  *falconv1.Action          // approve, veto: as seen at opening
	rung    *falconv1.RungView        // take: as seen at opening
	inc     string                    // approve, veto, take: the incident; never another while it is open
	verdict *falconv1.Verdict         // approve, take
	ifWrong string                    // approve: the rung's rollback
	epoch   uint64                    // job epoch as seen at opening
	policy  *falconv1.Policy          // policy, unfreeze: as seen at opening
	options []*falconv1.Policy        // policy
	test    *falconv1.ValidateRequest // validate
	ask     *recoverAsk               // recover
}

type decidedMsg struct {
	dialog  int
	approve bool
	action  *falconv1.Action
	err     error
}

type policyMsg struct {
	dialog int // 0 = not from a dialog
	policy *falconv1.Policy
	err    error
}

func (m *Model) open(d *dialog) tea.Cmd {
	m.opened++
	d.id, d.opened = m.opened, m.now()
	d.pane = viewport.New()
	if d.restarts() {
		d.word = m.restartWord()
		d.reason = newInput(m.table, key.Dialog, "", maxInput)
	}
	if d.takesText() {
		d.input = newInput(m.table, key.Dialog, "", maxInput)
	}
	m.dialog = d
	return m.redrawAfter(guard + 10*time.Millisecond)
}

// redraw asks for a new picture after d, when a dialog's buttons come alive.
func redraw(d time.Duration) tea.Cmd {
	return tea.Tick(d, func(time.Time) tea.Msg { return armedMsg{} })
}

// may says whether the operator's role reaches another; the engine checks
// again, this only spares a refusal.
func (m *Model) may(need string) bool {
	return m.opts.Replay == nil && feed.Covers(m.live.Snap().Role, need)
}

// lacks says why an action is not offered, or "".
func (m *Model) lacks(need, what string) string {
	if m.opts.Replay != nil {
		return noDecision
	}
	if m.live.Feed.Conn != feedLive {
		return what + " needs the engine, which is unreachable"
	}
	if !m.may(need) {
		return fmt.Sprintf("%s needs the role %s; yours is %s", what, need, orNone(m.live.Snap().Role))
	}
	return ""
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func (m *Model) openApprove() tea.Cmd {
	return m.openDecision(kindApprove, buttonCancel, "approving")
}

// openVeto starts on Veto: it changes nothing in the job.
func (m *Model) openVeto() tea.Cmd {
	return m.openDecision(kindVeto, buttonDo, "a veto")
}

func (m *Model) openDecision(k kind, focus int, what string) tea.Cmd {
	if why := m.lacks("approver", what); why != "" {
		m.say(themes.Warn, why)
		return nil
	}
	if why := m.unseen(); why != "" && k == kindApprove {
		m.say(themes.Warn, why)
		return nil
	}
	s := m.awaited()
	p := s.Awaited()
	if why := m.noApproval(); why != "" && (k == kindApprove || p == nil) {
		m.say(themes.Dim, why)
		return nil
	}
	d := &dialog{kind: k, focus: focus, action: p, inc: p.Incident, epoch: m.live.Snap().GetJob().GetEpoch()}
	if inc := s.Incident(); inc != nil {
		d.verdict = inc.Verdict
	}
	for _, g := range s.Snap().GetLadder().GetRungs() {
		if g.Rung == p.Rung && g.Variant == p.Variant {
			d.ifWrong = g.IfWrong
		}
	}
	return m.open(d)
}

func (m *Model) openPolicy() tea.Cmd {
	if why := m.lacks("approver", "changing the mode"); why != "" {
		m.say(themes.Warn, why)
		return nil
	}
	p := m.live.Snap().GetPolicy()
	if p == nil {
		m.say(themes.Warn, "the engine has sent no policy yet")
		return nil
	}
	d := &dialog{kind: kindPolicy, policy: p, options: modes(p)}
	for i, o := range d.options {
		if o.Mode == p.Mode && (o.Mode != "auto" || o.Cap == p.Cap) {
			d.choice = i
		}
	}
	return m.open(d)
}

// modes are the policies to choose from; all else of the policy stays. S4 acts
// by itself only where the policy file says so and names an owner.
func modes(p *falconv1.Policy) []*falconv1.Policy {
	with := func(mode, top string) *falconv1.Policy {
		q := proto.CloneOf(p)
		q.Mode, q.Cap = mode, top
		return q
	}
	return []*falconv1.Policy{with("observe", p.Cap), with("approve", p.Cap), with("auto", "S1"), with("auto", "S2"), with("auto", "S3")}
}

// openQuit starts on Leave, which harms no job.
func (m *Model) openQuit() tea.Cmd { return m.open(&dialog{kind: kindQuit, focus: buttonDo}) }

// freeze acts at once; the way back needs the typed word.
func (m *Model) freeze() tea.Cmd {
	p := m.live.Snap().GetPolicy()
	if p.GetFrozen() {
		if why := m.lacks("approver", "unfreezing"); why != "" {
			m.say(themes.Warn, why)
			return nil
		}
		return m.open(&dialog{kind: kindUnfreeze, focus: buttonDo, policy: p})
	}
	if !m.may("operator") {
		m.say(themes.Warn, m.lacks("operator", "freezing"))
		return nil
	}
	m.say(themes.Accent, "freezing …")
	return func() tea.Msg {
		got, err := m.src.Freeze(context.Background())
		return policyMsg{policy: got, err: err}
	}
}

// dialogKey handles a key while a dialog is open. Cancelling always works;
// everything else waits for the guard and for a call under way.
func (m *Model) dialogKey(k tea.KeyPressMsg) tea.Cmd {
	d := m.dialog
	a := m.table.Lookup(k, key.Dialog)
	if d.kind == kindQuit && k.String() == interrupt {
		m.leaving = true // asked for twice
		return tea.Quit
	}
	if a == key.Cancel {
		m.dialog = nil
		return nil
	}
	if d.sending || m.now().Sub(d.opened) < guard {
		return nil
	}
	switch a {
	case key.Left:
		d.step(-1)
	case key.Right:
		d.step(+1)
	case key.Up:
		d.move(-1)
	case key.Down:
		d.move(+1)
	case key.Confirm:
		return m.press()
	default:
		d.typed(k)
	}
	return nil
}

// stops are where tab takes the focus, in turn.
func (d *dialog) stops() []int {
	if d.word != "" {
		return []int{buttonCancel, fieldWord, fieldReason, buttonDo}
	}
	return []int{buttonCancel, buttonDo}
}

func (d *dialog) step(by int) {
	list := d.stops()
	d.focus = list[(slices.Index(list, d.focus)+by+len(list))%len(list)]
}

// typed gives a key to the text entry; of two, to the one in focus. What is
// typed on a button of a dialog with two begins the word.
func (d *dialog) typed(k tea.KeyPressMsg) {
	switch {
	case !d.takesText():
	case d.word == "":
		d.input = enter(d.input, k)
	case d.focus == fieldReason:
		d.reason = enter(d.reason, k)
	default:
		if k.Text != "" {
			d.focus = fieldWord
		}
		if d.focus == fieldWord {
			d.input = enter(d.input, k)
		}
	}
}

func (d *dialog) move(by int) {
	if d.kind == kindPolicy {
		d.choice = max(0, min(len(d.options)-1, d.choice+by))
		return
	}
	if by < 0 {
		d.pane.ScrollUp(1)
	} else {
		d.pane.ScrollDown(1)
	}
}

func (d *dialog) takesText() bool {
	return d.kind == kindVeto || d.kind == kindUnfreeze || d.word != "" || d.ask.takesReason()
}

// paste is taken as a reason, never as a confirmation.
func (d *dialog) paste(msg tea.PasteMsg) {
	switch {
	case d.sending:
	case d.kind == kindVeto || d.ask.takesReason():
		d.input = enter(d.input, msg)
	case d.focus == fieldReason:
		d.reason = enter(d.reason, msg)
	}
}

// press presses the focused button.
func (m *Model) press() tea.Cmd {
	d := m.dialog
	switch d.focus {
	case buttonCancel:
		m.dialog = nil
		return nil
	case fieldWord, fieldReason:
		d.step(+1) // enter ends a field; only the button acts
		return nil
	}
	if m.blocked(d) != "" {
		return nil
	}
	switch d.kind {
	case kindApprove, kindVeto:
		return m.decide(d)
	case kindTake:
		return m.take(d)
	case kindPolicy:
		return m.setPolicy(d, d.options[d.choice])
	case kindUnfreeze:
		p := proto.CloneOf(d.policy)
		p.Frozen = false
		return m.setPolicy(d, p)
	case kindValidate:
		return m.validate(d)
	case kindRecover:
		return m.sendRecover(d)
	case kindQuit:
		m.leaving = true
		return tea.Quit
	}
	return nil
}

// blocked says why the dialog's action can't be pressed now, or "".
func (m *Model) blocked(d *dialog) string {
	switch d.kind {
	case kindApprove, kindVeto:
		if why := m.overtaken(d); why != "" {
			return why
		}
	case kindTake:
		if why := m.outdated(d); why != "" {
			return why
		}
	case kindUnfreeze:
		if d.input.Value() != unfreezeWord {
			return "type the word " + unfreezeWord
		}
	case kindValidate:
		if v := m.live.Snap().GetValidation(); validate.Underway(v) {
			return v.Id + " is in progress"
		}
	case kindRecover:
		if why := m.stale(d.ask); why != "" {
			return why
		}
		if d.ask.wantsReason() && strings.TrimSpace(d.input.Value()) == "" {
			return "say why: it is kept with the decision"
		}
	case kindPolicy, kindQuit:
	}
	if d.kind != kindQuit && m.live.Feed.Conn != feedLive {
		return "the engine is unreachable"
	}
	return d.missing()
}

// missing says what a restart's dialog still wants, or "".
func (d *dialog) missing() string {
	switch {
	case d.word == "":
	case d.input.Value() != d.word:
		return "type the job's name and its number of ranks: " + d.word
	case strings.TrimSpace(d.reason.Value()) == "":
		return "say why: the reason is kept with the decision"
	}
	return ""
}

func (m *Model) decide(d *dialog) tea.Cmd {
	d.sending, d.err = true, ""
	r := &falconv1.DecideRequest{
		Incident: d.action.Incident, Action: d.action.Id, PlanHash: d.action.PlanHash,
		Approve: d.kind == kindApprove, JobEpoch: d.epoch,
	}
	r.Reason = d.why()
	id := d.id
	return func() tea.Msg {
		a, err := m.src.Decide(context.Background(), r)
		return decidedMsg{id, r.Approve, a, err}
	}
}

// why is the reason that goes with a decision.
func (d *dialog) why() string {
	switch {
	case d.kind == kindVeto:
		return strings.TrimSpace(d.input.Value())
	case d.word != "":
		return strings.TrimSpace(d.reason.Value())
	}
	return ""
}

func (m *Model) setPolicy(d *dialog, p *falconv1.Policy) tea.Cmd {
	d.sending, d.err = true, ""
	id := d.id
	return func() tea.Msg {
		got, err := m.src.SetPolicy(context.Background(), p)
		return policyMsg{id, got, err}
	}
}

// decided shows the engine's answer: a refusal in the dialog, or in the
// footer when the dialog has been closed meanwhile.
func (m *Model) decided(msg decidedMsg) {
	verb := map[bool]string{true: "approved", false: "vetoed or withdrawn"}[msg.approve]
	if msg.err != nil {
		m.failed(msg.dialog, "not "+verb+": "+msg.err.Error())
		return
	}
	m.close(msg.dialog)
	m.say(themes.Good, page.Action(msg.action))
}

func (m *Model) policySet(msg policyMsg) {
	if msg.err != nil {
		m.failed(msg.dialog, "mode not changed: "+msg.err.Error())
		return
	}
	m.close(msg.dialog)
	m.say(themes.Good, "mode is now "+phrase.Mode(msg.policy))
}

func (m *Model) failed(id int, text string) {
	m.dirty = true
	if m.dialog != nil && m.dialog.id == id {
		m.dialog.sending, m.dialog.err = false, text
		return
	}
	m.say(themes.Bad, text)
}

func (m *Model) close(id int) {
	if m.dialog != nil && m.dialog.id == id {
		m.dialog = nil
	}
	m.dirty = true
}
