package decision

import (
	"fmt"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
)

// Pending is something that waits for a decision, as it was when it was asked
// about: a recovery, or an action that is proposed, or approved and not ordered.
// The answer is chosen afterwards, by Approve or Refuse.
type Pending struct {
	Recovery *falconv1.Recovery // or
	Proposal
	mine bool // who is asked has approved it: another person has to
}

// Waiting lists what waits for a decision: a recovery first, then the actions of
// the present incident and of the other open ones.
func Waiting(live *page.State) []*Pending {
	var out []*Pending
	snap := live.Snap()
	if r := proposedRecovery(snap); r != nil {
		out = append(out, &Pending{
			Recovery: r,
			Proposal: Proposal{Epoch: snap.GetJob().GetEpoch()},
		})
	}
	for _, l := range append([]*falconv1.Ladder{snap.GetLadder()}, snap.GetOthers()...) {
		for _, a := range l.GetActions() {
			switch falcon.ActionState(a.State) {
			case falcon.ActionProposed, falcon.ActionApproved:
				mine := phrase.Waits(a) && approvedMyself(live, a) != ""
				out = append(out, &Pending{Proposal: proposalOf(live, a), mine: mine})
			}
		}
	}
	return out
}

func proposedRecovery(s *falconv1.SnapshotReply) *falconv1.Recovery {
	if r := s.GetRecovery(); r.GetState() == string(falcon.RecoveryProposed) {
		return r
	}
	return nil
}

// Name is the id of what waits.
func (p *Pending) Name() string {
	if p.Recovery != nil {
		return p.Recovery.Id
	}
	return p.Action.Id
}

// PlanHash is the plan that was shown.
func (p *Pending) PlanHash() string {
	if p.Recovery != nil {
		return p.Recovery.PlanHash
	}
	return p.Action.PlanHash
}

// decisionStage is an action's state and how many have approved it.
func (p *Pending) decisionStage() string {
	if p.Recovery != nil {
		return ""
	}
	return fmt.Sprint(p.Action.State, len(p.Action.Approvals))
}

// Key distinguishes what is asked about once.
func (p *Pending) Key() string {
	return p.Name() + " " + p.PlanHash() + " " + p.decisionStage()
}

// Withdraws reports whether the action is approved: there is nothing left to
// approve, and a refusal takes the approval back.
func (p *Pending) Withdraws() bool {
	return p.Recovery == nil && p.Action.State == string(falcon.ActionApproved)
}

// OnlyRefuse reports whether this operator can't approve it.
func (p *Pending) OnlyRefuse() bool { return p.Withdraws() || p.mine }

// Changed returns why what waits is not what was asked about, or "".
func (p *Pending) Changed(live *page.State) string {
	if live.Feed.Conn != feed.Live {
		return "the engine is unreachable"
	}
	if r := proposedRecovery(live.Snap()); p.Recovery == nil && r != nil {
		return "recovery " + r.Id + " comes first"
	}
	now := p.asWaitingNow(live)
	switch {
	case now == nil:
		return p.Name() + " no longer waits for a decision"
	case now.decisionStage() != p.decisionStage():
		return p.Name() + " is " + page.Standing(live, now.Action)
	case now.PlanHash() != p.PlanHash():
		return "the plan of " + p.Name() + " has changed"
	case now.Epoch != p.Epoch:
		return "the job's epoch has changed"
	}
	return ""
}

func (p *Pending) asWaitingNow(live *page.State) *Pending {
	for _, x := range Waiting(live) {
		if x.Name() == p.Name() {
			return x
		}
	}
	return nil
}

// Approve is the question whether to approve what waits.
func (p *Pending) Approve() Question {
	if p.Recovery != nil {
		return &Recovery{Verb: VerbApprove, Recovery: p.Recovery}
	}
	return &Approve{p.Proposal}
}

// Refuse is the question whether to deny, veto or withdraw what waits.
func (p *Pending) Refuse() Question {
	if p.Recovery != nil {
		return &Recovery{Verb: VerbDeny, Recovery: p.Recovery}
	}
	return &Veto{p.Proposal}
}
