package mitigate

import (
	"fmt"
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// Ladder is the operator's view of one incident; ok is false for an unknown id.
// S4 has one line for each variant that policy lists, best first.
func (p *Planner) Ladder(incident string) (falcon.Ladder, bool) {
	s := p.incidents.byID(incident)
	if s == nil {
		return falcon.Ladder{}, false
	}
	out := falcon.Ladder{
		Incident: incident,
		ImpactMs: s.cost.ImpactMs,
		LostGPUh: s.cost.LostGPUMs / 3.6e6,
		Actions:  slices.Clone(s.actions),
		Rungs:    []falcon.RungView{p.ignoreView(s)},
		Model:    p.modelText(),
	}
	if ms := p.iterations.presentMs(s); s.incident.Open() && ms > 0 {
		out.LossPerMinuteGPUh = min(1, s.cost.PerIterationMs/ms) * float64(p.job.desc.GPUs) / 60
	}
	out.Rungs = append(out.Rungs, p.rungViews(s)...)
	if a := s.proposal(); a != nil {
		proposal := *a
		out.Proposal = &proposal
	}
	return out, true
}

func (p *Planner) ignoreView(s *incidentState) falcon.RungView {
	held := slices.ContainsFunc(s.actions, func(a falcon.Action) bool { return isInForce(&a) })
	return falcon.RungView{
		Rung:       falcon.RungS1,
		Applicable: true,
		Reason:     "ignore and wait: free, gains nothing",
		BreakEven:  0,
		ImpactMs:   s.cost.ImpactMs,
		PredictMs:  p.iterations.presentMs(s),
		Approval:   falcon.ApprovalAuto,
		Current:    s.incident.Open() && !held,
	}
}

func (p *Planner) rungViews(s *incidentState) []falcon.RungView {
	strategies := p.plans.candidates(s)
	next := slices.IndexFunc(strategies, func(c candidate) bool {
		return c.err == nil && s.shownAction(c) == nil && p.whyWithheld(s, c) == nil
	})
	if s.proposal() != nil {
		next = -1
	}
	var out []falcon.RungView
	for i, c := range strategies {
		v := p.rungView(s, c)
		v.Next = i == next
		out = append(out, v)
	}
	slices.SortStableFunc(out, func(a, b falcon.RungView) int {
		return a.Rung.Level() - b.Rung.Level()
	})
	return out
}

func (p *Planner) rungView(s *incidentState, c candidate) falcon.RungView {
	v := falcon.RungView{
		Rung:       c.rung,
		Variant:    c.variant,
		OverheadMs: c.overheadMs,
		Approval:   p.policy.approvalFor(s, c.rung),
		IfWrong:    p.ifWrong(c.rung, c.variant),
		ImpactMs:   s.cost.ImpactMs,
		ClockMs:    max(0, c.overheadMs-p.ledger.clockMs(s, c.rung)),
		TakenHour:  p.limits.takenWithinHour(c.rung),
	}
	v.DueInMs = p.dueInMs(s, v.ClockMs)
	p.fillPlan(s, c, &v)
	v.BreakEven = repaidAfter(v.OverheadMs, v.GainMs)
	return v
}

// repaidAfter is the iteration after which a gain has repaid an overhead, NoIteration if none does.
func repaidAfter(overheadMs, gainMs float64) int64 {
	if !(gainMs > 0) {
		return falcon.NoIteration
	}
	return int64(min(overheadMs/gainMs, 1e15)) + 1
}

// dueInMs is the time by the clock in which lostMs are lost at the present loss, 0 = nothing is lost now.
func (p *Planner) dueInMs(s *incidentState, lostMs float64) float64 {
	present := p.iterations.presentMs(s)
	if loss := present - s.incident.HealthyMs; loss > 0 && s.incident.HealthyMs > 0 {
		return min(lostMs/loss*present, 1e15)
	}
	return 0
}

// fillPlan describes in a rung's line the action that the incident has of it, else its plan.
func (p *Planner) fillPlan(s *incidentState, c candidate, v *falcon.RungView) {
	if a := s.shownAction(c); a != nil {
		v.Applicable, v.PredictMs, v.GainMs = true, a.PredictedMs, a.BeforeMs-a.PredictedMs
		v.Current, v.PlanHash, v.Preview, v.MicroBatches = isInForce(a), a.PlanHash, a.Preview, a.MicroBatches
		v.Reason = actionText(a) + ": " + string(a.State)
		return
	}
	if c.err != nil {
		v.Reason = c.err.Error()
		return
	}
	v.Applicable = true
	v.PredictMs = c.predictedMs
	v.GainMs = c.gainMs
	v.Reason = c.what
	v.PlanHash = c.hashFor(s.incident.ID, p.job.desc.Epoch)
	v.Preview = c.preview
	v.MicroBatches = c.counts
	if err := p.whyWithheld(s, c); err != nil {
		v.Reason += "; not proposed by itself: " + err.Error()
	} else if len(s.vetoed) > 0 && p.policy.requires(c.rung) == falcon.ApprovalAuto {
		v.Reason += "; an operator vetoed a rung of this incident, so every other one waits for a person"
	}
}

func actionText(a *falcon.Action) string {
	switch {
	case a.Rung == falcon.RungS2:
		return "moves micro-batches to faster replicas"
	case a.Rung == falcon.RungS3 && a.Preview != nil:
		return "exchanges " + exchangeText(*a.Preview)
	case a.Variant == falcon.VariantFence:
		return fenceText(a.Home, a.Placement)
	}
	return "checkpoint, restart on " + nodeNames(a.Placement.Nodes())
}

func (p *Planner) ifWrong(r falcon.Rung, v falcon.Variant) string {
	measured := fmt.Sprintf(
		"measured over %d iterations; put back when it brings less than %.0f %% of what it promised",
		p.cfg.MeasureIterations, 100*p.cfg.KeepShare,
	)
	switch costName(r, v) {
	case falcon.RungS2:
		return measured
	case falcon.RungS3:
		return "a failure before the ranks' second vote leaves the job as it was; afterwards " + measured
	case costFence:
		return "is not undone: the node stays fenced until a person lifts that; when the spare fails too, the recovery takes another one, or waits for one"
	case falcon.RungS4:
		return "can't be undone; when the new nodes don't come up, the job is started on its old ones from the same checkpoint"
	}
	return ""
}

// modelText says what the prices rest on, and how well they predicted so far.
func (p *Planner) modelText() string {
	text := "no profile of the job yet: S1 only"
	switch g := p.profile.newest; {
	case g != nil && g.model != nil:
		text = fmt.Sprintf("cost model from the profile of %d ranks, %.1f %% off when taken",
			p.job.desc.Layout.World(), 100*math.Abs(g.model.ErrorShare))
	case g != nil:
		text = "the ranks' self times alone"
	}
	n, sum, worst := 0, 0.0, 0.0
	for _, s := range p.incidents.list {
		for i := range s.actions {
			if a := &s.actions[i]; a.MeasuredMs > 0 && a.PredictedMs > 0 {
				n++
				sum += math.Abs(a.ErrorShare)
				worst = max(worst, math.Abs(a.ErrorShare))
			}
		}
	}
	if n == 0 {
		return text + "; no action measured yet"
	}
	if n == 1 {
		return fmt.Sprintf("%s; 1 action measured, %.1f %% off its prediction", text, 100*sum)
	}
	return fmt.Sprintf("%s; %d actions measured, %.1f %% off their predictions, %.1f %% at worst",
		text, n, 100*sum/float64(n), 100*worst)
}
