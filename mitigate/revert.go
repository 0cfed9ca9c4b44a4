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
func (p *Planner) holding() []held {
	var out []held
	for _, s := range p.stories {
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
func (p *Planner) revertDue() {
	if p.flight != nil || p.policy.Frozen || p.restart() != nil {
		return
	}
	for _, h := range p.holding() {
		s, a := h.story, h.action()
		if (a.State != falcon.ActionApplied && a.State != falcon.ActionKept) || (a.RevertReason == "" && !s.over()) {
			continue
		}
		if s.reverts >= revertLimit && p.newest() < s.revertAt+revertAgain {
			continue
		}
		if b := p.busy(); p.stuck && a.Rung == falcon.RungS3 || b != nil && b != a && b.State == falcon.ActionApplied {
			continue
		}
		if why := p.needed(h); why != "" {
			if s.held != why {
				s.held = why
				p.note("action", "%s stays for now: %s", a.ID, why)
			}
			continue
		}
		p.revert(h)
		return
	}
}

func (p *Planner) revert(h held) {
	s, a := h.story, h.action()
	if a.RevertReason == "" {
		a.RevertReason = "the fault has cleared"
	}
	s.reverts++
	s.revertAt = p.newest()
	a.State = falcon.ActionReverting
	p.note("action", "%s is being reverted: %s", a.ID, a.RevertReason)
	if s.reverts == revertLimit {
		p.note("action", "%s: %d orders to revert it came to nothing; a further one follows every %d iterations", a.ID, revertLimit-1, revertAgain)
	}
	orders := len(p.ready.Orders)
	p.carryOn(s, h.i, p.newest()+1)
	if a.State == falcon.ActionReverted && len(p.ready.Orders) == orders {
		p.ready.Acted = append(p.ready.Acted, Acted{Incident: a.Incident, Rung: a.Rung, Iteration: a.RevertedIteration, Reverted: true, MicroBatches: slices.Clone(p.job.MicroBatches)})
	}
}

// needed says why a placement can't go yet: a newer one was built on it, or the
// other open faults are worse off at the old places. What they need instead is
// for their own next plan.
func (p *Planner) needed(h held) string {
	s, a := h.story, h.action()
	if a.Rung != falcon.RungS3 || !s.over() {
		return ""
	}
	for _, o := range p.holding() {
		if b := o.action(); b != a && b.Rung == falcon.RungS3 && b.AppliedIteration > a.AppliedIteration {
			return fmt.Sprintf("%s was built on it", b.ID)
		}
	}
	other := slices.IndexFunc(p.stories, func(o *story) bool { return o != s && o.located() && causeHelped(o, falcon.RungS3) == nil })
	if other < 0 || p.gauge == nil || p.gauge.model == nil || slices.Equal(a.Home, p.job.Placement) {
		return ""
	}
	w := p.work("without "+a.ID, func() worked {
		m := p.healed(*p.gauge.model, s)
		return worked{split: split{presentMs: p.bestMs(m, p.job.Placement), makespanMs: p.bestMs(m, a.Home)}}
	})
	if here, home := w.split.presentMs, w.split.makespanMs; home > here*(1+p.cfg.MinGain) {
		return fmt.Sprintf("with it %s costs %.1f ms an iteration, without it %.1f ms", p.stories[other].incident.ID, here, home)
	}
	return ""
}

// bestMs is the iteration time at some places with the split that suits them.
func (p *Planner) bestMs(m cost.Model, at falcon.Placement) float64 {
	now := p.job.Placement
	p.job.Placement = at
	defer func() { p.job.Placement = now }()
	best := p.solve(p.curves(nil, &m))
	if best.err != nil {
		return m.Iteration(at, p.job.MicroBatches).IterationMs
	}
	return best.makespanMs + m.RestMs
}

// revertTarget is the split that the job goes back to: after an action that did
// not help the one before it; when its fault has cleared the base split, or,
// while another action holds, the best split for the faults that remain. It
// never changes the batch.
func (p *Planner) revertTarget(s *story, a *falcon.Action) []int32 {
	want := total(p.job.MicroBatches)
	fits := func(m []int32) bool { return total(m) == want && len(m) == len(p.job.MicroBatches) }
	if !s.over() && fits(a.Previous) {
		return a.Previous
	}
	for _, h := range p.holding() {
		o := h.action()
		if h.story == s || h.story.over() || o.RevertReason != "" || len(o.MicroBatches) == 0 {
			continue
		}
		if best := p.splitWithout(s); best != nil {
			return best
		}
		if fits(o.MicroBatches) {
			return o.MicroBatches
		}
	}
	for _, m := range [][]int32{p.base, a.Base, a.Previous} {
		if fits(m) {
			return m
		}
	}
	return toInt32s(microbatch.Even(int(want), len(p.job.MicroBatches)))
}

// splitWithout is the best split once an incident's fault is gone, nil when
// that can't be told.
func (p *Planner) splitWithout(gone *story) []int32 {
	if p.gauge == nil || p.splittable() != nil {
		return nil
	}
	if p.gauge.model != nil {
		m := p.healed(*p.gauge.model, gone)
		return p.solve(p.curves(nil, &m)).counts
	}
	if speeds := p.healedSpeeds(gone); p.usable(speeds) && slices.Equal(p.gauge.placement, p.job.Placement) {
		return p.solve(p.curves(speeds, nil)).counts
	}
	return nil
}
