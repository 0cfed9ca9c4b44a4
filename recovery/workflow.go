package recovery

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
)

// workflow takes the recovery in progress from state to state, from its first fault to
// its end. It gives orders through the operation, and notes through the outbox.
type workflow struct {
	*jobState
	op       *operation
	hist     *history
	out      *outbox
	orders   orders
	alloc    allocator
	approval approval
	stop     *stoppage
	gens     *generations
}

func newWorkflow(m *Machine) workflow {
	job := &m.jobState
	op := &m.op
	hist := &m.hist
	out := &m.out
	return workflow{
		jobState: job,
		op:       op,
		hist:     hist,
		out:      out,
		stop:     &m.stop,
		gens:     &m.generations,
		orders:   orders{jobState: job, op: op, out: out},
		alloc:    allocator{jobState: job, op: op, hist: hist},
		approval: approval{jobState: job, op: op, hist: hist},
	}
}

// onFault takes a fault that is certain: it opens a recovery, joins the one in
// progress, or has it begin again with the next generation.
func (w *workflow) onFault(now time.Time, f falcon.Fault) {
	if w.ends.Finished() ||
		w.op.rec == nil && w.stop.isStopped() ||
		w.op.rec != nil && w.op.rec.Whole && w.op.rec.State == falcon.RecoveryReplace {
		return // the job has finished, is stopped already, or starts again as a whole
	}
	f.DetectedNs = now.UnixNano()
	if w.op.rec == nil {
		w.openRecovery(now, f)
	}
	f = w.op.addFault(now, f)
	w.out.addNote(w.op.rec.ID, "fault", 2, "%s: %s",
		w.op.rec.ID, strings.Join(f.Evidence, "; "))
	switch w.op.rec.State {
	case falcon.RecoveryProposed:
		w.proposePlan(now)
	case falcon.RecoverySuspend:
		w.op.gatherFaults(now)
	default:
		w.beginAttempt(now, "")
	}
}

// openRecovery starts a recovery, which waits for its decision.
func (w *workflow) openRecovery(now time.Time, f falcon.Fault) {
	first := f.FirstNs
	if first == 0 || first > now.UnixNano() {
		first = now.UnixNano()
	}
	w.stop.forgetLeftovers()
	w.op.openRecord(now, &falcon.Recovery{
		ID:       w.hist.takeNextID(),
		State:    falcon.RecoveryProposed,
		JobEpoch: w.job.Epoch,
		RecoveryPlan: falcon.RecoveryPlan{
			Replaced:  map[falcon.Rank]falcon.Device{},
			Placement: slices.Clone(w.job.Placement),
			Splits:    slices.Clone(w.job.Splits),
			Resume:    falcon.NoIteration,
			Before:    w.pace.Newest(),
		},
		RecoveryExecution: falcon.RecoveryExecution{
			Generation: w.gens.highestUsed(),
			Launched:   map[falcon.Rank]uint64{},
		},
		RecoveryOutcome: falcon.RecoveryOutcome{
			StartedNs: first,
			PredictMs: w.hist.predictPhases(w.job.StateMB),
			PhaseMs: map[string]float64{
				falcon.PhaseDetect: milliseconds(time.Duration(now.UnixNano() - first)),
			},
		},
	})
	w.hist.append(w.op.rec)
	w.op.markChanged()
}

// joinsFault reports whether a later sign may join a fault of its node. What a person has asked for
// stays apart from a silence that may end, and so does what was taken back.
func joinsFault(o *falcon.Fault, f falcon.Fault) bool {
	return o.Holds() && (!f.MayPass() || o.AskedBy == "")
}

// mergeFault adds a later sign against the same node to its fault.
func mergeFault(o *falcon.Fault, f falcon.Fault) {
	o.Evidence = append(o.Evidence, f.Evidence...)
	o.Ranks = withRanks(o.Ranks, f.Ranks)
	if o.Sign != f.Sign { // what is known of one is known of the fault
		o.Sign = ""
	}
	if f.AskedBy == "" {
		o.AskedBy = ""
	}
	if f.LosesNode() {
		passes := f.MayPass() && (o.MayPass() || !o.LosesNode())
		o.Silent = passes && (o.Silent || f.Silent)
		o.Unanswered = passes && (o.Unanswered || f.Unanswered)
	}
	switch {
	case f.LosesNode() && !o.LosesNode(), o.Kind == falcon.FaultHang:
		o.Kind, o.Device = f.Kind, f.Device
	case o.Device != f.Device && !o.LosesNode():
		o.Device = ""
	}
}

