package decision

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
)

// Roles that decisions need.
const (
	roleOperator = "operator"
	roleApprover = "approver"
)

// NotInReplay is why nothing can be decided in a recording.
const NotInReplay = "this is a recording: nothing can be decided in it"

// Operator is who asks to decide, and what they see.
type Operator struct {
	Live     *page.State // the newest state
	Subject  *page.State // the same, of the incident that the screen is about
	At       *page.State // the same, of the incident that approving and vetoing act on
	Replay   bool        // a recording is shown
	Unseen   string      // why At is not what the page shows, or ""
	ReadOnly string      // why the incident that is looked at can only be read, or ""
	Others   []string    // other incidents that wait for a decision
}

// Refusal is why a question is not asked.
type Refusal struct {
	Text string
	Mild bool // nothing is wrong, there is just nothing to decide
}

func refuseWith(text string) (Question, Refusal) {
	return nil, Refusal{Text: text}
}

func nothingToDecide(text string) (Question, Refusal) {
	return nil, Refusal{Text: text, Mild: true}
}

func askQuestion(q Question) (Question, Refusal) { return q, Refusal{} }

// May reports whether the operator's role covers another. The engine checks again.
func (o Operator) May(need string) bool {
	return !o.Replay && feed.Covers(o.Live.Snap().Role, need)
}

// MayDecide reports whether the operator may approve and veto.
func (o Operator) MayDecide() bool { return o.May(roleApprover) }

// Lacks returns why an action that needs a role is not offered, or "".
func (o Operator) Lacks(need, what string) string {
	switch {
	case o.Replay:
		return NotInReplay
	case o.Live.Feed.Conn != feed.Live:
		return what + " needs the engine, which is unreachable"
	case !o.May(need):
		return fmt.Sprintf("%s needs the role %s; yours is %s",
			what, need, cmp.Or(o.Live.Snap().Role, "none"))
	}
	return ""
}

// LacksApprover returns why what an approver may do is not offered, or "".
func (o Operator) LacksApprover(what string) string {
	return o.Lacks(roleApprover, what)
}

// CantApprove returns why what is at hand can't be approved here, or "".
func (o Operator) CantApprove() string {
	switch p := o.At.Proposal(); {
	case p == nil && o.At.Pending() != nil:
		a := o.At.Pending()
		return a.Rung +
			" is " +
			page.Standing(o.Live, a) +
			"; " +
			o.Live.Key(key.Global, key.Veto) +
			" withdraws it"
	case p == nil:
		return o.nothingProposed()
	default:
		return approvedMyself(o.Live, p)
	}
}

// nothingProposed returns that nothing waits on the incident on screen, and which one does.
func (o Operator) nothingProposed() string {
	id := o.Subject.Incident().GetId()
	switch {
	case len(o.Others) > 0:
		return "nothing is proposed for " + id + "; " + o.Others[0] + " waits: " +
			o.Live.Key(key.Global, key.Why) + " shows it"
	case id != "" && o.Live.OpenIncidents() > 1:
		return "nothing is proposed for " + id + " now"
	}
	return "nothing is proposed now"
}

// Decide asks about what waits: a recovery comes before a mitigation.
func (o Operator) Decide(approve bool) (Question, Refusal) {
	switch {
	case o.Live.Asked() != nil && approve:
		return o.Recover(VerbApprove)
	case o.Live.Asked() != nil:
		return o.Recover(VerbDeny)
	case approve:
		return o.Approve()
	}
	return o.Veto()
}

// Approve asks about the proposal at hand.
func (o Operator) Approve() (Question, Refusal) {
	if why := o.LacksApprover("approving"); why != "" {
		return refuseWith(why)
	}
	if o.Unseen != "" {
		return refuseWith(o.Unseen)
	}
	if why := o.CantApprove(); why != "" {
		return nothingToDecide(why)
	}
	return askQuestion(&Approve{proposalOf(o.At, o.At.Proposal())})
}

// Veto asks about what is proposed, or approved and not ordered. Vetoing is
// safe: it is offered for what is not on screen too.
func (o Operator) Veto() (Question, Refusal) {
	if why := o.LacksApprover("a veto"); why != "" {
		return refuseWith(why)
	}
	p := o.At.Awaited()
	if p == nil {
		return nothingToDecide(o.CantApprove())
	}
	return askQuestion(&Veto{proposalOf(o.At, p)})
}

