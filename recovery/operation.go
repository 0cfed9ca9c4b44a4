package recovery

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/internal/attempt"
)

// operation is the recovery in progress with its clock and the answers to its present
// attempt. It keeps the record; the workflow decides what follows.
type operation struct {
	*jobState
	out     *outbox
	rec     *falcon.Recovery // not over; nil = none
	clock   attempt.Clock
	replies attempt.Replies

	gatherUntil   time.Time            // until then faults join
	settledAt     time.Time            // since when all who stay park; zero = they don't yet
	spare         spareWait            // no spare is left
	proof         proof                // that a job whose nodes are all given up trains no more
	agents        map[falcon.Node]bool // that a whole restart waits for; nil = it waits for none
	rankFinished  bool                 // a rank has rejoined, and come to the job's end
	jobFinished   bool                 // all have, before they were suspended
	rejoinFailed  bool                 // the attempt was begun because a rejoin failed
	tableFailures map[falcon.Node]int  // over all attempts

	givenUp moments // when nodes were given up by this engine, over all attempts
	failing moments // when it was said that nodes fall silent too often
}

// openRecord begins a recovery.
func (op *operation) openRecord(now time.Time, c *falcon.Recovery) {
	op.rec = c
	op.proof = proof{}
	op.resetAttempt(attempt.NewClock(now, now))
	op.tableFailures = map[falcon.Node]int{}
	op.givenUp = moments{}
	op.failing = moments{}
}

// takeUpRecord goes on with a recovery from before the engine's start; its time away counts.
func (op *operation) takeUpRecord(now time.Time, c *falcon.Recovery) {
	spent := 0.0
	for _, v := range c.PhaseMs {
		spent += v
	}
	op.openRecord(now, c)
	entered := time.Unix(0, c.StartedNs+int64(spent*1e6))
	if entered.Before(now) {
		op.clock = attempt.NewClock(entered, now)
	}
}

// beginAttempt begins a generation with everything that lives parking.
func (op *operation) beginAttempt(now time.Time, generation uint64, why string) {
	c := op.rec
	c.Generation = generation
	c.Attempts++
	c.Reason = why
	op.enterState(now, falcon.RecoverySuspend, op.cfg.SuspendMost)
	next, failures, givenUp, failing := op.replies.Next(), op.tableFailures, op.givenUp, op.failing
	op.resetAttempt(op.clock)
	op.replies = next
	op.tableFailures = failures
	op.givenUp = givenUp
	op.failing = failing
	op.gatherFaults(now)
}

// closeRecord closes the recovery.
func (op *operation) closeRecord() {
	op.rec = nil
	op.resetAttempt(attempt.Clock{})
}

// resetAttempt forgets the attempt.
func (op *operation) resetAttempt(clock attempt.Clock) {
	*op = operation{
		jobState: op.jobState,
		out:      op.out,
		rec:      op.rec,
		clock:    clock,
	}
}

// isUnderway reports whether a recovery does more than wait for a decision.
func (op *operation) isUnderway() bool {
	return op.rec != nil && op.rec.State != falcon.RecoveryProposed
}

// nothingOrdered reports whether no recovery is open, or one is only proposed.
func (op *operation) nothingOrdered() bool {
	return op.rec == nil ||
		op.rec.State == falcon.RecoveryProposed && op.rec.Attempts == 0 && !op.rec.Whole
}

// onlyWaits reports whether a whole restart waits and has ordered nothing: the job's processes end as
// they would without it.
func (op *operation) onlyWaits() bool {
	c := op.rec
	if c == nil || !c.Whole || c.Attempts > 0 || op.proof.isAwaited() {
		return false
	}
	return c.State == falcon.RecoveryProposed || c.State == falcon.RecoverySuspend
}

// mayRenumber reports whether a placement of the present job epoch can be followed:
// nothing was launched for the ranks of the one before.
func (op *operation) mayRenumber() bool {
	c := op.rec
	if c == nil {
		return true
	}
	early := c.State == falcon.RecoveryProposed || c.State == falcon.RecoverySuspend
	return early &&
		!c.Whole &&
		len(c.Launched) == 0 &&
		slices.Equal(c.Placement, op.job.Placement)
}

// renumber moves everything in the recovery that is known by rank to its new rank.
func (op *operation) renumber(to falcon.Placement, perm []falcon.Rank) {
	c := op.rec
	if c == nil {
		return
	}
	c.Placement = slices.Clone(to)
	c.Pending = renumberRanks(c.Pending, perm)
	c.Replaced = renumberKeys(c.Replaced, perm)
	for i := range c.Faults {
		c.Faults[i].Ranks = renumberRanks(c.Faults[i].Ranks, perm)
	}
	op.replies.Renumber(perm)
	op.markChanged()
}

