package mitigate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/cost"
	"github.com/failslow/falcon/mitigate/microbatch"
)

// held is one action in force.
type held struct {
	story *story
	i     int
}

func (h held) action() *falcon.Action { return &h.story.actions[h.i] }

// holding lists the splits and placements in force, newest first.
func (n *incidentSet) actionsInForce() []held {
	var out []held
	for _, s := range n.list {
		for i := range s.actions {
			if a := &s.actions[i]; inForce(a) && a.Rung != falcon.RungS4 {
				out = append(out, held{s, i})
			}
		}
	}
	slices.SortFunc(out, func(x, y held) int {
		a, b := x.action(), y.action()
		return cmp.Or(cmp.Compare(b.AppliedIteration, a.AppliedIteration), cmp.Compare(b.OrderID, a.OrderID))
	})
	return out
}

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

// needed says why a placement can't go yet: a newer one was built on it, or the
// other open faults are worse off at the old places. What they need instead is
// for their own next plan.
func (pm *planMaker) blockedBy(h held) string {
	s, a := h.story, h.action()
	if a.Rung != falcon.RungS3 || !s.over() {
		return ""
	}
	for _, o := range pm.incidents.actionsInForce() {
		if b := o.action(); b != a && b.Rung == falcon.RungS3 && b.AppliedIteration > a.AppliedIteration {
			return fmt.Sprintf("%s was built on it", b.ID)
		}
	}
	other := slices.IndexFunc(pm.incidents.list, func(o *story) bool { return o != s && o.located() && causeHelped(o, falcon.RungS3) == nil })
	if other < 0 || pm.profile.newest == nil || pm.profile.newest.model == nil || slices.Equal(a.Home, pm.job.desc.Placement) {
		return ""
	}
	w := pm.cache.solve("without "+a.ID, func() worked {
		m := pm.profile.withoutFaults(*pm.profile.newest.model, s)
		return worked{split: split{presentMs: pm.bestMs(m, pm.job.desc.Placement), makespanMs: pm.bestMs(m, a.Home)}}
	})
	if here, home := w.split.presentMs, w.split.makespanMs; home > here*(1+pm.cfg.MinGain) {
		return fmt.Sprintf("with it %s costs %.1f ms an iteration, without it %.1f ms", pm.incidents.list[other].incident.ID, here, home)
	}
	return ""
}

// bestMs is the iteration time at some places with the split that suits them.
func (pm *planMaker) bestMs(m cost.Model, at falcon.Placement) float64 {
	now := pm.job.desc.Placement
	pm.job.desc.Placement = at
	defer func() { pm.job.desc.Placement = now }()
	best := pm.solveSplit(pm.replicaCurves(nil, &m))
	if best.err != nil {
		return m.Iteration(at, pm.job.desc.MicroBatches).IterationMs
	}
	return best.makespanMs + m.RestMs
}

// revertTarget is the split that the job goes back to: after an action that did
// not help the one before it; when its fault has cleared the base split, or,
// while another action holds, the best split for the faults that remain. It
// never changes the batch.
func (pm *planMaker) revertTarget(s *story, a *falcon.Action) []int32 {
	want := total(pm.job.desc.MicroBatches)
	fits := func(m []int32) bool { return total(m) == want && len(m) == len(pm.job.desc.MicroBatches) }
	if !s.over() && fits(a.Previous) {
		return a.Previous
	}
	for _, h := range pm.incidents.actionsInForce() {
		o := h.action()
		if h.story == s || h.story.over() || o.RevertReason != "" || len(o.MicroBatches) == 0 {
			continue
		}
		if best := pm.splitWithout(s); best != nil {
			return best
		}
		if fits(o.MicroBatches) {
			return o.MicroBatches
		}
	}
	for _, m := range [][]int32{pm.job.base, a.Base, a.Previous} {
		if fits(m) {
			return m
		}
	}
	return toInt32s(microbatch.Even(int(want), len(pm.job.desc.MicroBatches)))
}

// splitWithout is the best split once an incident's fault is gone, nil when
// that can't be told.
func (pm *planMaker) splitWithout(gone *story) []int32 {
	if pm.profile.newest == nil || pm.job.splittable() != nil {
		return nil
	}
	if pm.profile.newest.model != nil {
		m := pm.profile.withoutFaults(*pm.profile.newest.model, gone)
		return pm.solveSplit(pm.replicaCurves(nil, &m)).counts
	}
	if speeds := pm.profile.speedsWithout(gone); pm.job.coversAllRanks(speeds) && slices.Equal(pm.profile.newest.placement, pm.job.desc.Placement) {
		return pm.solveSplit(pm.replicaCurves(speeds, nil)).counts
	}
	return nil
}
