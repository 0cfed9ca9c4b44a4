package recovery

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/internal/attempt"
	"github.com/failslow/falcon/recovery/replica"
)

// beginTable brings the generation's rank table to all nodes. Processes launched in an earlier
// generation park for that one: they obey one more suspension, as all others do.
func (w *workflow) beginTable(now time.Time) bool {
	if r, found := w.op.firstUnparked(); found {
		w.beginAttempt(now, fmt.Sprintf("rank %d does not wait in generation %d: all are suspended again",
			r, w.op.rec.Generation))
		return true
	}
	w.op.enterState(now, falcon.RecoveryTable, w.cfg.TableMost)
	w.orders.sendTable()
	return true
}

func (w *workflow) onTabled(now time.Time, t Tabled) {
	c := w.op.rec
	if c == nil ||
		c.State != falcon.RecoveryTable ||
		t.Generation != c.Generation ||
		len(w.ranks.ranksOnNode(t.Node)) == 0 {
		return
	}
	if t.Failed != "" {
		w.tableFailed(now, map[falcon.Node]string{t.Node: t.Failed})
		return
	}
	w.op.replies.AddTabled(t.Node)
	w.op.clock.Advance(now)
}

// tableFailed tries the whole again once; nodes that fail twice are given up.
func (w *workflow) tableFailed(now time.Time, why map[falcon.Node]string) {
	var bad []falcon.Node
	for n := range why {
		if w.op.countTableFailure(n) > 1 {
			bad = append(bad, n)
		}
	}
	slices.Sort(bad)
	if 2*len(bad) > len(w.ranks.usedNodes()) {
		w.finishRecovery(
			now,
			falcon.RecoveryFailed,
			fmt.Sprintf(
				"most nodes did not take the rank table (node %s: %s); start the job again from its checkpoint",
				bad[0], why[bad[0]],
			),
		)
		return
	}
	if len(bad) == 0 {
		w.beginAttempt(now, "a node did not take the rank table; all of it is tried again")
		return
	}
	for _, n := range bad {
		w.giveUpNode(now, falcon.FaultNode, n, fmt.Sprintf("node %s did not take the rank table: %s",
			n, why[n]))
	}
}

// finishTable goes on once all nodes have the table.
func (w *workflow) finishTable(now time.Time) bool {
	if w.op.replies.TabledCount() != len(w.ranks.usedNodes()) {
		return false
	}
	w.op.enterState(now, falcon.RecoveryCollect, w.cfg.CollectMost)
	return true
}

// finishCollect goes on once all ranks have reported what they hold; that does not
// change any more, since none leaves without the order to rejoin.
func (w *workflow) finishCollect(now time.Time) bool {
	if _, found := w.op.firstUnparked(); found {
		return false
	}
	w.beginRejoin(now)
	return true
}

// beginRejoin chooses the step and lets the processes go: the point of no return.
func (w *workflow) beginRejoin(now time.Time) {
	c := w.op.rec
	choice, err := w.chooseStep(w.op.trustedHolds(), c.Placement)
	switch {
	case err != nil:
		w.finishRecovery(
			now,
			falcon.RecoveryFailed,
			fmt.Sprintf("the job can't be described: %s; start it again from its checkpoint", err),
		)
		return
	case c.FailedRejoins >= w.cfg.Rejoins && !choice.Checkpoint:
		choice = replica.Choice{
			Checkpoint: true,
			Why:        fmt.Sprintf("%d rejoins from replicas failed", c.FailedRejoins),
		}
	}
	if choice.Checkpoint && w.job.Checkpoint < 0 {
		w.finishRecovery(
			now,
			falcon.RecoveryFailed,
			choice.Why+
				"; storage holds no checkpoint that is known of: start the job again from the best state that you have",
		)
		return
	}
	w.applyChoice(choice)
	w.op.enterState(now, falcon.RecoveryRejoin, w.cfg.RejoinMost)
	w.orders.sendRejoin()
	restoring := len(c.Moves)
	if c.Checkpoint {
		restoring = w.ranks.worldSize()
	}
	w.out.addNote(c.ID, "recovery", 1, "%s: generation %d goes on at iteration %d, %d ranks restore",
		c.ID, c.Generation, c.Resume, restoring)
}

func (w *workflow) applyChoice(choice replica.Choice) {
	c := w.op.rec
	c.Resume = choice.Resume
	c.Moves = choice.Moves
	c.Checkpoint = choice.Checkpoint
	c.NoReturn = true
	c.Reason = choice.Why
	if c.Checkpoint {
		c.Resume = w.job.Checkpoint
		c.Moves = nil
		w.out.addNote(c.ID, "recovery", 2, "%s: all ranks go back to the checkpoint of iteration %d: %s",
			c.ID, c.Resume, choice.Why)
	}
	if len(choice.Outvoted) > 0 {
		w.out.addNote(c.ID, "recovery", 2,
			"%s: the state of %s differs from its replicas' and is restored from them",
			c.ID, rankList(choice.Outvoted))
	}
}

func (w *workflow) onRejoined(now time.Time, x Rejoined) {
	c := w.op.rec
	if c == nil ||
		c.State != falcon.RecoveryRejoin ||
		x.Generation != c.Generation ||
		!w.ranks.hasRank(x.Rank) {
		return
	}
	switch {
	case x.Status != 0:
		w.rejoinFailed(now, fmt.Sprintf("rank %d could not rejoin (status %d)", x.Rank, x.Status))
	case x.Iteration != c.Resume:
		w.rejoinFailed(now, fmt.Sprintf("rank %d rejoined at iteration %d instead of %d",
			x.Rank, x.Iteration, c.Resume))
	default:
		w.op.replies.AddRejoined(x.Rank, attempt.Times{
			GroupsMs:  x.GroupsMs,
			RestoreMs: x.RestoreMs,
		})
		w.op.clock.Advance(now)
	}
}

// rejoinFailed tries again, from the checkpoint where replicas did not do, and
// gives up where that did not do either.
func (w *workflow) rejoinFailed(now time.Time, why string) {
	c := w.op.rec
	c.FailedRejoins++
	if c.FailedRejoins > w.cfg.Rejoins {
		w.finishRecovery(
			now,
			falcon.RecoveryFailed,
			fmt.Sprintf("%s, from the checkpoint too; start the job again from it", why),
		)
		return
	}
	w.out.addNote(c.ID, "recovery", 2, "%s: %s; it is tried again", c.ID, why)
	w.beginAttempt(now, why)
	w.op.markRejoinFailed()
}

// finishRejoin ends the recovery once all ranks train again.
func (w *workflow) finishRejoin(now time.Time) bool {
	if !w.op.trainsAgain() {
		return false
	}
	w.finishRecovery(now, falcon.RecoveryResumed, w.op.rec.Reason)
	return true
}
