package mitigate

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// dispatch orders what is approved, one order at a time.
func (p *Planner) dispatch(s *story) {
	i := s.atWork()
	if i < 0 || s.actions[i].State != falcon.ActionApproved || !p.released(s, &s.actions[i]) || p.flight != nil {
		return
	}
	a := &s.actions[i]
	a.DeadlineUnixNs = 0
	a.State = falcon.ActionDispatched
	p.switching(a, p.newest())
	if a.Rung == falcon.RungS4 {
		a.Phase = falcon.PhaseCheckpoint
		p.send(s, i, falcon.Order{Kind: falcon.OrderCheckpoint, Leave: true}, &flight{})
		return
	}
	p.carryOn(s, i, p.newest()+1)
}

// released says that nothing stops an approved action any more: neither a
// freeze nor the time in which a person's approval can be withdrawn. What was
// stopped has that time again, since much may have happened meanwhile.
func (p *Planner) released(s *story, a *falcon.Action) bool {
	undo := p.policy.Rungs[a.Rung].Undo
	switch {
	case p.policy.Frozen || p.policy.Mode == falcon.ModeObserve:
		if a.DeadlineUnixNs != 0 {
			a.DeadlineUnixNs = 0
			p.note("action", "%s is approved and waits: %s", a.ID, p.stopped())
			p.changed(*a)
		}
		return false
	case s.incident.State == "": // the fault may be gone: its word follows the journal's actions
		return false
	case a.DeadlineUnixNs == 0 && undo > 0 && len(a.Approvals) > 0:
		a.DeadlineUnixNs = p.now.Add(time.Duration(undo * float64(time.Second))).UnixNano()
		p.note("action", "%s goes out in %.0f s unless somebody withdraws it", a.ID, undo)
		p.changed(*a)
		return false
	}
	return a.DeadlineUnixNs == 0 || p.now.UnixNano() >= a.DeadlineUnixNs
}

func (p *Planner) stopped() string {
	if p.policy.Frozen {
		return "actions are frozen"
	}
	return "the mode is observe"
}

// carryOn orders the next step of S2 or S3 on its way into force, or out of it
// while it is being reverted: first places, then the split that suits them.
// With nothing left to do the action is in force (or undone) from iteration at.
func (p *Planner) carryOn(s *story, i int, at int64) {
	a := &s.actions[i]
	place, counts := a.Placement, a.MicroBatches
	if a.State == falcon.ActionReverting {
		place = a.Home
		if a.Rung == falcon.RungS2 || slices.Equal(place, p.job.Placement) {
			counts = p.revertTarget(s, a)
		}
	}
	switch {
	case a.Rung == falcon.RungS3 && !slices.Equal(place, p.job.Placement):
		blocks, err := blocksTo(p.job.Placement, place)
		if err != nil {
			p.giveUp(s, i, err.Error())
			return
		}
		a.Phase = falcon.PhasePlacement
		p.send(s, i, falcon.Order{Kind: falcon.OrderPlacement, Blocks: blocks}, &flight{placement: slices.Clone(place)})
	case len(counts) > 0 && !slices.Equal(counts, p.job.MicroBatches) && p.flight == nil:
		if a.Rung == falcon.RungS3 {
			a.Phase = falcon.PhaseSplit
		}
		p.send(s, i, falcon.Order{Kind: falcon.OrderMicroBatches, MicroBatches: slices.Clone(counts)}, &flight{counts: slices.Clone(counts)})
	default:
		p.done(s, i, at)
	}
}

func (p *Planner) send(s *story, i int, o falcon.Order, f *flight) {
	a := &s.actions[i]
	o.Epoch, o.ID = p.job.Epoch, p.nextOrder
	p.nextOrder++
	a.OrderID = o.ID
	f.story, f.action, f.order, f.kind, f.reverting = s, i, o.ID, o.Kind, a.State == falcon.ActionReverting
	p.flight = f
	p.ready.Orders = append(p.ready.Orders, o)
	p.changed(*a)
}

// onCommitted takes the ranks' agreement: the vote is the commit, so this is
// when a step is in force, whatever happened to messages in between.
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
	a := &f.story.actions[f.action]
	if in.Status != 0 {
		p.giveUp(f.story, f.action, fmt.Sprintf("the job refused it (status %d)", in.Status))
		return
	}
	acted := Acted{Incident: a.Incident, Rung: a.Rung, Iteration: in.Iteration, Reverted: f.reverting}
	switch f.kind {
	case falcon.OrderCheckpoint:
		p.checkpointed(a, in)
		return
	case falcon.OrderPlacement:
		p.job.Placement = f.placement
		acted.Placement = slices.Clone(f.placement)
		if in.Swap != nil {
			swap := *in.Swap
			a.Swap = &swap
		}
		p.note("action", "%s: the ranks changed places at iteration %d%s", a.ID, in.Iteration, stepsText(a.Swap))
	default:
		p.job.MicroBatches = slices.Clone(f.counts)
		if len(in.MicroBatches) > 0 {
			p.job.MicroBatches = slices.Clone(in.MicroBatches)
		}
	}
	acted.MicroBatches = slices.Clone(p.job.MicroBatches)
	p.ready.Acted = append(p.ready.Acted, acted)
	p.version++
	p.staleProposals(f.story.actions[f.action].ID)
	p.carryOn(f.story, f.action, in.Iteration)
}

