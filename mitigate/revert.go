package mitigate

import (
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
	if e.orders.pending != nil || e.policy.current.Frozen || e.incidents.restartUnderWay() != nil {
		return
	}
	for _, h := range e.incidents.actionsInForce() {
		s, a := h.story, h.action()
		if (a.State != falcon.ActionApplied && a.State != falcon.ActionKept) || (a.RevertReason == "" && !s.over()) {
			continue
		}
		if s.reverts >= revertLimit && e.iterations.newest() < s.revertAt+revertAgain {
			continue
		}
		if b := e.incidents.actionUnderWay(); e.stuck && a.Rung == falcon.RungS3 || b != nil && b != a && b.State == falcon.ActionApplied {
			continue
		}
		if why := e.plans.blockedBy(h); why != "" {
			if s.held != why {
				s.held = why
				e.out.note("action", "%s stays for now: %s", a.ID, why)
			}
			continue
		}
		e.revert(h)
		return
	}
}

func (e *executor) revert(h held) {
	s, a := h.story, h.action()
	if a.RevertReason == "" {
		a.RevertReason = "the fault has cleared"
	}
	s.reverts++
	s.revertAt = e.iterations.newest()
	a.State = falcon.ActionReverting
	e.out.note("action", "%s is being reverted: %s", a.ID, a.RevertReason)
	if s.reverts == revertLimit {
		e.out.note("action", "%s: %d orders to revert it came to nothing; a further one follows every %d iterations", a.ID, revertLimit-1, revertAgain)
	}
	orders := len(e.out.ready.Orders)
	e.nextStep(s, h.i, e.iterations.newest()+1)
	if a.State == falcon.ActionReverted && len(e.out.ready.Orders) == orders {
		e.out.ready.Acted = append(e.out.ready.Acted, Acted{Incident: a.Incident, Rung: a.Rung, Iteration: a.RevertedIteration, Reverted: true, MicroBatches: slices.Clone(e.job.desc.MicroBatches)})
	}
}
