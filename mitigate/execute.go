package mitigate

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// orderApproved orders what is approved, one order at a time.
func (e *executor) orderApproved(s *incidentState) {
	i := s.underWayIndex()
	if i < 0 ||
		s.actions[i].State != falcon.ActionApproved ||
		!e.released(s, &s.actions[i]) ||
		e.orders.hasPending() {
		return
	}
	a := &s.actions[i]
	if why := e.plans.staleFence(s, a); why != "" {
		e.out.expireAction(a, why)
		return
	}
	if a.Variant == falcon.VariantFence && !e.mayFence(s, a) {
		return
	}
	a.DeadlineUnixNs = 0
	a.State = falcon.ActionDispatched
	e.limits.recordOrdered(a, e.iterations.newestIndex())
	if a.Variant == falcon.VariantFence {
		e.demandFence(a)
		return
	}
	if a.Rung == falcon.RungS4 {
		a.Phase = falcon.PhaseCheckpoint
		e.orders.sendOrder(
			s,
			i,
			falcon.Order{Kind: falcon.OrderCheckpoint, Leave: true},
			&pendingOrder{},
		)
		return
	}
	e.nextStep(s, i, e.iterations.newestIndex()+1)
}

// released reports whether nothing stops an approved action any more: neither a
// freeze nor the time in which a person's approval can be withdrawn. What was
// stopped has that time again, since much may have happened meanwhile.
func (e *executor) released(s *incidentState, a *falcon.Action) bool {
	undo := e.policy.rungPolicy(a.Rung).Undo
	switch {
	case e.policy.frozen() || e.policy.observing():
		if a.DeadlineUnixNs != 0 {
			a.DeadlineUnixNs = 0
			e.out.addNote(a.ID, "action", "%s is approved and waits: %s",
				a.ID, e.policy.stopReason())
			e.out.addAction(*a)
		}
		return false
	case s.incident.State == "": // the fault may be gone: its state follows the journal's actions
		return false
	case a.DeadlineUnixNs == 0 && undo > 0 && len(a.Approvals) > 0:
		a.DeadlineUnixNs = e.clock.now.Add(time.Duration(undo * float64(time.Second))).UnixNano()
		e.out.addNote(a.ID, "action", "%s is ordered in %.0f s unless an operator withdraws it", a.ID, undo)
		e.out.addAction(*a)
		return false
	}
	return a.DeadlineUnixNs == 0 || e.clock.now.UnixNano() >= a.DeadlineUnixNs
}

// nextStep orders the next step of S2 or S3 on its way into force, or out of it
// while it is being reverted: first places, then the split that suits them.
// With nothing left to do the action is in force (or undone) from iteration at.
func (e *executor) nextStep(s *incidentState, i int, at int64) {
	a := &s.actions[i]
	place, counts := a.Placement, a.MicroBatches
	if a.State == falcon.ActionReverting {
		place = a.Home
		if a.Rung == falcon.RungS2 || slices.Equal(place, e.job.desc.Placement) {
			counts = e.plans.revertTarget(s, a)
		}
	}
	switch {
	case a.Rung == falcon.RungS3 && !slices.Equal(place, e.job.desc.Placement):
		blocks, err := blocksTo(e.job.desc.Placement, place, e.job.desc.Layout.TP)
		if err != nil {
			e.failStep(s, i, err.Error())
			return
		}
		a.Phase = falcon.PhasePlacement
		e.orders.sendOrder(
			s,
			i,
			falcon.Order{Kind: falcon.OrderPlacement, Blocks: blocks},
			&pendingOrder{placement: slices.Clone(place)},
		)
	case len(counts) > 0 &&
		!slices.Equal(counts, e.job.desc.MicroBatches) &&
		!e.orders.hasPending():
		if a.Rung == falcon.RungS3 {
			a.Phase = falcon.PhaseSplit
		}
		e.orders.sendOrder(
			s,
			i,
			falcon.Order{Kind: falcon.OrderMicroBatches, MicroBatches: slices.Clone(counts)},
			&pendingOrder{counts: slices.Clone(counts)},
		)
	default:
		e.completeStep(s, i, at)
	}
}

// onCommitted takes the ranks' agreement: the vote is the commit, so this is
// when a step is in force, whatever happened to messages in between.
func (e *executor) onCommitted(in Committed) {
	f := e.orders.takeOrder(in.Order)
	if f == nil {
		f = e.reviveStep(in.Order)
	}
	if f == nil {
		return
	}
	a := &f.incident.actions[f.action]
	if in.Status != 0 {
		e.failStep(f.incident, f.action, fmt.Sprintf("the job refused it (status %d)", in.Status))
		return
	}
	acted := Acted{
		Incident:  a.Incident,
		Rung:      a.Rung,
		Iteration: in.Iteration,
		Reverted:  f.reverting,
	}
	switch f.kind {
	case falcon.OrderCheckpoint:
		e.checkpointed(a, in)
		return
	case falcon.OrderPlacement:
		e.job.setPlacement(f.placement)
		acted.Placement = slices.Clone(f.placement)
		if in.Swap != nil {
			swap := *in.Swap
			a.Swap = &swap
		}
		e.out.addNote(a.ID, "action", "%s: the ranks changed places at iteration %d%s",
			a.ID, in.Iteration, stepsText(a.Swap))
	default:
		e.job.setSplit(f.counts)
		if len(in.MicroBatches) > 0 {
			e.job.setSplit(in.MicroBatches)
		}
	}
	acted.MicroBatches = slices.Clone(e.job.desc.MicroBatches)
	e.out.addActed(acted)
	e.cache.invalidate()
	e.expireAll(f.incident.actions[f.action].ID)
	e.nextStep(f.incident, f.action, in.Iteration)
}