func stepsText(s *falcon.Swap) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf(" (pause %.0f, dump %.0f, swap %.0f, restore %.0f ms; %.1f MB moved)", s.StepMs[0], s.StepMs[1], s.StepMs[2], s.StepMs[3], s.MovedMB)
}

// staleProposals drops what was planned for a job that is another now, also
// where it is approved and can still be withdrawn.
func (p *Planner) staleProposals(by string) {
	for _, s := range p.stories {
		for i := range s.actions {
			p.expireFor(&s.actions[i], "it was planned for the job before "+by)
		}
	}
}

// done says that every step of an action was taken.
func (p *Planner) done(s *story, i int, at int64) {
	a := &s.actions[i]
	a.Phase = ""
	if a.State == falcon.ActionReverting {
		a.State, a.RevertedIteration = falcon.ActionReverted, at
		s.reverts = 0
		p.note("action", "%s reverted from iteration %d: %s", a.ID, at, p.stateText(a))
	} else {
		a.State, a.AppliedIteration = falcon.ActionApplied, at
		p.paid(a.Rung)
		p.note("action", "%s in force from iteration %d: %s", a.ID, at, p.stateText(a))
	}
	p.changed(*a)
}

func (p *Planner) stateText(a *falcon.Action) string {
	if a.Rung == falcon.RungS3 {
		return fmt.Sprintf("nodes %s, micro-batches %v", names(nodesOf(p.job.Placement)), p.job.MicroBatches)
	}
	return fmt.Sprintf("micro-batches %v", p.job.MicroBatches)
}

// givenUp finds the step of an order that was taken for lost, and that the
// ranks agreed on after all: their vote counts, not our patience.
func (p *Planner) givenUp(order uint64) *flight {
	for _, s := range p.stories {
		for i := range s.actions {
			a := &s.actions[i]
			if a.OrderID != order || order == 0 {
				continue
			}
			switch {
			case a.State == falcon.ActionFailed && (a.Rung == falcon.RungS2 || a.Phase == falcon.PhasePlacement || a.Phase == falcon.PhaseCheckpoint):
				a.State = falcon.ActionDispatched
				return p.flightOf(s, i)
			case a.State == falcon.ActionKept && a.RevertReason != "":
				a.State = falcon.ActionReverting
				return p.flightOf(s, i)
			}
		}
	}
	return nil
}

// flightOf is the order that an action under way waits for, as far as the
// action tells: a split that is being put back is told with its commit.
func (p *Planner) flightOf(s *story, i int) *flight {
	a := &s.actions[i]
	f := &flight{story: s, action: i, order: a.OrderID, kind: falcon.OrderMicroBatches, reverting: a.State == falcon.ActionReverting}
	switch {
	case a.Phase == falcon.PhasePlacement:
		f.kind, f.placement = falcon.OrderPlacement, a.Placement
		if f.reverting {
			f.placement = a.Home
		}
	case a.Phase == falcon.PhaseCheckpoint:
		f.kind = falcon.OrderCheckpoint
	case f.reverting:
		f.counts = a.Previous
	default:
		f.counts = a.MicroBatches
	}
	return f
}

// onUndeliverable ends an order that the ranks will never agree on.
func (p *Planner) onUndeliverable(in Undeliverable) {
	f := p.flight
	if f == nil || f.order != in.Order {
		return
	}
	p.flight = nil
	p.giveUp(f.story, f.action, in.Reason)
}

// giveUp ends a step that came to nothing. An action that was to be undone is
// still in force, and advance tries again within the limit; one whose ranks
// have changed places goes on with the split that they have.
func (p *Planner) giveUp(s *story, i int, why string) {
	a := &s.actions[i]
	switch {
	case a.State == falcon.ActionReverting:
		a.State = falcon.ActionKept
		p.stuck = p.stuck || a.Phase == falcon.PhasePlacement
	case a.Phase == falcon.PhaseSplit:
		a.MicroBatches = slices.Clone(p.job.MicroBatches)
		p.note("action", "%s: the split that was to follow came to nothing: %s", a.ID, why)
		p.done(s, i, p.newest()+1)
		return
	default:
		a.State, s.failedAt = falcon.ActionFailed, p.newest()
		a.Reason = why
	}
	p.changed(*a)
	p.note("action", "%s came to nothing, the job goes on as it was: %s", a.ID, why)
}