// giveUpNode takes a node for faulty for what it did, or did not do, in the recovery itself.
func (w *workflow) giveUpNode(now time.Time, kind falcon.FaultKind, n falcon.Node, why string) {
	if w.op.isFenced(n) {
		return
	}
	h := w.nodes.Get(n, now)
	f := falcon.Fault{
		Kind:     kind,
		Node:     n,
		FirstNs:  w.op.clock.Entered().UnixNano(),
		Evidence: []string{why},
		Silent:   h.Unheard(now),
	}
	if f.Unanswered = !f.Silent && w.op.awaitsAnswer(n); f.Unanswered {
		f.Kind = falcon.FaultNode
		f.Evidence = []string{fmt.Sprintf("node %s is heard, but did not answer the order to park within %s",
			n, w.op.clock.Limit())}
	}
	w.onFault(now, f)
}

func (w *workflow) approveRecovery(now time.Time, by, from string) {
	c := w.op.rec
	w.op.recordDecision(by, from)
	w.out.addNote(c.ID, "recovery", 1, "%s approved by %s", c.ID, by)
	if c.Whole {
		c.Reason = wholeReason(c)
		w.launchWhole(now)
		return
	}
	w.beginAttempt(now, "")
}

// approveByPolicy approves where the policy may act by itself.
func (w *workflow) approveByPolicy(now time.Time) bool {
	c := w.op.rec
	together{w}.noteTogether(now)
	if why := w.approval.needsPerson(now); why != "" {
		if c.Reason != why {
			c.Reason = why
			w.op.setDeadline(now, 0)
			w.out.addNote(c.ID, "recovery", 2, "%s waits for a person: %s", c.ID, why)
		}
		return false
	}
	wait := time.Duration(w.policy.Recovery.Countdown * float64(time.Second))
	if wait > 0 && !w.op.clock.Limited() {
		c.Reason = withSubject(c, "policy approves it when its countdown ends")
		w.op.setDeadline(now, wait)
	}
	if !w.op.clock.Due(now) {
		return false
	}
	if (together{w}).mayEndTogether(now) {
		c.Reason = withSubject(c, "policy waits a moment: the other ranks may have ended with it")
		return false
	}
	if w.approval.mayBeOver(now) {
		c.Reason = withSubject(c,
			"policy approves it once the engine has heard its nodes for a while: the job may go on by itself")
		return false
	}
	w.approveRecovery(now, byPolicyName, byPolicyName)
	return true
}

// advanceStates goes through the states as far as what is known allows.
func (w *workflow) advanceStates(now time.Time) {
	for range 4 * generationsMost { // each state at most once a generation
		if w.op.rec == nil || !w.hasJob || !w.advanceOnce(now) {
			return
		}
	}
}

// advanceOnce reports whether the state changed, or something in it did.
func (w *workflow) advanceOnce(now time.Time) bool {
	switch w.op.rec.State {
	case falcon.RecoveryProposed:
		return newComeback(w).takeBack(now) || w.approveByPolicy(now)
	case falcon.RecoverySuspend:
		if newComeback(w).takeBack(now) {
			return true
		}
		if w.op.rec.Whole {
			return w.finishAgentWait(now)
		}
		return w.finishSuspend(now)
	case falcon.RecoveryReplace:
		return !w.op.rec.Whole && !w.op.replies.AnyAwaited() && w.beginTable(now)
	case falcon.RecoveryTable:
		return w.finishTable(now)
	case falcon.RecoveryCollect:
		return w.finishCollect(now)
	case falcon.RecoveryRejoin:
		return w.finishRejoin(now)
	}
	return false
}

// finishRecovery ends the recovery. Without success the processes that wait are ended:
// they would hold their devices for nothing.
func (w *workflow) finishRecovery(now time.Time, s falcon.RecoveryState, why string) {
	c := w.op.rec
	began := w.op.rec.Attempts > 0 && w.op.rec.JobEpoch == w.job.Epoch
	w.op.enterState(now, s, 0)
	c.Reason = why
	c.EndedNs = now.UnixNano()
	// else they end by themselves
	if s != falcon.RecoveryResumed &&
		began &&
		!w.op.overtaken() &&
		!w.ends.Most(w.ranks.worldSize()) {
		w.orders.stopEveryone()
		c.EndedJob = true
	}
	w.op.closeRecord()
	w.stop.reopen()
	if s != falcon.RecoveryResumed && (!onlyHang(c) || hasSign(c, falcon.SignNoneLeft)) {
		w.stop.stopJob(now)
	}
	w.pace.Restart(now)
	if s == falcon.RecoveryResumed {
		w.adoptOutcome(c)
		from := "" // of a whole restart, only the processes know
		if c.Resume >= 0 {
			from = fmt.Sprintf(" from iteration %d", c.Resume)
		}
		w.out.addNote(c.ID, "recovery", 1, "%s: the job trains again%s, %.1f s after %s",
			c.ID, from, float64(c.EndedNs-c.StartedNs)/1e9, firstSign(c))
	} else {
		w.out.addNote(c.ID, "recovery", 2, "%s is %s: %s", c.ID, s, why)
	}
	w.op.arrange()
}

