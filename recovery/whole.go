package recovery

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// restartWhole hands the job to a whole restart, as survivors can't be kept. Without a known
// checkpoint it might begin from nothing: a person decides that.
func (w *workflow) restartWhole(now time.Time, why string) {
	c := w.op.rec
	w.addUnexplainedEnds(now)
	c.Whole = true
	c.WholeWhy = why
	c.Reason = why
	if w.job.Checkpoint < 0 && (c.DecidedBy == byPolicyName || c.DecidedBy == "") {
		w.proposeAgain(now)
		return
	}
	w.launchWhole(now)
}

// addUnexplainedEnds takes ends that wait for an explanation for faults, as nothing explains
// them once all processes end. The first of a job to die is often among them: its peers say
// how they ended, and it can't.
func (w *workflow) addUnexplainedEnds(now time.Time) {
	for _, r := range w.ends.Overdue(now, 0) {
		if x := w.ranks.memberOf(r); x.hasEnded() {
			f := w.exitFault(now, x.process())
			f.DetectedNs = now.UnixNano()
			f = w.op.addFault(now, f)
			w.out.addNote(w.op.rec.ID, "fault", 2, "%s: %s", w.op.rec.ID, f.Evidence[0])
		}
	}
	w.ends.ForgetOpen() // as where only some processes end: no end with success explains them later
}

// proposeAgain asks for another decision, as the plan has changed.
func (w *workflow) proposeAgain(now time.Time) {
	w.op.recordDecision("", "")
	w.op.enterState(now, falcon.RecoveryProposed, 0)
	w.proposePlan(now)
}

// launchWhole starts the whole job again, once the agents that it needs are there.
func (w *workflow) launchWhole(now time.Time) {
	c := w.op.rec
	a := w.alloc.assignRanks(now)
	if c.Shrink != nil {
		if w.shrinkLost() {
			w.proposeAgain(now)
			return
		}
		a.placement = c.Shrink.Placement
		a.lack = ""
	}
	if a.lack != "" {
		newWaits(w).awaitWholeSpare(now, a)
		return
	}
	w.op.spare.end()
	i := slices.IndexFunc(a.placement, func(d falcon.Device) bool {
		return !w.alloc.canLaunch(d.Node())
	})
	if i >= 0 {
		why := fmt.Sprintf("node %s can't start processes: give its agent a launch command",
			a.placement[i].Node())
		w.finishRecovery(
			now,
			falcon.RecoveryFailed,
			fmt.Sprintf("%s; a whole restart is not possible: %s; start the job again by hand",
				wholeReason(c), why),
		)
		return
	}
	if w.awaitWholeProof(now) || w.awaitAgents(now, a.placement) {
		return
	}
	c.Reason = wholeReason(c)
	w.op.stopAwaitingAgents()
	a.launch = a.launch[:0]
	for r := range w.ranks.everyRank() {
		a.launch = append(a.launch, r)
	}
	c.Generation, c.Attempts, c.NoReturn = w.gens.nextGeneration(w.job.Generation), c.Attempts+1, true
	w.op.enterState(now, falcon.RecoveryReplace, w.cfg.RestartMost)
	w.applyAssignment(a)
	w.orders.restartWhole()
	w.out.addNote(c.ID, "recovery", 2, "%s: %s: the whole job restarts from the newest checkpoint",
		c.ID, c.Reason)
}

// awaitWholeProof is awaitProof for a whole restart. Where a node of the job is not given up, its
// processes are ended before anything is started, and that is the proof.
func (w *workflow) awaitWholeProof(now time.Time) bool {
	if slices.ContainsFunc(w.ranks.usedNodes(), func(n falcon.Node) bool {
		return !w.op.isFenced(n)
	}) {
		w.op.endProofWait()
		return false
	}
	return w.awaitProof(now, wholeReason(w.op.rec)+"; ")
}

// An agent that is between two connections is no reason against a whole restart:
// it is waited for before anything is ended or fenced, so that whoever approved
// may still abort, and a node that stays away can still be replaced.

// awaitsAgents begins what is added to a recovery's reason meanwhile.
const awaitsAgents = "; it waits up to "