// arrange puts the placement in force into the rank table: that of the recovery in
// progress, else the job's.
func (op *operation) arrange() {
	p := op.job.Placement
	if op.rec != nil {
		p = op.rec.Placement
	}
	op.ranks.arrange(p)
}

func (op *operation) markChanged() {
	op.out.markChanged(op.rec)
}

// recordDecision enters who decided; empty = not decided yet.
func (op *operation) recordDecision(by, from string) {
	op.rec.DecidedBy, op.rec.DecidedFrom = by, from
}

// isFenced reports whether the recovery has given node n up.
func (op *operation) isFenced(n falcon.Node) bool {
	return op.rec != nil && slices.Contains(op.rec.Fenced, n)
}

// fenceNode gives a node up for this recovery.
func (op *operation) fenceNode(n falcon.Node) {
	if !op.isFenced(n) {
		op.rec.Fenced = append(op.rec.Fenced, n)
		slices.Sort(op.rec.Fenced)
	}
}

// stayingNodes lists the nodes of the placement that are not fenced, ascending.
func (op *operation) stayingNodes() []falcon.Node {
	return slices.DeleteFunc(slices.Clone(op.ranks.usedNodes()), op.isFenced)
}

// addFault adds a fault to the same node's unless something was launched for that, else as new.
func (op *operation) addFault(now time.Time, f falcon.Fault) falcon.Fault {
	c := op.rec
	if f.LosesNode() {
		f.Ranks = slices.Clone(op.ranks.ranksOnNode(f.Node))
		op.fenceNode(f.Node)
		op.givenUp.setAt(f.Node, now)
	}
	for _, r := range f.Ranks {
		op.replies.Arrived(r)
	}
	c.Pending = withRanks(c.Pending, f.Ranks)
	op.markChanged()
	op.clock.Advance(now)
	early := c.State == falcon.RecoveryProposed || c.State == falcon.RecoverySuspend
	for i := range c.Faults {
		o := &c.Faults[i]
		if early &&
			f.Node != "" &&
			o.Node == f.Node &&
			joinsFault(o, f) &&
			o.DetectedNs >= now.Add(-hour).UnixNano() &&
			op.anyPending(o.Ranks) {
			mergeFault(o, f)
			return f
		}
	}
	c.Faults = append(c.Faults, f)
	return f
}

// anyPending reports whether one of the ranks waits to be launched.
func (op *operation) anyPending(ranks []falcon.Rank) bool {
	return slices.ContainsFunc(ranks, func(r falcon.Rank) bool {
		return slices.Contains(op.rec.Pending, r)
	})
}

// gatherFaults has faults of the next moments join the attempt. A rejoin that failed
// because of one is not counted as failed.
func (op *operation) gatherFaults(now time.Time) {
	op.gatherUntil = now.Add(op.cfg.Gather)
	if op.rejoinFailed {
		op.rejoinFailed = false
		op.rec.FailedRejoins--
	}
}

// gathering reports whether faults still join the attempt.
func (op *operation) gathering(now time.Time) bool {
	return now.Before(op.gatherUntil)
}

// markSettled marks that all who stay park.
func (op *operation) markSettled(now time.Time) {
	if op.settledAt.IsZero() {
		op.settledAt = now
	}
}

// isSettled reports whether all who stay park: the suspension waits for processes to end.
func (op *operation) isSettled() bool { return !op.settledAt.IsZero() }

// endProofWait ends the wait for a proof that no rank of the job trains on.
func (op *operation) endProofWait() {
	op.proof.came()
	if c := op.rec; c.AwaitsProof {
		c.AwaitsProof, c.Reason = false, wholeReason(c)
		op.markChanged()
	}
}

// awaitAgents has a whole restart wait for agents, counted from its beginning.
func (op *operation) awaitAgents(now time.Time, away map[falcon.Node]bool) {
	if op.agents == nil || op.clock.Due(now) {
		op.enterState(now, falcon.RecoverySuspend, op.cfg.AgentWait)
		op.settledAt = now
	}
	op.agents = away
}

// repeatAgentWait waits for agents again after a start of the engine: for which ones
// is found when the restart is planned again.
func (op *operation) repeatAgentWait(now time.Time) {
	op.agents = map[falcon.Node]bool{}
	op.setDeadline(now, op.cfg.AgentWait)
}

func (op *operation) stopAwaitingAgents() {
	op.agents = nil
}

// countTableFailure is how often a node has not taken a rank table, over all attempts.
func (op *operation) countTableFailure(n falcon.Node) int {
	op.tableFailures[n]++
	return op.tableFailures[n]
}

// markRejoinFailed marks that the attempt was begun because a rejoin failed.
func (op *operation) markRejoinFailed() {
	op.rejoinFailed = op.rec != nil
}

// markOvertaken marks that the job has come to its end before it was suspended.
func (op *operation) markOvertaken() {
	op.jobFinished = true
}

