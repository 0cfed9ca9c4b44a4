package mitigate

import (
	"fmt"
	"math"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/microbatch"
)

// onCommitted takes the ranks' agreement: the vote is the commit, so this is
// when an action is in force, whatever happened to messages in between.
func (p *Planner) onCommitted(in Committed) {
	f := p.flight
	if f == nil || f.order != in.Order {
		f = p.givenUp(in.Order)
	} else {
		p.flight = nil
	}
	if f == nil {
		return
	}
	if in.Status != 0 {
		p.refused(f, in.Status)
		p.advance()
		return
	}
	if len(in.MicroBatches) > 0 {
		f.target = in.MicroBatches
	}
	p.inForceNow(f, in.Iteration)
	p.advance()
}

func (p *Planner) inForceNow(f *flight, iteration int64) {
	a := &f.story.actions[f.action]
	p.job.MicroBatches = slices.Clone(f.target)
	acted := Acted{Incident: a.Incident, Rung: a.Rung, Iteration: iteration, Reverted: f.reverting, MicroBatches: f.target}
	p.ready.Acted = append(p.ready.Acted, acted)
	if f.reverting {
		a.State, a.RevertedIteration = falcon.ActionReverted, iteration
		p.note("action", "%s reverted from iteration %d: micro-batches %v", a.ID, iteration, f.target)
	} else {
		a.State, a.AppliedIteration = falcon.ActionApplied, iteration
		p.note("action", "%s in force from iteration %d: micro-batches %v", a.ID, iteration, f.target)
	}
	p.changed(*a)
}

// givenUp finds the action of an order that was taken for lost, and that the
// ranks agreed on after all: their vote counts, not our patience.
func (p *Planner) givenUp(order uint64) *flight {
	for _, s := range p.stories {
		n := len(s.actions) - 1
		if n < 0 || s.actions[n].OrderID != order {
			continue
		}
		switch a := &s.actions[n]; {
		case a.State == falcon.ActionFailed:
			return &flight{story: s, action: n, order: order, target: a.MicroBatches}
		case a.State == falcon.ActionKept && a.RevertReason != "":
			return &flight{story: s, action: n, order: order, target: a.Previous, reverting: true}
		}
	}
	return nil
}

func (p *Planner) refused(f *flight, status int32) {
	a := &f.story.actions[f.action]
	if f.reverting {
		a.State = falcon.ActionKept // still in force; advance tries again, within the limit
	} else {
		a.State, f.story.failedAt = falcon.ActionFailed, p.newest()
		a.Reason = fmt.Sprintf("the job refused it (status %d)", status)
	}
	p.changed(*a)
	p.note("action", "%s was refused by the job (status %d)", a.ID, status)
}

// onUndeliverable ends an order that the ranks will never agree on.
func (p *Planner) onUndeliverable(in Undeliverable) {
	f := p.flight
	if f == nil || f.order != in.Order {
		return
	}
	p.flight = nil
	a := &f.story.actions[f.action]
	if f.reverting {
		a.State = falcon.ActionKept
	} else {
		a.State, f.story.failedAt = falcon.ActionFailed, p.newest()
		a.Reason = in.Reason
	}
	p.changed(*a)
	p.note("action", "%s: the order could not be delivered: %s", a.ID, in.Reason)
	p.advance()
}

// measure verifies the gain of an applied action: the median of the first
// settled iterations against the time before. An action that brought less
// than its share of the prediction is undone.
func (p *Planner) measure(s *story) {
	a := s.current()
	if a == nil || a.State != falcon.ActionApplied {
		return
	}
	settled := a.AppliedIteration + int64(p.cfg.SettleIterations)
	after := p.span(settled, math.MaxInt64)
	if len(after) < p.cfg.MeasureIterations {
		return
	}
	after = after[:p.cfg.MeasureIterations] // the first ones seen: some may have gone by while the engine was down
	a.MeasuredMs = median(after)
	for _, ms := range p.span(a.AppliedIteration, settled) {
		a.OverheadMs += max(0, ms-a.MeasuredMs)
	}
	m := p.overheads[a.Rung]
	p.overheads[a.Rung] = mean{m.sum + a.OverheadMs, m.n + 1}
	a.State = falcon.ActionKept
	gain, wanted := a.BeforeMs-a.MeasuredMs, a.BeforeMs-a.PredictedMs
	p.note("action", "%s measured: %.1f ms, predicted %.1f ms, before %.1f ms", a.ID, a.MeasuredMs, a.PredictedMs, a.BeforeMs)
	if gain < max(p.cfg.KeepShare*wanted, p.cfg.MinGain*a.BeforeMs/2) && s.incident.Open() {
		a.RevertReason = fmt.Sprintf("it did not help enough: %.1f ms before, %.1f ms after, %.1f ms predicted", a.BeforeMs, a.MeasuredMs, a.PredictedMs)
	}
	p.changed(*a)
}

// span lists the times of iterations from..to−1 that were seen.
func (p *Planner) span(from, to int64) []float64 {
	var out []float64
	for _, it := range p.history {
		if it.Index >= from && it.Index < to {
			out = append(out, it.Ms)
		}
	}
	return out
}

