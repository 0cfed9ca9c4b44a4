package mitigate

import (
	"fmt"

	"github.com/failslow/falcon"
)

// wasUndone reports whether a person asked for its revert. The rung is not proposed again for the
// incident, also after a restart.
func wasUndone(a *falcon.Action) bool {
	return a.RevertKind == falcon.RevertUndone
}

// checkUndo judges the undoing of what is in force.
func (p *Planner) checkUndo(d Decision) error {
	_, a := p.incidents.findAction(func(a *falcon.Action) bool {
		return a.ID == d.Action
	})
	switch {
	case a == nil:
		return fmt.Errorf("%w: %s", ErrNoProposal, d.Action)
	case a.Variant == falcon.VariantFence && isInForce(a):
		return fmt.Errorf(
			"%w: %s has replaced a node by a recovery, which can't be undone; lift the fence once the node is sound",
			ErrNotUseful, a.ID,
		)
	case a.Rung == falcon.RungS4 && isInForce(a):
		return fmt.Errorf("%w: %s has restarted the job, which can't be undone", ErrNotUseful, a.ID)
	case a.State == falcon.ActionReverting:
		return fmt.Errorf("%w: %s is being reverted already: %s", ErrDecided, a.ID, a.RevertReason)
	case !isInForce(a):
		return fmt.Errorf("%w: %s is %s; there is nothing to undo", ErrDecided, a.ID, a.State)
	case a.RevertKind != "":
		return fmt.Errorf("%w: %s is about to be reverted: %s", ErrDecided, a.ID, a.RevertReason)
	case d.PlanHash != a.PlanHash:
		return fmt.Errorf("%w: %s is plan %s, you decided on plan %s; look again",
			ErrStalePlan, a.ID, a.PlanHash, d.PlanHash)
	case p.policy.frozen():
		return fmt.Errorf("%w: actions are frozen, unfreeze first", ErrPolicy)
	}
	return p.undoBlocked(a)
}

// undoBlocked is what has to be done or awaited before an action in force can be undone.
func (p *Planner) undoBlocked(a *falcon.Action) error {
	if o := p.incidents.actionUnderWay(); o != nil && o != a {
		return fmt.Errorf("%w: %s is %s, that comes first", ErrPolicy, o.ID, o.State)
	}
	for _, h := range p.incidents.actionsInForce() {
		b := h.action()
		if b != a &&
			b.AppliedIteration > a.AppliedIteration &&
			(a.Rung == falcon.RungS3 || b.Incident == a.Incident) {
			return fmt.Errorf("%w: %s was built on it; undo that first", ErrPolicy, b.ID)
		}
	}
	return nil
}

// undo has what is in force reverted like what did not help: the newest first, one order at a
// time, again where the ranks refuse.
func (p *Planner) undo(d Decision) {
	s, a := p.incidents.findAction(func(a *falcon.Action) bool {
		return a.ID == d.Action
	})
	a.RevertKind, a.RevertReason = falcon.RevertUndone, undoneBy+d.By+reasonSuffix(d.Reason)
	s.vetoed[a.Rung], s.reverts = true, 0
	p.out.addNote(a.ID, "decision", "%s is %s", a.ID, a.RevertReason)
	p.out.addAction(*a)
}
