package mitigate

import (
	"slices"

	"github.com/failslow/falcon"
)

// onCommitted takes the ranks' agreement: the vote is the commit, so this is
// when an action is in force, whatever happened to messages in between.
func (p *Planner) onCommitted(in Committed) {
	f := p.flight
	if f == nil || f.order != in.Order {
		return
	}
	p.flight = nil
	a := &f.story.actions[f.action]
	if in.Status != 0 {
		p.refused(f, in.Status)
		return
	}
	p.job.MicroBatches = slices.Clone(f.target)
	acted := Acted{Incident: a.Incident, Rung: a.Rung, Iteration: in.Iteration, Reverted: f.reverting, MicroBatches: f.target}
	p.ready.Acted = append(p.ready.Acted, acted)
	if f.reverting {
		a.State, a.RevertedIteration = falcon.ActionReverted, in.Iteration
		p.note("action", "%s reverted from iteration %d: micro-batches %v", a.ID, in.Iteration, f.target)
	} else {
		a.State, a.AppliedIteration = falcon.ActionApplied, in.Iteration
		p.note("action", "%s in force from iteration %d: micro-batches %v", a.ID, in.Iteration, f.target)
	}
	p.changed(*a)
	p.advance()
}

func (p *Planner) refused(f *flight, status int32) {
	a := &f.story.actions[f.action]
	if f.reverting {
		a.State = falcon.ActionKept // still in force; advance tries again, within the limit
	} else {
		a.State = falcon.ActionFailed
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
		a.State = falcon.ActionFailed
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
	after := p.span(settled, settled+int64(p.cfg.MeasureIterations))
	if len(after) < p.cfg.MeasureIterations {
		return
	}
	a.MeasuredMs = median(after)
	for _, ms := range p.span(a.AppliedIteration, settled) {
		a.OverheadMs += max(0, ms-a.MeasuredMs)
	}
	m := p.overheads[a.Rung]
	p.overheads[a.Rung] = mean{m.sum + a.OverheadMs, m.n + 1}
	a.State = falcon.ActionKept
	gain, wanted := a.BeforeMs-a.MeasuredMs, a.BeforeMs-a.PredictedMs
	p.note("action", "%s measured: %.1f ms, predicted %.1f ms, before %.1f ms", a.ID, a.MeasuredMs, a.PredictedMs, a.BeforeMs)
	p.changed(*a)
	if gain < max(p.cfg.KeepShare*wanted, p.cfg.MinGain*a.BeforeMs/2) && s.incident.Open() {
		p.revert(s, "it saved less than its share of the prediction")
	}
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

// revertIfRelieved undoes an action whose fault has cleared.
func (p *Planner) revertIfRelieved(s *story) {
	a := s.current()
	if a == nil || s.incident.Open() || (a.State != falcon.ActionApplied && a.State != falcon.ActionKept) {
		return
	}
	p.revert(s, "the fault has cleared")
}

func (p *Planner) revert(s *story, why string) {
	if p.flight != nil || p.policy.Frozen || s.reverts >= revertLimit {
		return
	}
	s.reverts++
	a := s.current()
	a.State, a.RevertReason = falcon.ActionReverting, why
	p.note("action", "%s is being reverted: %s", a.ID, why)
	p.send(s, len(s.actions)-1, p.revertTarget(s, a), true)
}

// revertTarget is what the job goes back to: the base split, or, while another
// action holds, the best split for the faults that remain.
func (p *Planner) revertTarget(s *story, a *falcon.Action) []int32 {
	for _, other := range p.stories {
		if other == s || other.current() == nil || !inForce(other.current().State) {
			continue
		}
		if plan, err := p.planS2(other); err == nil {
			return plan.counts
		}
		return other.current().MicroBatches
	}
	if len(p.base) == len(a.Previous) {
		return p.base
	}
	return a.Previous
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
		Incident: incident, ImpactMs: s.impactMs,
		LostGPUh: s.impactMs * float64(p.job.GPUs) / 3.6e6,
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
		BreakEven: 0, ImpactMs: s.impactMs, PredictMs: p.slowMs(s),
		Current: s.incident.Open() && (a == nil || !inForce(a.State)),
	}
}

func (p *Planner) viewS2(s *story) falcon.RungView {
	v := falcon.RungView{
		Rung: falcon.RungS2, OverheadMs: p.overheadMs(falcon.RungS2, s),
		BreakEven: falcon.NoIteration, ImpactMs: s.impactMs,
	}
	if per := s.incident.SlowMs - s.incident.HealthyMs; per > 0 {
		v.BreakEven = int64(v.OverheadMs/per) + 1
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
