package decision

import (
	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
)

// TakeBack asks whether to take back what is in force. It needs no reason, but takes one.
type TakeBack struct {
	Action *falconv1.Action // as it was shown
	epoch  uint64
}

// InForce is the newest action in force for an incident, or nil.
func InForce(live *page.State, incident string) *falconv1.Action {
	list := live.LadderOf(incident).GetActions()
	for i := len(list) - 1; i >= 0; i-- {
		switch falcon.ActionState(list[i].GetState()) {
		case falcon.ActionApplied, falcon.ActionKept, falcon.ActionReverting:
			return list[i]
		case falcon.ActionProposed, falcon.ActionApproved, falcon.ActionVetoed,
			falcon.ActionDispatched, falcon.ActionReverted, falcon.ActionRetained,
			falcon.ActionFailed, falcon.ActionExpired:
		}
	}
	return nil
}

// Undo asks about what is in force for the incident on screen.
func (o Operator) Undo() (Question, Refusal) {
	if why := o.LacksApprover("undoing"); why != "" {
		return refuseWith(why)
	}
	id := o.Subject.Incident().GetId()
	a := InForce(o.Live, id)
	switch {
	case id == "":
		return nothingToDecide("there is no incident: nothing is in force")
	case a == nil:
		return nothingToDecide("nothing is in force for " + id)
	case a.State == string(falcon.ActionReverting):
		return nothingToDecide(a.Rung + " is being reverted already" + phrase.Because(a))
	case a.Rung == string(falcon.RungS4):
		return refuseWith(
			"a restart can't be undone" +
				map[bool]string{
					true: "; lift the fence once the node is sound",
				}[a.Variant == string(falcon.VariantFence)],
		)
	}
	return askQuestion(&TakeBack{
		Action: a,
		epoch:  o.Live.Snap().GetJob().GetEpoch(),
	})
}

// Subject implements Question.
func (q *TakeBack) Subject() string { return "undo " + q.Action.GetId() }

// Incident implements Question.
func (q *TakeBack) Incident() string { return q.Action.GetIncident() }

// Stale implements Question.
func (q *TakeBack) Stale(live *page.State) string {
	if why := otherEpoch(live, q.epoch); why != "" {
		return why
	}
	switch now := InForce(live, q.Action.Incident); {
	case now.GetId() != q.Action.Id:
		return "it is no longer in force; close and look again"
	case now.State == string(falcon.ActionReverting):
		return q.Action.Rung + " is being reverted already" + phrase.Because(now)
	}
	return ""
}

// Entry implements Question.
func (*TakeBack) Entry() Entry { return Entry{Reason: MayReason} }

// Request implements Question.
func (q *TakeBack) Request(t Typed) Request {
	return Request{Decide: &falconv1.DecideRequest{
		Incident: q.Action.Incident,
		Action:   q.Action.Id,
		PlanHash: q.Action.PlanHash,
		Undo:     true,
		JobEpoch: q.epoch,
		Reason:   boundedReason(t.Reason),
	}}
}
