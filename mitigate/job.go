package mitigate

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/failslow/falcon"
)

// onJob takes the job's newest description.
func (p *Planner) onJob(in Job) {
	was := p.job
	p.generation = max(p.generation, in.Generation)
	if in.Epoch != was.Epoch {
		p.newEpoch(was, in)
		return
	}
	if p.flight != nil { // the commit will say what split and places are
		in.MicroBatches = was.MicroBatches
		if len(was.Placement) > 0 {
			in.Placement = was.Placement
		}
	}
	if !was.like(in) {
		p.version++
	}
	p.job = in
	if p.base == nil || total(in.MicroBatches) != total(p.base) {
		p.base = slices.Clone(in.MicroBatches)
		p.forget(0) // times of another batch don't compare
		p.overtaken(fmt.Sprintf("the job changed its batch to %d micro-batches by itself", total(in.MicroBatches)), falcon.RungS2)
	}
	if len(was.Placement) > 0 && !slices.Equal(was.Placement, in.Placement) {
		p.overtaken("the job changed its places by itself", falcon.RungS3)
	}
}

// like says that plans made for one description hold for the other.
func (j Job) like(o Job) bool {
	return j.Layout == o.Layout && slices.Equal(j.MicroBatches, o.MicroBatches) && slices.Equal(j.Placement, o.Placement) &&
		slices.Equal(j.Spares, o.Spares) && j.CanLaunch == o.CanLaunch && j.Adapter == o.Adapter &&
		slices.Equal(j.MicroMin, o.MicroMin) && slices.Equal(j.MicroMax, o.MicroMax) && slices.Equal(j.MicroMultiple, o.MicroMultiple) &&
		slices.Equal(j.StateMB, o.StateMB) && j.CopyMBs == o.CopyMBs
}

// newEpoch ends what belonged to the processes of before: a plan that was not
// taken was made for them, and what was in force is gone unless the job came
// back with it.
func (p *Planner) newEpoch(was, now Job) {
	p.job, p.base, p.switched, p.gauge = now, slices.Clone(now.MicroBatches), nil, nil
	p.forget(0)
	p.version++
	if was.Epoch == 0 {
		return
	}
	for _, s := range p.stories {
		if s.entered {
			p.renumber(s)
		}
		s.measured = false
	}
	restart := p.restart()
	if restart != nil && restart.Phase == falcon.PhaseLeaving {
		p.overtakenRestart(restart, "somebody else started the job again")
		restart = nil
	}
	for _, s := range p.stories {
		for i := range s.actions {
			p.expireFor(&s.actions[i], "the job was restarted, it was planned for epoch "+strconv.FormatUint(was.Epoch, 10))
		}
	}
	why := "the job was restarted with places and a split of its own"
	if restart != nil {
		why = "the job was restarted for " + restart.ID
	}
	samePlaces := slices.Equal(was.Placement, now.Placement) || now.Recovered && restart == nil
	if restart != nil || !samePlaces {
		p.overtaken(why, falcon.RungS3)
	}
	if restart == nil && samePlaces && slices.Equal(was.MicroBatches, now.MicroBatches) {
		if held := p.holding(); len(held) > 0 && len(held[0].action().Base) > 0 {
			p.base = slices.Clone(held[0].action().Base)
		}
		return
	}
	p.overtaken(why, falcon.RungS2)
}

// overtaken ends every plan, and the actions in force up to a rung: the job
// did it. S3 ends with the splits that were solved for its places.
func (p *Planner) overtaken(why string, r falcon.Rung) {
	at := max(p.newest(), 0)
	if restart := p.restart(); restart != nil {
		at = restart.Resume
	}
	for _, s := range p.stories {
		for i := range s.actions {
			a := &s.actions[i]
			switch {
			case a.State == falcon.ActionProposed || a.State == falcon.ActionApproved:
				p.expireFor(a, why)
			case a.State == falcon.ActionDispatched: // its order's outcome is still to come
			case a.Rung != falcon.RungS4 && inForce(a) && a.Rung.Level() <= r.Level():
				p.dropFlight(s, i)
				a.State, a.RevertReason, a.RevertedIteration, a.Phase = falcon.ActionReverted, why, at, ""
				p.ready.Acted = append(p.ready.Acted, Acted{Incident: a.Incident, Rung: a.Rung, Iteration: a.RevertedIteration, Reverted: true, MicroBatches: slices.Clone(p.job.MicroBatches)})
				p.note("action", "%s is undone: %s", a.ID, why)
				p.changed(*a)
			}
		}
	}
}

func (p *Planner) dropFlight(s *story, i int) {
	if p.flight != nil && p.flight.story == s && p.flight.action == i {
		p.flight = nil
	}
}

// onRestored takes back the actions of the journal. Orders that were out are
// sent again by the engine under their old id, and launches likewise; the
// planner waits for them.
func (p *Planner) onRestored(in Restored) {
	p.nextOrder = max(p.nextOrder, in.NextOrder)
	for r, ms := range in.OverheadsMs {
		p.overheads[r] = mean{ms, 1}
	}
	for _, a := range in.Actions {
		s := p.ensure(a.Incident)
		s.actions = append(s.actions, a)
		p.generation = max(p.generation, a.Generation)
		if a.OrderID != 0 {
			p.switching(&a, a.ProposedIteration)
		}
		if a.State == falcon.ActionVetoed {
			s.vetoed[a.Rung] = true
		}
		waits := a.Rung != falcon.RungS4 || a.Phase == falcon.PhaseCheckpoint
		if waits && (a.State == falcon.ActionDispatched || a.State == falcon.ActionReverting) {
			p.flight = p.flightOf(s, len(s.actions)-1)
		}
	}
	for _, h := range p.holding() {
		if a := h.action(); len(a.Base) > 0 || len(a.Previous) > 0 {
			p.base = slices.Clone(a.Base)
			if len(a.Base) == 0 {
				p.base = slices.Clone(a.Previous)
			}
			break
		}
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
