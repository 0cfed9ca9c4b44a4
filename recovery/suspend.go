package recovery

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// beginAttempt starts a generation of its own, in which all that lives parks.
func (w *workflow) beginAttempt(now time.Time, why string) {
	c := w.op.rec
	if !w.job.Parks {
		w.restartWhole(now, "its processes can't park: the job has no adapter for recoveries")
		return
	}
	if c.Attempts >= generationsMost {
		w.finishRecovery(
			now,
			falcon.RecoveryFailed,
			fmt.Sprintf(
				"%d generations came to nothing; look at the faults, then start the job again from its checkpoint",
				c.Attempts,
			),
		)
		return
	}
	w.ends.ForgetOpen() // a rank without a process is found when all others are suspended
	w.op.beginAttempt(now, w.gens.nextGeneration(w.job.Generation), why)
	w.orders.suspendNodes()
	what := "so that all rejoin"
	if len(c.Pending) > 0 {
		what = "to replace " + rankList(c.Pending)
	}
	w.out.addNote(c.ID, "recovery", 1, "%s: generation %d: the job is suspended %s",
		c.ID, c.Generation, what)
}

func (w *workflow) onSuspended(now time.Time, s Suspended) {
	c := w.op.rec
	if c == nil ||
		s.Generation != c.Generation ||
		w.op.isFenced(s.Node) ||
		len(w.ranks.ranksOnNode(s.Node)) == 0 {
		return
	}
	if c.State != falcon.RecoverySuspend || c.Whole {
		return
	}
	switch {
	case s.Refused != "" && s.Late:
		return // the state's own deadline judges that
	case s.Refused != "":
		w.restartWhole(now, fmt.Sprintf("node %s can't suspend: %s", s.Node, s.Refused))
		return
	}
	if w.op.replies.Acknowledge(s.Node) {
		w.op.clock.Advance(now)
	}
	for _, r := range w.ranks.ranksOnNode(s.Node) {
		w.suspendLateRank(now, r)
	}
}

// onProcess takes a report of the process of rank r in the recovery.
func (w *workflow) onProcess(now time.Time, r falcon.Rank) {
	w.op.processReported(now, r)
	w.suspendLateRank(now, r)
}

// suspendLateRank begins another generation where the present suspension does not
// reach the process launched for rank r.
func (w *workflow) suspendLateRank(now time.Time, r falcon.Rank) {
	if w.op.missedSuspension(r) {
		w.beginAttempt(now, fmt.Sprintf("rank %d came up after its node had acknowledged the suspension", r))
	}
}

// finishSuspend goes on to the replacement once all who stay are parked.
func (w *workflow) finishSuspend(now time.Time) bool {
	newWaits(w).endMostWait(now, w.cfg.SuspendMost)
	if w.op.gathering(now) || !w.op.replies.AllSuspended(w.op.rec.Fenced) {
		return false
	}
	if w.finishIfOver(now); w.op.rec == nil {
		return false
	}
	if w.onMissing(now) {
		return true
	}
	if (together{w}).noteTogether(now) {
		w.proposeAgain(now)
		return true
	}
	if w.op.waitsToPark() {
		return false
	}
	w.op.markSettled(now)
	stop, done := w.orders.stopReplaced()
	if len(stop) > 0 { // they have a time of their own to end in, however late the others parked
		w.op.clock.Advance(now)
		w.op.spare.end() // one that is still missing then is waited for again
		w.op.setDeadline(now, w.cfg.SuspendMost)
	}
	if w.health.Blind() && !w.health.Exhausted(now, w.cfg.HangMin) {
		return false // who parks may follow another engine meanwhile
	}
	return done && !w.awaitProof(now, "") && w.beginReplace(now)
}

// noProof begins the reason of a recovery that waits for a proof.
const noProof = "nothing proves that the job's processes have stopped training, as all of its nodes are given up ("

// awaitProof has a recovery that keeps no rank wait until something proves that the job does not
// train on where no agent is heard: another job would be started beside it. One rank that has ended
// or parks is enough, as none trains without it. because stands before the wait in its reason.
func (w *workflow) awaitProof(now time.Time, because string) bool {
	c, nodes := w.op.rec, w.unheardOfAll()
	if len(nodes) == 0 {
		w.op.endProofWait()
		return false
	}
	if c.State != falcon.RecoverySuspend {
		c.Generation = w.gens.nextGeneration(w.job.Generation) // of the order to end what is left
		w.op.enterState(now, falcon.RecoverySuspend, 0)
	}
	if !w.op.proof.await() {
		return true
	}
	wait := noProof + nodeList(nodes) +
		"); bring one of their agents back, or see yourself that all processes of the job have ended, and state that: falcon recovery ended " + c.ID
	c.AwaitsProof = true
	c.Reason = because + wait
	w.op.setDeadline(now, 0)
	w.orders.stopForProof(now) // who is heard after all ends them, and says so
	w.out.addNote(c.ID, "recovery", 2, "%s waits: %s", c.ID, wait)
	return true
}

// takeStatement takes a person's statement that nothing of the job runs on the nodes that are given up.
func (w *workflow) takeStatement(now time.Time, by, why string) {
	c := w.op.rec
	c.StatedBy = by
	w.op.markChanged()
	w.out.addNote(c.ID, "recovery", 2, "%s: %s states that nothing of the job runs on %s: %s",
		c.ID, by, nodeList(c.Fenced), why)
	w.op.clock.Advance(now)
}

// unheardOfAll are the nodes of the job where nothing is known to keep any of its ranks from
// training; none where one rank was seen to end or to park, or this recovery has begun to launch.
func (w *workflow) unheardOfAll() []falcon.Node {
	c := w.op.rec
	if w.op.proof.isGiven() ||
		c.StatedBy != "" ||
		len(c.Launched) > 0 ||
		slices.ContainsFunc(c.Faults, func(f falcon.Fault) bool {
			return f.Kind == falcon.FaultExit && f.AskedBy == ""
		}) {
		return nil
	}
	for _, x := range w.ranks.everyRank() {
		if _, parks := x.parkedSince(); parks || x.hasEnded() {
			return nil
		}
	}
	return w.ranks.usedNodes()
}

// onMissing finds ranks without a process although their node has reported all of its own.
func (w *workflow) onMissing(now time.Time) bool {
	found := false
	for r, x := range w.ranks.everyRank() {
		n := w.ranks.nodeOf(r)
		if x.isAlive() ||
			w.op.replies.Awaits(r) ||
			w.op.isFenced(n) ||
			slices.Contains(w.op.rec.Pending, r) {
			continue
		}
		found = true
		w.onFault(now, falcon.Fault{
			Kind:    falcon.FaultExit,
			Node:    n,
			Device:  w.ranks.deviceOf(r),
			Ranks:   []falcon.Rank{r},
			FirstNs: now.UnixNano(),
			Evidence: []string{fmt.Sprintf("no process of rank %d is left on %s",
				r, w.ranks.deviceOf(r))},
		})
	}
	return found
}