// Take asks about a rung of the subject's ladder; one that is proposed is approved.
func (o Operator) Take(g *falconv1.RungView, now time.Time) (Question, Refusal) {
	if why := o.LacksApprover("taking a rung"); why != "" {
		return refuseWith(why)
	}
	if o.ReadOnly != "" {
		return refuseWith(o.ReadOnly)
	}
	switch prop := o.Subject.Proposal(); {
	case g == nil:
		return nothingToDecide("there is no incident to take a rung for")
	case prop == nil && o.At.Pending() != nil:
		return refuseWith(o.CantApprove())
	case g.Rung == string(falcon.RungS1):
		return nothingToDecide("S1 is what happens when nothing is taken")
	case prop != nil && prop.Rung == g.Rung && prop.Variant == g.Variant:
		return o.Approve()
	case !g.Applicable:
		return refuseWith(phrase.RungName(g) + " can't be taken: " + g.Reason)
	case g.Current:
		return nothingToDecide(phrase.RungName(g) + " is in force")
	}
	job := o.Live.Snap().GetJob()
	return askQuestion(&Take{
		Rung:    g,
		Verdict: o.Subject.Incident().GetVerdict(),
		Opened:  now,
		about:   o.Subject.Snap().GetLadder().GetIncident(),
		epoch:   job.GetEpoch(),
		word:    restartWord(job, g.Rung),
	})
}

// SetMode asks who may act.
func (o Operator) SetMode() (Question, Refusal) {
	if why := o.LacksApprover("changing the mode"); why != "" {
		return refuseWith(why)
	}
	p := o.Live.Snap().GetPolicy()
	if p == nil {
		return refuseWith("the engine has sent no policy yet")
	}
	return askQuestion(newSetMode(p))
}

// Freeze asks about freezing, or about unfreezing.
func (o Operator) Freeze() (Question, Refusal) {
	p := o.Live.Snap().GetPolicy()
	if !p.GetFrozen() {
		if why := o.Lacks(roleOperator, "freezing"); why != "" {
			return refuseWith(why)
		}
		return askQuestion(&Freeze{})
	}
	if why := o.LacksApprover("unfreezing"); why != "" {
		return refuseWith(why)
	}
	return askQuestion(&Unfreeze{Policy: p})
}

// Recover asks about the recovery in progress.
func (o Operator) Recover(verb Verb) (Question, Refusal) {
	if why := o.LacksApprover("a decision on a recovery"); why != "" {
		return refuseWith(why)
	}
	switch r := o.Live.Recovering(); {
	case r == nil:
		return nothingToDecide("no recovery is in progress")
	case verb == VerbAbort && r.NoReturn:
		return refuseWith(r.Id + " can't be aborted: the ranks were ordered to rejoin")
	case verb == VerbEnded && !r.AwaitsProof:
		return nothingToDecide(r.Id + " does not wait for a proof that the job's processes have ended")
	default:
		return askQuestion(&Recovery{Verb: verb, Recovery: r})
	}
}

// Demand asks about fencing a node, replacing a rank's process or lifting a
// fence: words are the name, then the reason, which comes back.
func (o Operator) Demand(verb Verb, words []string) (q Question, reason string, why Refusal) {
	if why := o.LacksApprover("a " + string(verb)); why != "" {
		return nil, "", Refusal{Text: why}
	}
	if len(words) == 0 {
		return nil, "", Refusal{
			Text: string(verb) + " takes a " +
				map[bool]string{true: "rank", false: "node"}[verb == VerbRenew] + " and the reason",
		}
	}
	d, text := newDemand(o.Live, verb, words[0])
	if text != "" {
		return nil, "", Refusal{Text: text}
	}
	return d, strings.Join(words[1:], " "), Refusal{}
}

// Test asks before the job is held for a test.
func (o Operator) Test(r *falconv1.ValidateRequest) (Question, Refusal) {
	if why := o.LacksApprover("a test"); why != "" {
		return refuseWith(why)
	}
	if o.Live.Roster.World() == 0 {
		return refuseWith("no job is attached: there is no rank to test")
	}
	if r.LinkTest && len(r.Ranks) == 1 && len(r.Links) == 0 {
		return refuseWith("a link has two ends: pick another rank, a group with d or s, or GPUs only with t")
	}
	return askQuestion(&Test{Test: r})
}

// StopTest asks about ending a test.
func (o Operator) StopTest(running *falconv1.Validation) (Question, Refusal) {
	if !page.Underway(running) {
		return nothingToDecide("no validation is in progress")
	}
	if why := o.LacksApprover("ending a test"); why != "" {
		return refuseWith(why)
	}
	return askQuestion(&EndTest{ID: running.GetId()})
}
