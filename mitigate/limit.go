package mitigate

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
)

// Hysteresis: a fault that flaps must not make the job flap. They bound what
// the planner proposes; a person may still step up by hand.
const (
	ActionsMost   = 6    // actions ordered within ActionsWithin
	ActionsWithin = 1000 // iterations
	CoolDown      = 20   // iterations after a revert before its culprit is offered a rung again
	FailuresMost  = 3    // orders of one incident that failed before it is left alone
)

// tooSoon says why hysteresis forbids a proposal now.
func (p *Planner) tooSoon(s *story) error {
	for _, o := range p.stories {
		for i := range o.actions {
			a := &o.actions[i]
			if p.thisEpoch(a) && a.State == falcon.ActionReverted && a.RevertedIteration > p.newest()-CoolDown && sameCulprit(o, s) {
				return fmt.Errorf("%s was reverted at iteration %d: %d iterations have to pass first", a.ID, a.RevertedIteration, CoolDown)
			}
		}
	}
	if n := len(p.switched); n >= ActionsMost && p.switched[n-ActionsMost] > p.newest()-ActionsWithin {
		return fmt.Errorf("%d actions within %d iterations are enough for now", ActionsMost, ActionsWithin)
	}
	return nil
}

// switching notes that an action is ordered.
func (p *Planner) switching(a *falcon.Action, at int64) {
	if !p.thisEpoch(a) {
		return
	}
	p.switched = append(p.switched, at)
	slices.Sort(p.switched)
	p.switched = p.switched[max(0, len(p.switched)-ActionsMost):]
}

func (p *Planner) thisEpoch(a *falcon.Action) bool {
	return a.JobEpoch == 0 || a.JobEpoch == p.job.Epoch
}

func sameCulprit(a, b *story) bool {
	if a == b {
		return true
	}
	v, w := a.incident.Verdict, b.incident.Verdict
	return slices.ContainsFunc(v.Devices, func(d falcon.Device) bool { return slices.Contains(w.Devices, d) }) ||
		slices.ContainsFunc(v.Links, func(l falcon.Link) bool { return slices.Contains(w.Links, l) })
}

// triedInVain keeps the ladder from climbing the same rung again: one that did
// not help is not offered again for the same incident, one whose order failed
// only a few times, and not at once.
func (p *Planner) triedInVain(s *story) bool {
	n := len(s.actions)
	if n == 0 {
		return false
	}
	last, failures := &s.actions[n-1], 0
	for i := range s.actions {
		if s.actions[i].State == falcon.ActionFailed {
			failures++
		}
	}
	switch last.State {
	case falcon.ActionReverted:
		return p.thisEpoch(last)
	case falcon.ActionFailed:
		return failures >= FailuresMost || p.newest() < max(s.failedAt, last.ProposedIteration)+CoolDown
	}
	return false
}
