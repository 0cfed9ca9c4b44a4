package engine

import (
	"fmt"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/mitigate"
)

// verbUndo is the verb of a decision that takes back what is in force.
const verbUndo = "undo"

// undo has an action in force reverted. It is durable, with who asked for it, before any order
// goes out.
func (ad *actionDecisions) undo(now time.Time, who Actor, q *falconv1.DecideRequest) (string, error) {
	if err := ad.sameEpoch(q); err != nil {
		return "", err
	}
	a, err := ad.undoable(q)
	if err != nil {
		return "", err
	}
	d := mitigate.Decision{
		Action:   a.ID,
		PlanHash: a.PlanHash,
		Undo:     true,
		By:       who.Name,
		Reason:   clean(q.GetReason()),
		From:     who.From,
		AtUnixNs: now.UnixNano(),
	}
	if q.GetPlanHash() != "" {
		d.PlanHash = q.GetPlanHash()
	}
	if err := ad.plan.Check(d); err != nil {
		return "", refused(err)
	}
	ad.plan.Step(now, d)
	ad.batch.addRecords(record(now, kindDecision, DecisionRecord{
		Action:   a.ID,
		Incident: a.Incident,
		PlanHash: a.PlanHash,
		JobEpoch: ad.state.job.Epoch,
		Rung:     a.Rung,
		Variant:  a.Variant,
		Verb:     verbUndo,
		Reason:   d.Reason,
		By:       who.Name,
		Role:     who.Role,
		From:     who.From,
	}))
	ad.oplog.audit(now, who, auditEntry{
		Verb:     verbUndo,
		About:    a.ID,
		PlanHash: a.PlanHash,
		Reason:   d.Reason,
	})
	return a.ID, nil
}

// undoable is the action that is meant: the one named, else the incident's newest that was
// ordered, of a rung where one is named.
func (ad *actionDecisions) undoable(q *falconv1.DecideRequest) (falcon.Action, error) {
	id := q.GetIncident()
	if _, known := ad.state.incident(id); !known {
		return falcon.Action{}, noIncident(id)
	}
	l, _ := ad.plan.Ladder(id)
	for i := len(l.Actions) - 1; i >= 0; i-- {
		a := l.Actions[i]
		switch {
		case q.GetAction() != "" && a.ID != q.GetAction(), q.GetRung() != "" && string(a.Rung) != q.GetRung():
			continue
		case q.GetAction() != "" || inForce(a):
			return a, nil
		}
	}
	return falcon.Action{}, fmt.Errorf("%w: nothing is in force for %s that could be undone",
		ErrStale, clean(id))
}

func inForce(a falcon.Action) bool {
	switch a.State {
	case falcon.ActionApplied, falcon.ActionKept, falcon.ActionReverting:
		return true
	case falcon.ActionProposed, falcon.ActionApproved, falcon.ActionVetoed,
		falcon.ActionDispatched, falcon.ActionReverted, falcon.ActionRetained, falcon.ActionFailed,
		falcon.ActionExpired:
	}
	return false
}
