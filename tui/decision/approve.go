package decision

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
)

// Proposal is an action as it was when a question about it was asked.
type Proposal struct {
	Action  *falconv1.Action
	Verdict *falconv1.Verdict // of its incident
	IfWrong string            // the rung's rollback
	What    string            // S4 fence: which node gives way to which, "" otherwise
	Epoch   uint64            // of the job
	Word    string            // to be typed before an approval, or ""
}

// proposalOf is an action as the newest state has it; about shows its incident.
func proposalOf(about *page.State, a *falconv1.Action) Proposal {
	job := about.Snap().GetJob()
	p := Proposal{
		Action: a,
		Epoch:  job.GetEpoch(),
		Word:   restartWord(job, a.Rung),
	}
	for _, i := range about.Snap().Incidents {
		if i.Id == a.Incident {
			p.Verdict = i.Verdict
		}
	}
	for _, g := range about.LadderOf(a.Incident).GetRungs() {
		if g.Rung == a.Rung && g.Variant == a.Variant {
			p.IfWrong = g.IfWrong
			if a.Variant == string(falcon.VariantFence) {
				p.What = g.Reason
			}
		}
	}
	return p
}

// restartWord is what has to be typed before a rung that ends processes of
// the job: its name and its number of ranks, so that no other job is
// meant; "" of any other rung.
func restartWord(job *falconv1.Job, rung string) string {
	if rung != string(falcon.RungS4) {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%s %d", job.GetName(), job.GetWorld()))
}

// Restarts reports whether a rung ends all processes of the job.
func Restarts(rung, variant string) bool {
	return rung == string(falcon.RungS4) && variant != string(falcon.VariantFence)
}

func restartEntry(word string) Entry {
	if word == "" {
		return Entry{}
	}
	return Entry{
		Word:   word,
		What:   "the job's name and its number of ranks: " + word,
		Reason: MustReason,
	}
}

// Subject implements Question.
func (p *Proposal) Subject() string { return p.Action.GetId() }

// Incident implements Question.
func (p *Proposal) Incident() string { return p.Action.GetIncident() }

func (p *Proposal) decideRequest(approve bool, reason string) Request {
	return Request{Decide: &falconv1.DecideRequest{
		Incident: p.Action.Incident,
		Action:   p.Action.Id,
		PlanHash: p.Action.PlanHash,
		Approve:  approve,
		JobEpoch: p.Epoch,
		Reason:   boundedReason(reason),
	}}
}

// staleAgainst compares the proposal with what its incident has at hand now.
func (p *Proposal) staleAgainst(live *page.State, now *falconv1.Action) string {
	if why := otherEpoch(live, p.Epoch); why != "" {
		return why
	}
	switch {
	case now.GetId() != p.Action.Id:
		return fateOfProposal(live, p.Action)
	case now.PlanHash != p.Action.PlanHash:
		return planChanged
	}
	return ""
}

// Approve asks whether to approve a proposal.
type Approve struct{ Proposal }

// Now is the proposal as the newest state has it, or nil.
func (q *Approve) Now(live *page.State) *falconv1.Action {
	return live.ProposalOf(q.Action.Incident)
}

// Stale implements Question.
func (q *Approve) Stale(live *page.State) string {
	now := q.Now(live)
	if live.Snap().GetJob().GetEpoch() == q.Epoch && now.GetId() == q.Action.Id {
		if why := approvedMyself(live, now); why != "" {
			return why
		}
	}
	return q.staleAgainst(live, q.Now(live))
}

// Entry implements Question.
func (q *Approve) Entry() Entry { return restartEntry(q.Word) }

// Request implements Question.
func (q *Approve) Request(t Typed) Request {
	return q.decideRequest(true, t.Reason)
}

// Veto asks whether to veto a proposal or withdraw an approval that is not ordered.
type Veto struct{ Proposal }

// Now is the proposal, or the approval that is not ordered yet, in the newest state; or nil.
func (q *Veto) Now(live *page.State) *falconv1.Action {
	return live.AwaitedOf(q.Action.Incident)
}

// Withdraws reports whether the veto takes an approval back.
func (q *Veto) Withdraws() bool {
	return q.Action.GetState() == string(falcon.ActionApproved)
}

// Stale implements Question.
func (q *Veto) Stale(live *page.State) string {
	if why := q.tooLate(live); why != "" {
		return why
	}
	return q.staleAgainst(live, q.Now(live))
}

// tooLate says that what was to be withdrawn has gone out, and what is left to do; else "".
func (q *Veto) tooLate(live *page.State) string {
	if !q.Withdraws() || live.Snap().GetJob().GetEpoch() != q.Epoch {
		return ""
	}
	for _, a := range live.LadderOf(q.Action.Incident).GetActions() {
		if a.Id != q.Action.Id {
			continue
		}
		switch falcon.ActionState(a.State) {
		case falcon.ActionDispatched, falcon.ActionApplied, falcon.ActionKept:
		default:
			return ""
		}
		text := "too late: it went out"
		if ns := q.Action.GetDeadlineUnixNs(); ns > 0 {
			text += " at " + phrase.Clock(time.Unix(0, ns), live.EngineNow(), live.Zone)
		}
		if a.Rung == string(falcon.RungS4) {
			return text + "; a restart can't be undone"
		}
		return text + "; " + live.Key(key.Global, key.Undo) + " undoes it"
	}
	return ""
}

// Entry implements Question.
func (*Veto) Entry() Entry { return Entry{Reason: MayReason} }

// Request implements Question.
func (q *Veto) Request(t Typed) Request {
	return q.decideRequest(false, t.Reason)
}

// approvedMyself returns why this operator, as the first of two approvers, can't approve; else "".
func approvedMyself(live *page.State, a *falconv1.Action) string {
	if WantsTwo(live, a.GetRung()) && HasApproved(live, a) {
		return "you have approved " + a.Rung + " already; another person has to approve it, too"
	}
	return ""
}

// WantsTwo reports whether policy asks for a second approver of a rung.
func WantsTwo(live *page.State, rung string) bool {
	return live.Snap().GetPolicy().GetRungs()[rung].GetSecond()
}

// HasApproved reports whether who is at this console has approved an action.
func HasApproved(live *page.State, a *falconv1.Action) bool {
	return phrase.Has(a, live.Snap().GetActor())
}

// Undo is how long an approval of a rung can be withdrawn before it is ordered.
func Undo(live *page.State, rung string) time.Duration {
	return time.Duration(live.Snap().GetPolicy().GetRungs()[rung].GetUndoS() * float64(time.Second))
}

// fateOfProposal is what has become of a proposal, and by whom.
func fateOfProposal(live *page.State, asked *falconv1.Action) string {
	for _, a := range live.LadderOf(asked.Incident).GetActions() {
		if a.Id == asked.Id && a.State != string(falcon.ActionProposed) {
			return decidedText(a)
		}
	}
	return "this proposal is no longer open; close and look again"
}

func decidedText(a *falconv1.Action) string {
	vetoed := a.State == string(falcon.ActionVetoed)
	verb := "approved"
	after := "; it is " + a.State + " now"
	switch {
	case a.State == string(falcon.ActionExpired):
		return a.Rung + " expired" + phrase.Prefixed(": ", a.Reason) + "; close and look again"
	case vetoed:
		verb = "vetoed"
		after = phrase.Prefixed(": ", a.Reason)
	}
	at := ""
	if a.DecidedUnixNs > 0 {
		at = " at " + time.Unix(0, a.DecidedUnixNs).UTC().Format("15:04:05Z")
	}
	who := a.DecidedBy
	if !vetoed && len(a.Approvals) > 1 {
		who = phrase.Approvers(a)
	}
	return fmt.Sprintf("%s has %s this%s%s", cmp.Or(who, "another operator"), verb, at, after)
}

// FirstReason is ": REASON" where the first who approved gave one.
func FirstReason(a *falconv1.Action) string {
	if list := a.GetApprovals(); len(list) > 0 {
		return phrase.Prefixed(": ", list[0].GetReason())
	}
	return ""
}