// firstSign is what the time of a recovery counts from.
func firstSign(c *falcon.Recovery) string {
	asked := !slices.ContainsFunc(c.Faults, func(f falcon.Fault) bool { return f.AskedBy == "" })
	switch {
	case asked && c.PhaseMs[falcon.PhaseDetect] > 0:
		return "its last iteration"
	case asked:
		return "it was asked for"
	}
	return "the fault"
}

// cancelRecovery ends the recovery because nothing is left to do, and leaves the job running.
func (w *workflow) cancelRecovery(now time.Time, why string) {
	w.finishRecovery(now, falcon.RecoveryCancelled, why)
	w.stop.reopen()
}

// adoptOutcome describes the job as the recovery leaves it, until the engine does.
func (w *workflow) adoptOutcome(c *falcon.Recovery) {
	w.job.Placement, w.job.Generation = slices.Clone(c.Placement), max(w.job.Generation, c.Generation)
	w.ranks.trainAgain()
	if c.Resume >= 0 {
		w.pace.Rewind(c.Resume)
	}
}

// beginEpoch ends the recovery in progress, as the job was started again.
func (w *workflow) beginEpoch(now time.Time) {
	w.stop.reopen()
	w.stop.forgetLeftovers()
	w.endByEpoch(now)
}

func (w *workflow) endByEpoch(now time.Time) {
	c := w.op.rec
	switch {
	case c == nil:
	case c.Whole && c.State == falcon.RecoveryReplace && w.job.Generation >= c.Generation:
		c.Placement = slices.Clone(w.job.Placement)
		w.finishRecovery(now, falcon.RecoveryResumed, c.Reason)
	default:
		w.cancelRecovery(now, "the job was restarted meanwhile")
	}
}

// finishIfOver ends a recovery that the job's end has overtaken: ranks have ended
// with success, most of them or none otherwise, and no other is heard that still
// lives. Those that are not heard may have ended too.
func (w *workflow) finishIfOver(now time.Time) {
	c := w.op.rec
	if c == nil ||
		c.State != falcon.RecoverySuspend ||
		c.Whole && !w.op.onlyWaits() ||
		w.ends.Count() == 0 ||
		w.ranks.anyProcessFailed() && !w.ends.Most(w.ranks.worldSize()) {
		return
	}
	if w.anyoneAlive(now, c.Fenced) {
		return
	}
	w.op.markOvertaken()
	w.cancelRecovery(now, fmt.Sprintf(
		"%d of %d ranks have ended with success and no other is heard: the job has come to its end",
		w.ends.Count(), w.ranks.worldSize(),
	))
}

// cancelIfHealed ends a proposal whose job goes on by itself; one that was suspended
// does not.
func (w *workflow) cancelIfHealed(now time.Time) {
	c := w.op.rec
	if c == nil ||
		c.State != falcon.RecoveryProposed ||
		len(c.Faults) == 0 ||
		c.Attempts > 0 ||
		!selfHealing(c) {
		return
	}
	if w.pace.ConfirmedAfter(newestFault(c).Add(2 * w.cfg.Beat)) {
		w.cancelRecovery(now, fmt.Sprintf("iterations have resumed (%d): nothing is left to recover",
			w.pace.InBeats()))
	}
}

// reopenIfTraining reopens a stopped job in which iterations begin.
func (w *workflow) reopenIfTraining() {
	if w.stop.trainingResumed(&w.pace, w.cfg.Beat) {
		w.stop.reopen()
		w.out.addNote("", "recovery", 1, "the job goes on after all: iteration %d has begun",
			w.pace.InBeats())
	}
}

// stopLeftovers ends processes that still wait although the job is stopped: the order
// to end them may have been lost with the engine that was to give it.
func (w *workflow) stopLeftovers(now time.Time) {
	if w.op.rec != nil || !w.stop.hasLeftovers(now, w.cfg.Beat) {
		return
	}
	last := w.hist.newest()
	if nodes, ranks := w.stop.takeLeftovers(); len(ranks) > 0 && last.Attempts > 0 {
		w.out.addCommand(Stop{
			Generation: last.Generation,
			Nodes:      nodes,
			Ranks:      ranks,
		})
	}
}