// revertIfDue undoes an action that did not help or whose fault has cleared. It
// asks again whenever something kept it from being ordered.
func (p *Planner) revertIfDue(s *story) {
	a := s.current()
	if a == nil || (a.State != falcon.ActionApplied && a.State != falcon.ActionKept) {
		return
	}
	if a.RevertReason == "" && !s.over() {
		return
	}
	if p.flight != nil || p.policy.Frozen || (s.reverts >= revertLimit && p.newest() < s.revertAt+revertAgain) {
		return
	}
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
	p.send(s, len(s.actions)-1, p.revertTarget(s, a), true)
}

// revertTarget is what the job goes back to: the base split, or, while another
// action holds, the best split for the faults that remain. It never changes
// the batch.
func (p *Planner) revertTarget(s *story, a *falcon.Action) []int32 {
	want := total(p.job.MicroBatches)
	for _, other := range p.inForceStories() {
		if other == s || other.current().RevertReason != "" {
			continue
		}
		if speeds := p.healed(other, s); p.usable(speeds) && want <= totalMost {
			if best := p.solve(speeds); best.counts != nil {
				return best.counts
			}
		}
		if m := other.current().MicroBatches; total(m) == want {
			return m
		}
	}
	for _, m := range [][]int32{p.base, a.Base, a.Previous} {
		if total(m) == want && len(m) == len(p.job.MicroBatches) {
			return m
		}
	}
	return toInt32s(microbatch.Even(int(want), len(p.job.MicroBatches)))
}

// healed are the speeds that one incident was planned with, with the culprits
// of another that goes taken for as fast as the other ranks of their stage.
func (p *Planner) healed(of, gone *story) []float64 {
	out := slices.Clone(of.speeds)
	if !p.usable(out) {
		return nil
	}
	for _, r := range gone.incident.Verdict.Ranks {
		if int(r) >= len(out) || r < 0 || slices.Contains(of.incident.Verdict.Ranks, r) {
			continue
		}
		var peers []float64
		for q, v := range of.speeds {
			named := slices.Contains(of.incident.Verdict.Ranks, falcon.Rank(q)) || slices.Contains(gone.incident.Verdict.Ranks, falcon.Rank(q))
			if !named && p.job.Layout.Coord(falcon.Rank(q)).PP == p.job.Layout.Coord(r).PP {
				peers = append(peers, v)
			}
		}
		if len(peers) > 0 {
			out[r] = min(out[r], median(peers))
		}
	}
	return out
}

// overheadMs is what taking rung r costs: the mean measured so far, one
// healthy iteration before there is a measurement.
func (p *Planner) overheadMs(r falcon.Rung, s *story) float64 {
	if m := p.overheads[r]; m.n > 0 {
		return m.sum / float64(m.n)
	}
	return s.incident.HealthyMs
}

// OverheadsMs are the learned overheads, for the journal.
func (p *Planner) OverheadsMs() map[falcon.Rung]float64 {
	out := map[falcon.Rung]float64{}
	for r, m := range p.overheads {
		if m.n > 0 {
			out[r] = m.sum / float64(m.n)
		}
	}
	return out
}

// Ladder is the operator's view of one incident; ok is false for an unknown id.
func (p *Planner) Ladder(incident string) (falcon.Ladder, bool) {
	s := p.story(incident)
	if s == nil {
		return falcon.Ladder{}, false
	}
	out := falcon.Ladder{
		Incident: incident, ImpactMs: s.cost.ImpactMs,
		LostGPUh: s.cost.LostGPUMs / 3.6e6,
		Actions:  slices.Clone(s.actions),
		Rungs:    []falcon.RungView{p.viewS1(s), p.viewS2(s)},
	}
	if a := s.current(); a != nil && a.State == falcon.ActionProposed {
		proposal := *a
		out.Proposal = &proposal
	}
	return out, true
}

func (p *Planner) viewS1(s *story) falcon.RungView {
	a := s.current()
	return falcon.RungView{
		Rung: falcon.RungS1, Applicable: true, Reason: "ignore and wait: free, gains nothing",
		BreakEven: 0, ImpactMs: s.cost.ImpactMs, PredictMs: p.slowMs(s),
		Current: s.incident.Open() && (a == nil || !inForce(a.State)),
	}
}

func (p *Planner) viewS2(s *story) falcon.RungView {
	v := falcon.RungView{
		Rung: falcon.RungS2, OverheadMs: p.overheadMs(falcon.RungS2, s),
		BreakEven: falcon.NoIteration, ImpactMs: s.cost.ImpactMs,
	}
	if per := s.incident.SlowMs - s.incident.HealthyMs; per > 0 {
		v.BreakEven = int64(min(v.OverheadMs/per, 1e15)) + 1
	}
	if a := s.current(); a != nil {
		v.Applicable, v.PredictMs, v.GainMs = true, a.PredictedMs, a.BeforeMs-a.PredictedMs
		v.Current = inForce(a.State)
		v.Reason = "moves micro-batches to faster replicas: " + string(a.State)
		return v
	}
	plan, err := p.planS2(s)
	if err != nil {
		v.Reason = err.Error()
		return v
	}
	v.Applicable, v.PredictMs, v.GainMs = true, plan.predictedMs, plan.beforeMs-plan.predictedMs
	v.Reason = "moves micro-batches to faster replicas"
	return v
}