func stepsText(s *falcon.Swap) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf(" (pause %.0f, dump %.0f, swap %.0f, restore %.0f ms; %.1f MB moved)",
		s.StepMs[0], s.StepMs[1], s.StepMs[2], s.StepMs[3], s.MovedMB)
}

// expireAll drops what was planned for a job that is another now, also
// where it is approved and can still be withdrawn.
func (e *executor) expireAll(by string) {
	for _, s := range e.incidents.list {
		for i := range s.actions {
			e.out.expireAction(&s.actions[i], "it was planned for the job before "+by)
		}
	}
}

// completeStep ends an action whose steps were all taken: it is in force, or undone.
func (e *executor) completeStep(s *incidentState, i int, at int64) {
	a := &s.actions[i]
	a.Phase = ""
	if a.State == falcon.ActionReverting {
		a.State = falcon.ActionReverted
		a.RevertedIteration = at
		s.reverts = 0
		e.out.addNote(a.ID, "action", "%s reverted from iteration %d: %s",
			a.ID, at, e.job.describe(a))
	} else {
		a.State = falcon.ActionApplied
		a.AppliedIteration = at
		e.ledger.resetClocks(a.Rung)
		e.out.addNote(a.ID, "action", "%s in force from iteration %d: %s",
			a.ID, at, e.job.describe(a))
	}
	e.out.addAction(*a)
}

// reviveStep finds the step of an order that was taken for lost, and that the
// ranks agreed on after all: their vote counts, not our patience.
func (e *executor) reviveStep(order uint64) *pendingOrder {
	for _, s := range e.incidents.list {
		for i := range s.actions {
			a := &s.actions[i]
			if a.OrderID != order || order == 0 {
				continue
			}
			switch {
			case a.State == falcon.ActionFailed &&
				(a.Rung == falcon.RungS2 ||
					a.Phase == falcon.PhasePlacement ||
					a.Phase == falcon.PhaseCheckpoint):
				a.State = falcon.ActionDispatched
				return e.orders.orderOf(s, i)
			case a.State == falcon.ActionKept && a.RevertKind != "":
				a.State = falcon.ActionReverting
				return e.orders.orderOf(s, i)
			}
		}
	}
	return nil
}

// onUndeliverable ends an order that the ranks will never agree on.
func (e *executor) onUndeliverable(in Undeliverable) {
	if f := e.orders.takeOrder(in.Order); f != nil {
		e.failStep(f.incident, f.action, in.Reason)
	}
}

// failStep ends a step that came to nothing. An action that was to be undone is
// still in force, and advance tries again within the limit; one whose ranks
// have changed places goes on with the split that they have.
func (e *executor) failStep(s *incidentState, i int, why string) {
	a := &s.actions[i]
	switch {
	case a.State == falcon.ActionReverting:
		a.State = falcon.ActionKept
		e.stuck = e.stuck || a.Phase == falcon.PhasePlacement
	case a.Phase == falcon.PhaseSplit:
		a.MicroBatches = slices.Clone(e.job.desc.MicroBatches)
		e.out.addNote(a.ID, "action", "%s: the split that was to follow failed: %s", a.ID, why)
		e.completeStep(s, i, e.iterations.newestIndex()+1)
		return
	default:
		a.State, s.failedAt = falcon.ActionFailed, e.iterations.newestIndex()
		a.Reason = why
	}
	e.out.addAction(*a)
	e.out.addNote(a.ID, "action", "%s: its order failed, the job continues unchanged: %s", a.ID, why)
}

// executor carries approved actions out, step by step, and undoes them.
type executor struct {
	clock      *clock
	policy     *policyState
	iterations *iterationLog
	out        *output
	job        *jobState
	incidents  *incidentSet
	orders     *orderSlot
	ledger     *costLedger
	cache      *planCache
	plans      *planMaker
	limits     *limiter
	look       *remeasurer
	generation uint64 // of the newest launch
	stuck      bool   // an order to put ranks back failed, and no iteration has come since
}

// onIteration ends the wait of orders that failed while no iteration came.
func (e *executor) onIteration() {
	e.stuck = false
}

// reserve keeps generations up to one from being used again.
func (e *executor) reserve(generation uint64) {
	e.generation = max(e.generation, generation)
}