// awaitAgents has a whole restart wait for the agents that it needs; false =
// all are here. The wait is counted from its beginning, whoever comes and goes.
func (w *workflow) awaitAgents(now time.Time, on falcon.Placement) bool {
	c := w.op.rec
	away := map[falcon.Node]bool{}
	for _, d := range on {
		if n := d.Node(); w.op.agentAway(n) {
			away[n] = true
		}
	}
	if len(away) == 0 {
		return false
	}
	w.op.awaitAgents(now, away)
	why := wholeReason(c) + awaitsAgents +
		fmt.Sprintf("%s for %s to come back: see that falcon-agent runs there, or abort",
			w.cfg.AgentWait, describeAgents(w.op.missingAgents()))
	if c.Reason != why {
		c.Reason = why
		w.op.markChanged()
		w.out.addNote(c.ID, "recovery", 2, "%s waits: %s", c.ID, why)
	}
	return true
}

// finishAgentWait plans again once every agent is here or was given up.
func (w *workflow) finishAgentWait(now time.Time) bool {
	newWaits(w).endMostWait(now, w.cfg.AgentWait)
	if w.finishIfOver(now); w.op.rec == nil || len(w.op.missingAgents()) > 0 {
		return false
	}
	if !w.op.proof.isAwaited() && w.op.clock.Idle(now) < w.cfg.Unexplained {
		// the job may have finished while agents, or the engine, were away: all ranks
		// are to be reported first
		return false
	}
	w.launchWhole(now)
	return w.op.rec == nil || w.op.rec.State != falcon.RecoverySuspend
}

func describeAgents(nodes []falcon.Node) string {
	if len(nodes) == 1 {
		return "the agent of " + nodeList(nodes)
	}
	return "the agents of " + nodeList(nodes)
}

// onNoSpare follows when no spare came in time. Fewer replicas are another plan than
// the one that was approved: a person must decide again.
func (w *workflow) onNoSpare(now time.Time, a assignment) {
	c := w.op.rec
	s, _ := w.alloc.shrinkPlan(a)
	if s == nil {
		w.finishRecovery(
			now,
			falcon.RecoveryFailed,
			fmt.Sprintf("no spare came within %s: %s; bring one and start the job again from its checkpoint",
				w.cfg.SpareWait, a.lack),
		)
		return
	}
	c.Whole, c.Shrink, c.WholeWhy, c.Reason = true, s, shrinkReason(s), shrinkReason(s)
	w.proposeAgain(now)
}

// reviseShrink looks again at a proposal to go on with fewer replicas: others may
// be lost since, or a spare may have come after all. False = the recovery is over.
func (w *workflow) reviseShrink(now time.Time, a assignment) bool {
	c := w.op.rec
	if a.lack == "" {
		c.Whole = false
		c.Shrink = nil
		c.WholeWhy = ""
		c.Reason = ""
		w.op.setDeadline(now, 0)
		w.out.addNote(c.ID, "recovery", 1, "%s: a spare came: no replica is given up", c.ID)
		return true
	}
	s, _ := w.alloc.shrinkPlan(a)
	if s == nil {
		w.finishRecovery(
			now,
			falcon.RecoveryFailed,
			a.lack+"; bring a spare and start the job again from its checkpoint",
		)
		return false
	}
	c.Shrink = s
	return true
}

// shrinkLost reports whether a replica that was to stay is lost as well: the smaller
// world that was approved can't be had.
func (w *workflow) shrinkLost() bool {
	return slices.ContainsFunc(w.op.rec.Shrink.Placement, func(d falcon.Device) bool {
		return w.op.isFenced(d.Node())
	})
}

// applyShrink puts the smaller world in force, as far as launches are concerned:
// what was launched for ranks of the world before means nothing in it.
func (w *workflow) applyShrink() {
	c := w.op.rec
	clear(c.Replaced)
	clear(c.Launched)
	w.ranks.forgetAll()
	w.ranks.raiseFloors(c.Placement, c.Generation)
	for r, d := range c.Shrink.Placement {
		c.Replaced[falcon.Rank(r)] = d
		c.Launched[falcon.Rank(r)] = c.Generation
	}
	c.Splits = slices.Clone(c.Shrink.Splits)
	c.Pending, c.Survivors = nil, nil
}
