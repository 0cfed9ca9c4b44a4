package mitigate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// waitTimes is how many times its overhead a rung waits for at most, while a
// cheaper one lacks nothing but a profile of the job.
const waitTimes = 2

// proposeDue offers the cheapest rung that can help once waiting has cost as much
// as taking it: the ski-rental rule of FALCON §5.2, algorithm 1, for every
// rung of the ladder. What can't help is passed over with the reason said. A rung that
// policy takes by itself goes before one that waits for a person: nothing that is
// automatic is blocked by a person's absence.
func (p *Planner) proposeDue(s *incidentState) {
	waiting := s.proposal()
	if !s.isLocated() ||
		p.keepsItsPlace(s, waiting) ||
		p.orders.hasPending() ||
		p.incidents.actionUnderWay() != nil ||
		p.policy.observing() {
		return
	}
	due := p.dueCandidates(s, waiting)
	if len(due) == 0 {
		return
	}
	c := due[max(0, slices.IndexFunc(due, func(c candidate) bool {
		return p.policy.automatic(s, c.rung)
	}))]
	if waiting != nil {
		p.out.expireAction(waiting, rungName(c.rung, c.variant)+", which policy takes by itself, goes first")
	}
	p.proposePlan(s, c.plan, p.costReason(s, c, p.ledger.clockMs(s, c.rung)))
}

// keepsItsPlace reports whether a proposal stays whatever else is due: policy takes it by
// itself, or a person has approved it already.
func (p *Planner) keepsItsPlace(s *incidentState, waiting *falcon.Action) bool {
	return waiting != nil && (len(waiting.Approvals) > 0 || p.policy.automatic(s, waiting.Rung))
}

// dueCandidates are the rungs that can help and whose price has been lost by waiting, cheapest
// first; while a proposal waits for a person, those alone that policy takes by itself.
func (p *Planner) dueCandidates(s *incidentState, waiting *falcon.Action) []candidate {
	var out []candidate
	unmeasured := s.hasAnyInForce() && !p.profile.isSettled()
	for _, c := range p.plans.candidates(s) {
		clock := p.ledger.clockMs(s, c.rung)
		if waiting != nil && (c.rung == waiting.Rung || !p.policy.automatic(s, c.rung)) {
			continue
		}
		if clock < c.overheadMs ||
			p.claimedByOther(s, c.rung) ||
			(s.hasInForce(c.rung) && !p.mayReplan(s)) ||
			(unmeasured && clock < waitTimes*c.overheadMs) {
			continue
		}
		unmeasured = unmeasured ||
			(errors.Is(c.err, errNoSpeeds) && p.limits.whyWithheld(s, c.rung, c.variant) == nil)
		if c.err == nil {
			c.err = p.whyWithheld(s, c)
		}
		if c.err != nil {
			if len(out) == 0 {
				p.skipOnce(s, c)
			}
			continue
		}
		out = append(out, c)
	}
	return out
}

// mayReplan reports whether what is in force for s may make way for another plan: the fault has
// changed, not gone, and what shows that is not the one window in which it did.
func (p *Planner) mayReplan(s *incidentState) bool {
	return p.profile.isSettled() && !p.plans.looksHealthy(s)
}

// claimedByOther reports whether the rung is in force for s already, and not yet for another
// fault that it helps: the next one is that one's, and goes when that clears.
func (p *Planner) claimedByOther(s *incidentState, r falcon.Rung) bool {
	return s.hasInForce(r) && slices.ContainsFunc(p.incidents.list, func(o *incidentState) bool {
		return o != s &&
			o.isLocated() &&
			o.measured &&
			causeHelped(o, r) == nil &&
			!o.hasInForce(r) &&
			p.limits.whyWithheld(o, r, "") == nil
	})
}

func (p *Planner) costReason(s *incidentState, c candidate, clock float64) string {
	verb := map[falcon.Rung]string{
		falcon.RungS2: "switching",
		falcon.RungS3: "exchanging",
		falcon.RungS4: "restarting",
		costFence:     "replacing the node",
	}[costName(c.rung, c.variant)]
	if more := clock - s.cost.ImpactMs; more > 1 {
		return fmt.Sprintf(
			"%.0f ms lost so far, %.0f ms of them to other faults that it helps, %s costs about %.0f ms",
			clock, more, verb, c.overheadMs,
		)
	}
	return fmt.Sprintf("%.0f ms lost so far, %s costs about %.0f ms", clock, verb, c.overheadMs)
}

