package mitigate

import (
	"cmp"
	"slices"

	"github.com/failslow/falcon"
)

// revertDue undoes the newest action that did not help or whose fault has
// cleared. It asks again whenever something kept it from being ordered.
//
// An order to put ranks back that came to nothing waits for an iteration: ranks
// vote where one begins, and while such an order is out a job that stalls counts as
// held, so that a further one would hide a fault for as long again. Nor is an action
// undone while another one is measured: that would spoil the measurement.
func (e *executor) revertDue() {
	if e.orders.hasPending() ||
		e.policy.frozen() ||
		e.incidents.restartUnderWay() != nil {
		return
	}
	for _, h := range e.incidents.actionsInForce() {
		s := h.incident
		a := h.action()
		if (a.State != falcon.ActionApplied && a.State != falcon.ActionKept) ||
			(a.RevertKind == "" && !s.isOver()) {
			continue
		}
		if s.reverts >= revertTries && e.iterations.newestIndex() < s.revertAt+revertAgain {
			continue
		}
		b := e.incidents.actionUnderWay()
		if e.stuck && a.Rung == falcon.RungS3 ||
			b != nil && b != a && b.State == falcon.ActionApplied {
			continue
		}
		places := e.judgePlaces(h)
		if why := cmp.Or(places.waits, e.plans.blockedBy(h)); why != "" {
			if s.holdReason != why {
				s.holdReason = why
				e.out.addNote(a.ID, "action", "%s is not reverted yet: %s", a.ID, why)
			}
			continue
		}
		if places.stays != "" {
			e.retain(h, places.stays)
			return
		}
		e.revertAction(h)
		return
	}
}

func (e *executor) revertAction(h actionRef) {
	s := h.incident
	a := h.action()
	a.RevertKind = cmp.Or(a.RevertKind, falcon.RevertCleared)
	a.RevertReason = cmp.Or(a.RevertReason, "the fault has cleared")
	s.reverts++
	s.revertAt = e.iterations.newestIndex()
	a.State = falcon.ActionReverting
	e.out.addNote(a.ID, "action", "%s is being reverted: %s", a.ID, a.RevertReason)
	if s.reverts == revertTries {
		e.out.addNote(a.ID, "action",
			"%s: %d orders to revert it failed; another follows every %d iterations",
			a.ID, revertTries-1, revertAgain)
	}
	e.nextStep(s, h.index, e.iterations.newestIndex()+1)
	if a.State == falcon.ActionReverted { // without an order: the job runs so already
		e.out.addActed(Acted{
			Incident:     a.Incident,
			Rung:         a.Rung,
			Iteration:    a.RevertedIteration,
			Reverted:     true,
			MicroBatches: slices.Clone(e.job.desc.MicroBatches),
		})
	}
}
