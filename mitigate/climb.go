package mitigate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/failslow/falcon"
)

// Reasons why a decision is refused; Check wraps them with the details.
var (
	ErrNoProposal = errors.New("mitigate: no such proposal")
	ErrStalePlan  = errors.New("mitigate: the plan has changed")
	ErrDecided    = errors.New("mitigate: already decided")
	ErrPolicy     = errors.New("mitigate: policy forbids it")
	ErrNotUseful  = errors.New("mitigate: the rung can't help")
)

// propose offers S2 once waiting has cost as much as switching: the ski-rental
// rule between S1 (ignore) and S2 (FALCON §5.2, algorithm 1).
func (p *Planner) propose(s *story) {
	if !s.incident.Open() || s.vetoed || p.busy() || s.current() != nil || p.policy.Mode == falcon.ModeObserve {
		return
	}
	if s.incident.State != falcon.IncidentLocated || s.cost.ImpactMs < p.overheadMs(falcon.RungS2, s) || p.triedInVain(s) {
		return
	}
	plan, err := p.planS2(s)
	if err == nil {
		err = p.tooSoon(s)
	}
	if err != nil {
		p.skipOnce(s, err)
		return
	}
	p.offer(s, plan, fmt.Sprintf("%.0f ms lost so far, switching costs about %.0f ms", s.cost.ImpactMs, p.overheadMs(falcon.RungS2, s)))
}

// approveByPolicy takes what is proposed where no person is needed, also when
// that came to be only after the proposal.
func (p *Planner) approveByPolicy(s *story) {
	a := s.current()
	if a == nil || a.State != falcon.ActionProposed || !p.policy.Automatic(a.Rung) {
		return
	}
	p.decide(s, Decision{Approve: true, By: "policy", Reason: "automatic up to " + string(p.policy.Cap)})
}

// busy says that an order is out or a gain is being measured: one plan per job.
func (p *Planner) busy() bool { return p.flight != nil || p.underWay() != nil }

// underWay is the action that keeps others waiting, if any.
func (p *Planner) underWay() *falcon.Action {
	for _, s := range p.stories {
		if a := s.current(); a != nil && a.State != falcon.ActionKept {
			return a
		}
	}
	return nil
}

func (p *Planner) skipOnce(s *story, err error) {
	if s.skip == err.Error() || errors.Is(err, errNoSpeeds) {
		return
	}
	s.skip = err.Error()
	p.note("skip", "S2 is skipped for %s: %s", s.incident.ID, err)
}

func (p *Planner) offer(s *story, plan s2Plan, why string) {
	a := falcon.Action{
		ID:                fmt.Sprintf("%s/S2/%d", s.incident.ID, len(s.actions)+1),
		Incident:          s.incident.ID,
		Rung:              falcon.RungS2,
		State:             falcon.ActionProposed,
		PlanHash:          planHash(s.incident.ID, falcon.RungS2, p.job.Epoch, plan.counts),
		MicroBatches:      plan.counts,
		Previous:          slices.Clone(p.job.MicroBatches),
		ProposedIteration: p.newest(),
		AppliedIteration:  falcon.NoIteration,
		RevertedIteration: falcon.NoIteration,
		BeforeMs:          plan.beforeMs,
		PredictedMs:       plan.predictedMs,
		Why:               why,
		JobEpoch:          p.job.Epoch,
		Base:              slices.Clone(p.base),
	}
	s.actions, s.reverts = append(s.actions, a), 0
	p.note("proposal", "S2 proposed for %s: micro-batches %v -> %v, %.1f ms -> %.1f ms predicted; %s", a.Incident, a.Previous, a.MicroBatches, a.BeforeMs, a.PredictedMs, why)
	p.changed(a)
}

// Check says whether a decision would be taken, and why not.
func (p *Planner) Check(d Decision) error {
	if d.Action == "" {
		return p.checkStep(d)
	}
	s, a := p.action(d.Action)
	switch {
	case a == nil:
		return fmt.Errorf("%w: %s", ErrNoProposal, d.Action)
	case a.State != falcon.ActionProposed:
		return fmt.Errorf("%w: %s is %s, decided by %s", ErrDecided, a.ID, a.State, a.DecidedBy)
	case d.PlanHash != a.PlanHash:
		return fmt.Errorf("%w: %s is now plan %s (micro-batches %v), you decided on plan %s; look again", ErrStalePlan, a.ID, a.PlanHash, a.MicroBatches, d.PlanHash)
	}
	return p.checkApproval(s, d)
}