func (p *Planner) skipOnce(s *incidentState, c candidate) {
	key := string(c.rung) + string(c.variant)
	said := c.err.Error()
	if little := smallGain(""); errors.As(c.err, &little) {
		said = "slight"
	}
	if s.hasInForce(c.rung) ||
		s.skipped[key] == said ||
		errors.Is(c.err, errNoSpeeds) ||
		errors.Is(c.err, errVetoed) ||
		errors.Is(c.err, errTried) {
		return
	}
	s.skipped[key] = said
	p.out.addNote(s.incident.ID, "skip", "%s is skipped for %s: %s",
		rungName(c.rung, c.variant), s.incident.ID, c.err)
}

func rungName(r falcon.Rung, v falcon.Variant) string {
	if v == "" {
		return string(r)
	}
	return fmt.Sprintf("%s (%s)", r, v)
}

func (p *Planner) proposePlan(s *incidentState, w plan, why string) {
	a := falcon.Action{
		ID:       fmt.Sprintf("%s/%s/%d", s.incident.ID, w.rung, len(s.actions)+1),
		Incident: s.incident.ID,
		Rung:     w.rung,
		State:    falcon.ActionProposed,
		Plan: falcon.Plan{
			PlanHash:          w.hashFor(s.incident.ID, p.job.desc.Epoch),
			Variant:           w.variant,
			MicroBatches:      w.counts,
			Previous:          slices.Clone(p.job.desc.MicroBatches),
			Base:              slices.Clone(p.job.base),
			Preview:           w.preview,
			Placement:         w.placement,
			JobEpoch:          p.job.desc.Epoch,
			ProposedIteration: p.iterations.newestIndex(),
			BeforeMs:          w.beforeMs,
			PredictedMs:       w.predictedMs,
			Why:               why,
		},
		Execution: falcon.Execution{AppliedIteration: falcon.NoIteration},
		Outcome:   falcon.Outcome{RevertedIteration: falcon.NoIteration},
	}
	if w.placement != nil {
		a.Home = slices.Clone(p.job.desc.Placement)
	}
	s.actions = append(s.actions, a)
	s.reverts = 0
	p.out.addNote(a.Incident, "proposal", "%s proposed for %s: %s, %.1f ms -> %.1f ms predicted; %s",
		rungName(a.Rung, a.Variant), a.Incident, changeText(a, w), a.BeforeMs, a.PredictedMs, why)
	p.out.addAction(a)
}

func changeText(a falcon.Action, w plan) string {
	split := fmt.Sprintf("micro-batches %v -> %v", a.Previous, a.MicroBatches)
	switch {
	case a.Rung == falcon.RungS2:
		return split
	case len(a.MicroBatches) > 0:
		return w.what + ", then " + split
	}
	return w.what
}

// approveByPolicy takes what is proposed where no person is needed, also when
// that came to be only after the proposal, and once its countdown has ended.
func (p *Planner) approveByPolicy(s *incidentState) {
	a := s.proposal()
	if a == nil || p.incidents.actionUnderWay() != nil {
		return
	}
	if !p.policy.automatic(s, a.Rung) {
		if a.DeadlineUnixNs != 0 {
			a.DeadlineUnixNs = 0
			p.out.addAction(*a)
		}
		return
	}
	wait := p.policy.rungPolicy(a.Rung).Countdown
	if wait > 0 && a.DeadlineUnixNs == 0 {
		a.DeadlineUnixNs = p.clock.now.Add(time.Duration(wait * float64(time.Second))).UnixNano()
		p.out.addNote(a.ID, "proposal", "%s acts by itself in %.0f s unless an operator vetoes it",
			a.ID, wait)
		p.out.addAction(*a)
	}
	if a.DeadlineUnixNs != 0 && p.clock.now.UnixNano() < a.DeadlineUnixNs {
		return
	}
	p.recordDecision(s, a, Decision{
		Approve: true,
		By:      "policy",
		From:    "policy",
		Reason:  "automatic up to " + string(p.Policy().Cap),
	})
}

// expireStale drops a proposal or an approval whose fault is gone, and a fence that can't
// be carried out as it was proposed.
func (p *Planner) expireStale(s *incidentState) {
	if !s.isOver() {
		if a := s.proposal(); a != nil {
			if why := p.plans.staleFence(s, a); why != "" {
				p.out.expireAction(a, why)
			}
		}
		return
	}
	for i := range s.actions {
		p.out.expireAction(&s.actions[i], "the fault has cleared by itself")
	}
}

// whyWithheld is why a rung that could help is not proposed now.
func (p *Planner) whyWithheld(s *incidentState, c candidate) error {
	if err := p.limits.whyWithheld(s, c.rung, c.variant); err != nil {
		return err
	}
	return errorExceedsGain(c.plan)
}
