package mitigate

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
)

// onJob takes the job's newest description.
func (p *Planner) onJob(in Job) {
	was, first := p.job, p.job.Epoch == 0
	switch {
	case in.Epoch != was.Epoch:
		p.job, p.base, p.history, p.switched = in, slices.Clone(in.MicroBatches), nil, nil
		if !first {
			p.restarted(was, in)
		}
	case p.flight != nil: // the commit will say what the split is
		in.MicroBatches = was.MicroBatches
		p.job = in
	default:
		p.job = in
		if p.base == nil || total(in.MicroBatches) != total(p.base) {
			p.base, p.history = slices.Clone(in.MicroBatches), nil // times of another batch don't compare
			p.overtaken(fmt.Sprintf("the job changed its batch to %d micro-batches by itself", total(in.MicroBatches)))
		}
	}
	p.advance()
}

// restarted ends what belonged to the processes of before: a plan that was not
// taken was made for them, and a split is gone unless the job came back with it.
func (p *Planner) restarted(was, now Job) {
	for _, s := range p.stories {
		if s.entered {
			p.renumber(s)
		}
		s.speeds, s.split = nil, split{}
	}
	if slices.Equal(was.MicroBatches, now.MicroBatches) && len(p.inForceStories()) > 0 {
		p.base = p.inForceStories()[0].current().Base
		return
	}
	p.overtaken("the job was restarted with a split of its own")
}

// overtaken ends every plan and every action in force: the job did it.
func (p *Planner) overtaken(why string) {
	for _, s := range p.stories {
		a := s.current()
		switch {
		case a == nil || a.State == falcon.ActionDispatched: // its order's outcome is still to come
		case inForce(a.State):
			p.dropFlight(s)
			a.State, a.RevertReason, a.RevertedIteration = falcon.ActionReverted, why, max(p.newest(), 0)
			p.ready.Acted = append(p.ready.Acted, Acted{Incident: a.Incident, Rung: a.Rung, Iteration: a.RevertedIteration, Reverted: true, MicroBatches: slices.Clone(p.job.MicroBatches)})
			p.note("action", "%s is undone: %s", a.ID, why)
			p.changed(*a)
		default:
			p.expireFor(a, why)
		}
	}
}

func (p *Planner) dropFlight(s *story) {
	if p.flight != nil && p.flight.story == s {
		p.flight = nil
	}
}

func (p *Planner) inForceStories() []*story {
	var out []*story
	for _, s := range p.stories {
		if a := s.current(); a != nil && inForce(a.State) {
			out = append(out, s)
		}
	}
	return out
}

// onRestored takes back the actions of the journal. Orders that were out are
// sent again by the engine under their old id; the planner waits for them.
func (p *Planner) onRestored(in Restored) {
	p.nextOrder = max(p.nextOrder, in.NextOrder)
	for r, ms := range in.OverheadsMs {
		p.overheads[r] = mean{ms, 1}
	}
	for _, a := range in.Actions {
		s := p.ensure(a.Incident)
		s.actions = append(s.actions, a)
		if a.OrderID != 0 {
			p.switching(&a, a.ProposedIteration)
		}
		s.vetoed = s.vetoed || a.State == falcon.ActionVetoed
		if a.State == falcon.ActionDispatched || a.State == falcon.ActionReverting {
			p.flight = &flight{story: s, action: len(s.actions) - 1, order: a.OrderID, reverting: a.State == falcon.ActionReverting, target: a.MicroBatches}
			if p.flight.reverting {
				p.flight.target = a.Previous
			}
		}
	}
	for _, s := range p.inForceStories() {
		a := s.current()
		if base := a.Base; len(base) > 0 {
			p.base = slices.Clone(base)
			break
		}
		p.base = slices.Clone(a.Previous)
	}
	for _, v := range in.Impacts {
		p.resume(v)
	}
}

func total(m []int32) int64 {
	var t int64
	for _, v := range m {
		t += int64(v)
	}
	return t
}
