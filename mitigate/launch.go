package mitigate

import (
	"slices"

	"github.com/failslow/falcon"
)

// launchMost bounds the launches of one restart: the first goes to the new
// nodes, further ones back to the old ones.
const launchMost = 3

// checkpointed is the commit of S4's order: the checkpoint is on disk, the processes are ending.
func (e *executor) checkpointed(a *falcon.Action, in Committed) {
	a.Phase, a.Resume = falcon.PhaseLeaving, in.Resume
	if last := e.iterations.lastTrained(); !last.IsZero() {
		a.StoppedUnixNs = last.UnixNano()
	}
	e.out.addNote(a.ID, "action",
		"%s: the checkpoint is written, a restart begins with iteration %d; the processes are ending",
		a.ID, in.Resume)
	e.out.addAction(*a)
}

// allEnded launches the next generation once all processes have ended. Until
// then nothing may be started: two generations must never train at once.
func (e *executor) allEnded(in Left) {
	_, a := e.incidents.findAction(func(a *falcon.Action) bool {
		return a.Rung == falcon.RungS4 &&
			a.OrderID == in.Order &&
			a.Phase == falcon.PhaseLeaving &&
			(a.State == falcon.ActionDispatched || a.State == falcon.ActionFailed)
	})
	if a == nil {
		return
	}
	if in.Reason != "" {
		e.failRestart(a, "not all processes ended after the checkpoint: "+in.Reason)
		return
	}
	a.State = falcon.ActionDispatched // also when patience had run out before
	e.startGeneration(a, falcon.PhaseLaunching, a.Placement)
}

func (e *executor) startGeneration(a *falcon.Action, phase falcon.ActionPhase, to falcon.Placement) {
	e.generation++
	a.Phase, a.Generation = phase, e.generation
	a.Launches++
	e.out.setLaunch(falcon.Launch{
		Generation: e.generation,
		Placement:  slices.Clone(to),
		Resume:     true,
	})
	e.out.addNote(a.ID, "action", "%s: generation %d starts on %s from iteration %d",
		a.ID, a.Generation, nodeNames(to.Nodes()), a.Resume)
	e.out.addAction(*a)
}

// onLaunched ends the restart, or takes the job back to its old nodes.
func (e *executor) onLaunched(in Launched) {
	s, a := e.incidents.findAction(func(a *falcon.Action) bool {
		return a.Rung == falcon.RungS4 && a.Generation == in.Generation && in.Generation != 0
	})
	if a == nil ||
		!slices.Contains([]falcon.ActionPhase{falcon.PhaseLaunching, falcon.PhaseRelaunch}, a.Phase) {
		return
	}
	switch {
	case in.Failed == "" && a.Phase == falcon.PhaseLaunching:
		e.completeRestart(a)
	case in.Failed == "":
		a.State, s.failedAt, a.Phase = falcon.ActionFailed, e.iterations.newestIndex(), ""
		a.Reason += "; the job runs on its old nodes again"
		e.out.addNote(a.ID, "action",
			"%s failed, and the job runs on its old nodes again from iteration %d; %s stays open",
			a.ID, a.Resume, a.Incident)
		e.out.addAction(*a)
	case a.State != falcon.ActionDispatched:
	case e.job.desc.Epoch != a.JobEpoch: // the job runs, by other hands: never start it twice
		e.replaceRestart(a, in.Failed)
	case a.Launches < launchMost:
		a.Reason = "generation did not come up: " + in.Failed
		e.out.addNote(a.ID, "action", "%s: generation %d did not come up (%s); back to the old nodes",
			a.ID, in.Generation, in.Failed)
		e.startGeneration(a, falcon.PhaseRelaunch, a.Home)
	default:
		e.failRestart(a, "no launch came up: "+in.Failed)
	}
}

// completeRestart puts S4 into force; it is never undone.
func (e *executor) completeRestart(a *falcon.Action) {
	a.State = falcon.ActionApplied
	a.AppliedIteration = a.Resume
	a.Phase = ""
	if a.StoppedUnixNs > 0 {
		if ms := float64(e.clock.now.UnixNano()-a.StoppedUnixNs) / 1e6; ms > 0 {
			a.OverheadMs = ms
		}
	}
	e.ledger.resetClocks(falcon.RungS4)
	e.out.addActed(Acted{
		Incident:     a.Incident,
		Rung:         falcon.RungS4,
		Iteration:    a.Resume,
		MicroBatches: slices.Clone(e.job.desc.MicroBatches),
		Placement:    slices.Clone(e.job.desc.Placement),
	})
	e.out.addNote(a.ID, "action", "%s in force from iteration %d: generation %d on %s",
		a.ID, a.Resume, a.Generation, nodeNames(e.job.desc.Placement.Nodes()))
	e.out.addAction(*a)
}

// failRestart leaves the job to a person, and says what there is to do.
func (e *executor) failRestart(a *falcon.Action, why string) {
	s := e.incidents.byID(a.Incident)
	a.State, a.Reason, s.failedAt = falcon.ActionFailed, why, e.iterations.newestIndex()
	e.out.addNote(a.ID, "action",
		"%s failed: %s; the job does not run: end what is left of it and start it again from its checkpoint (iteration %d)",
		a.ID, why, a.Resume)
	e.out.addAction(*a)
}

func (e *executor) replaceRestart(a *falcon.Action, why string) {
	a.State = falcon.ActionFailed
	a.Phase = ""
	a.Reason = why
	e.incidents.byID(a.Incident).failedAt = e.iterations.newestIndex()
	e.out.addNote(a.ID, "action", "%s failed: %s", a.ID, why)
	e.out.addAction(*a)
}