func (p *Planner) checkApproval(_ *story, d Decision) error {
	switch {
	case !d.Approve:
		return nil
	case p.policy.Frozen:
		return fmt.Errorf("%w: actions are frozen, unfreeze first", ErrPolicy)
	case p.policy.Mode == falcon.ModeObserve:
		return fmt.Errorf("%w: the mode is observe, set approve or auto first", ErrPolicy)
	}
	return nil
}

// checkStep judges a step up the ladder without a proposal.
func (p *Planner) checkStep(d Decision) error {
	s := p.story(d.Incident)
	switch {
	case s == nil || !s.incident.Open():
		return fmt.Errorf("%w: incident %s is not open", ErrNoProposal, d.Incident)
	case d.Rung != falcon.RungS2:
		return fmt.Errorf("%w: rung %q can't be taken from here, only S2", ErrNotUseful, d.Rung)
	case !d.Approve:
		return fmt.Errorf("%w: nothing is proposed for %s that could be vetoed", ErrNoProposal, d.Incident)
	}
	if a := s.current(); a != nil {
		return fmt.Errorf("%w: %s is %s", ErrDecided, a.ID, a.State)
	}
	if o := p.underWay(); o != nil {
		return fmt.Errorf("%w: %s is %s, that comes first", ErrPolicy, o.ID, o.State)
	}
	if err := p.checkApproval(s, d); err != nil {
		return err
	}
	plan, err := p.planS2(s)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotUseful, err)
	}
	if hash := planHash(s.incident.ID, d.Rung, p.job.Epoch, plan.counts); d.PlanHash != "" && d.PlanHash != hash {
		return fmt.Errorf("%w: %s for %s is now plan %s (micro-batches %v), you decided on plan %s; look again", ErrStalePlan, d.Rung, d.Incident, hash, plan.counts, d.PlanHash)
	}
	return nil
}

func (p *Planner) action(id string) (*story, *falcon.Action) {
	for _, s := range p.stories {
		for i := range s.actions {
			if s.actions[i].ID == id {
				return s, &s.actions[i]
			}
		}
	}
	return nil, nil
}

func (p *Planner) onDecision(d Decision) {
	if err := p.Check(d); err != nil {
		p.note("decision", "decision of %s refused: %s", d.By, err)
		return
	}
	if d.Action == "" {
		s := p.story(d.Incident)
		plan, err := p.planS2(s)
		if err != nil {
			return // Check has just passed; nothing changed since
		}
		p.offer(s, plan, "stepped up by "+d.By)
		p.decide(s, d)
	} else {
		s, _ := p.action(d.Action)
		p.decide(s, d)
	}
	p.advance()
}

// decide records the word on the story's current proposal.
func (p *Planner) decide(s *story, d Decision) {
	a := s.current()
	a.DecidedBy, a.Reason = d.By, d.Reason
	if d.Approve {
		a.State = falcon.ActionApproved
		p.note("decision", "%s approved by %s", a.ID, d.By)
	} else {
		a.State = falcon.ActionVetoed
		s.vetoed = true
		p.note("decision", "%s vetoed by %s%s", a.ID, d.By, because(d.Reason))
	}
	p.changed(*a)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// dispatch orders what is approved, one order at a time.
func (p *Planner) dispatch(s *story) {
	a := s.current()
	if a == nil || a.State != falcon.ActionApproved || p.flight != nil || p.policy.Frozen || p.policy.Mode == falcon.ModeObserve {
		return
	}
	a.State = falcon.ActionDispatched
	p.switching(a, p.newest())
	p.send(s, len(s.actions)-1, a.MicroBatches, false)
}

func (p *Planner) send(s *story, action int, counts []int32, reverting bool) {
	o := falcon.Order{Epoch: p.job.Epoch, ID: p.nextOrder, Kind: falcon.OrderMicroBatches, MicroBatches: slices.Clone(counts)}
	p.nextOrder++
	s.actions[action].OrderID = o.ID
	p.flight = &flight{story: s, action: action, order: o.ID, reverting: reverting, target: o.MicroBatches}
	p.ready.Orders = append(p.ready.Orders, o)
	p.changed(s.actions[action])
}

// expire drops a proposal or an approval whose fault is gone.
func (p *Planner) expire(s *story) {
	a := s.current()
	if a == nil || !s.over() {
		return
	}
	p.expireFor(a, "the fault has cleared by itself")
}

func (p *Planner) expireFor(a *falcon.Action, why string) {
	if a.State == falcon.ActionProposed || a.State == falcon.ActionApproved {
		a.State = falcon.ActionExpired
		p.changed(*a)
		p.note("action", "%s expired: %s", a.ID, why)
	}
}