func (op *operation) overtaken() bool { return op.jobFinished }

// trainsAgain reports whether all ranks train again: each reports so, or the job has
// gone through an iteration or come to its end, which no rank does without the others.
func (op *operation) trainsAgain() bool {
	return op.replies.RejoinedCount() >= op.ranks.worldSize() ||
		op.rankFinished ||
		op.pace.ConfirmedAfter(op.clock.Entered())
}

// updateSurvivors lists the ranks that keep their processes.
func (op *operation) updateSurvivors() {
	op.rec.Survivors = nil
	for r := range op.ranks.everyRank() {
		if _, replaced := op.rec.Replaced[r]; !replaced {
			op.rec.Survivors = append(op.rec.Survivors, r)
		}
	}
}

// enterState books the time of the state that ends, and begins the next.
func (op *operation) enterState(now time.Time, s falcon.RecoveryState, limit time.Duration) {
	op.bookPhase(now)
	op.rec.State, op.rec.Wait = s, nil
	op.clock.Enter(now)
	op.setDeadline(now, limit)
}

// setDeadline gives the present state a limit from now on, 0 = none.
func (op *operation) setDeadline(now time.Time, limit time.Duration) {
	op.clock.Set(now, limit)
	op.showDeadline()
}

func (op *operation) showDeadline() {
	op.rec.DeadlineNs = op.clock.DeadlineNs()
	if wait := op.rec.Wait; wait != nil {
		wait.UntilNs = op.rec.DeadlineNs
	}
	op.markChanged()
}

// extendDeadline lets the state wait for an agent that restarts or has just come back.
func (op *operation) extendDeadline(now time.Time, limit time.Duration) {
	if !op.rec.Whole && op.clock.Extend(now, limit) {
		op.showDeadline()
	}
}

// skipPause takes a pause of the engine itself out of all waits: nobody could come to it meanwhile.
func (op *operation) skipPause(gap time.Duration, now time.Time) {
	op.clock.Skip(gap, now)
	if op.isUnderway() && op.clock.Limited() {
		op.postponeDeadline(gap)
	}
}

// restartWaits begins the wait for an answer now, and gives back the time the deadline was held.
func (op *operation) restartWaits(now time.Time, held time.Duration) {
	op.clock.Advance(now)
	if op.deadlinePausable() {
		op.postponeDeadline(held)
	}
}

// postponeDeadline gives the present state the time back in which its deadline was held.
func (op *operation) postponeDeadline(by time.Duration) {
	op.clock.Postpone(by)
	op.showDeadline()
}

// deadlinePausable reports whether the deadline of the present state is held while the
// console is blind or late. A whole restart that waits for agents has announced for how long it does.
func (op *operation) deadlinePausable() bool {
	return op.isUnderway() && !op.rec.Whole && op.clock.Limited()
}

// deadlinePassed reports whether the deadline of the present state has passed. It is held
// while the engine does not hear, but not for ever.
func (op *operation) deadlinePassed(now time.Time) bool {
	if op.rec == nil || !(op.clock.Limited() && op.clock.Due(now)) {
		return false
	}
	return !op.deadlinePausable() || op.health.SilenceCounts(now, op.cfg.HangMin)
}

var phaseOf = map[falcon.RecoveryState]string{
	falcon.RecoveryProposed: falcon.PhaseDecide,
	falcon.RecoverySuspend:  falcon.PhaseSuspend,
	falcon.RecoveryReplace:  falcon.PhaseReplace,
	falcon.RecoveryTable:    falcon.PhaseTable,
	falcon.RecoveryCollect:  falcon.PhaseCollect,
	falcon.RecoveryRejoin:   falcon.PhaseResume,
}

// bookPhase adds the time in the present state to its phase; several attempts add
// up. Rejoin is split by the times that the ranks report, and suspend where all park: from then on
// it waits for processes to end or for a spare.
func (op *operation) bookPhase(now time.Time) {
	phases, phase, spent := op.rec.PhaseMs, phaseOf[op.rec.State], milliseconds(op.clock.Spent(now))
	if op.rec.State == falcon.RecoveryRejoin {
		slowest := op.replies.Slowest()
		groups := min(slowest.GroupsMs, spent)
		restore := min(slowest.RestoreMs, spent-groups)
		phases[falcon.PhaseGroups] += groups
		phases[falcon.PhaseRestore] += restore
		spent -= groups + restore
	}
	fence := milliseconds(now.Sub(op.settledAt))
	if op.rec.State == falcon.RecoverySuspend && !op.settledAt.IsZero() && fence > 0 {
		phases[falcon.PhaseFence] += fence
		spent -= fence
	}
	if phase != falcon.PhaseDecide || spent > 0 {
		phases[phase] += spent
	}
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Nanoseconds()) / 1e6
}
