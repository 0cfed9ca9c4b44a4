package mitigate

import (
	"slices"

	"github.com/failslow/falcon"
)

// launchMost bounds the launches of one restart: the first goes to the new
// nodes, further ones back to the old ones.
const launchMost = 3

// checkpointed is the commit of S4's order: the checkpoint is on disk, and the
// processes are ending.
func (p *Planner) checkpointed(a *falcon.Action, in Committed) {
	a.Phase, a.Resume = falcon.PhaseLeaving, in.Resume
	if !p.trained.IsZero() {
		a.StoppedUnixNs = p.trained.UnixNano()
	}
	p.note("action", "%s: the checkpoint is written, a restart begins with iteration %d; the processes are ending", a.ID, in.Resume)
	p.changed(*a)
}

// restart is the S4 whose processes are ending or being started, if any.
func (p *Planner) restart() *falcon.Action {
	for _, s := range p.stories {
		for i := range s.actions {
			if a := &s.actions[i]; a.State == falcon.ActionDispatched && slices.Contains([]string{falcon.PhaseLeaving, falcon.PhaseLaunching, falcon.PhaseRelaunch}, a.Phase) {
				return a
			}
		}
	}
	return nil
}

// onLeft launches the next generation once all processes have ended. Until
// then nothing may be started: two generations must never train at once.
func (p *Planner) onLeft(in Left) {
	_, a := p.find(func(a *falcon.Action) bool {
		return a.Rung == falcon.RungS4 && a.OrderID == in.Order && a.Phase == falcon.PhaseLeaving && (a.State == falcon.ActionDispatched || a.State == falcon.ActionFailed)
	})
	if a == nil {
		return
	}
	if in.Reason != "" {
		p.failRestart(a, "not all processes ended after the checkpoint: "+in.Reason)
		return
	}
	a.State = falcon.ActionDispatched // also when patience had run out before
	p.launch(a, falcon.PhaseLaunching, a.Placement)
}

func (p *Planner) launch(a *falcon.Action, phase string, to falcon.Placement) {
	p.generation++
	a.Phase, a.Generation = phase, p.generation
	a.Launches++
	p.ready.Launch = &falcon.Launch{Generation: p.generation, Placement: slices.Clone(to), Resume: true}
	p.note("action", "%s: generation %d starts on %s from iteration %d", a.ID, a.Generation, names(nodesOf(to)), a.Resume)
	p.changed(*a)
}

// onLaunched ends the restart, or takes the job back to its old nodes.
func (p *Planner) onLaunched(in Launched) {
	s, a := p.find(func(a *falcon.Action) bool {
		return a.Rung == falcon.RungS4 && a.Generation == in.Generation && in.Generation != 0
	})
	if a == nil || !slices.Contains([]string{falcon.PhaseLaunching, falcon.PhaseRelaunch}, a.Phase) {
		return
	}
	switch {
	case in.Failed == "" && a.Phase == falcon.PhaseLaunching:
		p.restarted(a)
	case in.Failed == "":
		a.State, s.failedAt, a.Phase = falcon.ActionFailed, p.newest(), ""
		a.Reason += "; the job runs on its old nodes again"
		p.note("action", "%s failed, and the job runs on its old nodes again from iteration %d; %s stays open", a.ID, a.Resume, a.Incident)
		p.changed(*a)
	case a.State != falcon.ActionDispatched:
	case p.job.Epoch != a.JobEpoch: // the job runs, by other hands: never start it twice
		p.overtakenRestart(a, in.Failed)
	case a.Launches < launchMost:
		a.Reason = "generation did not come up: " + in.Failed
		p.note("action", "%s: generation %d did not come up (%s); back to the old nodes", a.ID, in.Generation, in.Failed)
		p.launch(a, falcon.PhaseRelaunch, a.Home)
	default:
		p.failRestart(a, "no launch came up: "+in.Failed)
	}
}

// restarted puts S4 into force; it is never undone.
func (p *Planner) restarted(a *falcon.Action) {
	a.State, a.AppliedIteration, a.Phase = falcon.ActionApplied, a.Resume, ""
	if a.StoppedUnixNs > 0 {
		if ms := float64(p.now.UnixNano()-a.StoppedUnixNs) / 1e6; ms > 0 {
			a.OverheadMs = ms
		}
	}
	p.paid(falcon.RungS4)
	p.ready.Acted = append(p.ready.Acted, Acted{
		Incident: a.Incident, Rung: falcon.RungS4, Iteration: a.Resume,
		MicroBatches: slices.Clone(p.job.MicroBatches), Placement: slices.Clone(p.job.Placement),
	})
	p.note("action", "%s in force from iteration %d: generation %d on %s", a.ID, a.Resume, a.Generation, names(nodesOf(p.job.Placement)))
	p.changed(*a)
}

// failRestart leaves the job to a person, and says what there is to do.
func (p *Planner) failRestart(a *falcon.Action, why string) {
	s := p.story(a.Incident)
	a.State, a.Reason, s.failedAt = falcon.ActionFailed, why, p.newest()
	p.note("action", "%s failed: %s; the job stands: end what is left of it and start it again from its checkpoint (iteration %d)", a.ID, why, a.Resume)
	p.changed(*a)
}

func (p *Planner) overtakenRestart(a *falcon.Action, why string) {
	a.State, a.Phase, a.Reason, p.story(a.Incident).failedAt = falcon.ActionFailed, "", why, p.newest()
	p.note("action", "%s failed: %s", a.ID, why)
	p.changed(*a)
}

// find is the newest action that f takes.
func (p *Planner) find(f func(*falcon.Action) bool) (*story, *falcon.Action) {
	for _, s := range slices.Backward(p.stories) {
		for i := len(s.actions) - 1; i >= 0; i-- {
			if f(&s.actions[i]) {
				return s, &s.actions[i]
			}
		}
	}
	return nil, nil
}
