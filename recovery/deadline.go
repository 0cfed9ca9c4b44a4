package recovery

import (
	"fmt"
	"time"

	"github.com/failslow/falcon"
)

// onDeadline follows when a state takes too long.
func (w *workflow) onDeadline(now time.Time) {
	c := w.op.rec
	switch c.State {
	case falcon.RecoverySuspend:
		if c.Whole {
			w.onAgentDeadline(now)
			return
		}
		w.onSuspendDeadline(now)
	case falcon.RecoveryReplace:
		if c.Whole {
			w.finishRecovery(now, falcon.RecoveryFailed,
				"the whole restart did not come up in time; start the job again from its checkpoint")
			return
		}
		w.giveUpWaiting(now, falcon.FaultNode, "processes launched on node %s did not park within %s",
			w.cfg.ReplaceMost)
	case falcon.RecoveryTable:
		why := map[falcon.Node]string{}
		for _, n := range w.op.stayingNodes() {
			if !w.op.replies.Tabled(n) {
				why[n] = fmt.Sprintf("no answer within %s", w.cfg.TableMost)
			}
		}
		w.tableFailed(now, why)
	case falcon.RecoveryCollect:
		w.giveUpWaiting(now, falcon.FaultFrozen, "a process on node %s parked no more within %s",
			w.cfg.CollectMost)
	case falcon.RecoveryRejoin:
		world := w.ranks.worldSize()
		w.rejoinFailed(now, fmt.Sprintf("%d of %d ranks did not rejoin within %s",
			world-w.op.replies.RejoinedCount(), world, w.cfg.RejoinMost))
	}
}

// onSuspendDeadline takes processes that did not park for frozen, or gives up without a spare.
func (w *workflow) onSuspendDeadline(now time.Time) {
	if w.op.acknowledgeParked() {
		w.op.setDeadline(now, w.cfg.SuspendMost)
		return
	}
	if w.op.rec.Wait != nil && !w.op.rec.Wait.Spare && w.op.isSettled() {
		return // nobody came back: it goes on by itself
	}
	waited, before := w.op.spare.end(), w.op.rec.Wait
	if a := w.alloc.assignRanks(now); waited && a.lack != "" {
		w.onNoSpare(now, a)
		return
	}
	fenced := len(w.op.rec.Fenced)
	what := "processes on node %s did not park within %s"
	if w.op.isSettled() {
		what = "processes to be replaced on node %s did not end within %s"
	}
	w.giveUpWaiting(now, falcon.FaultFrozen, what, w.cfg.SuspendMost)
	switch {
	case w.op.rec == nil || w.op.rec.State != falcon.RecoverySuspend:
	case before == nil && w.op.rec.Wait != nil: // half of the nodes or more are not heard
	case len(w.op.rec.Fenced) == fenced && !w.op.gathering(now):
		// no node is late, and still it does not go on
		w.finishRecovery(now, falcon.RecoveryFailed,
			"the job could not be suspended; start it again from its checkpoint")
	default:
		w.op.setDeadline(now, w.cfg.SuspendMost)
	}
}

// onAgentDeadline gives up the nodes whose agents did not come back, or gives up without a spare.
func (w *workflow) onAgentDeadline(now time.Time) {
	waited := w.op.spare.end()
	if a := w.alloc.assignRanks(now); waited && a.lack != "" {
		w.onNoSpare(now, a)
		return
	}
	if len(w.op.missingAgents()) == 0 {
		return // it goes on by itself
	}
	c := w.op.rec
	c.WholeWhy = wholeReason(c) +
		fmt.Sprintf("; %s did not come back within %s", describeAgents(w.op.missingAgents()), w.cfg.AgentWait)
	c.Reason = c.WholeWhy
	w.giveUpWaiting(now, falcon.FaultNode, "the agent of node %s did not come back within %s",
		w.cfg.AgentWait)
}

// giveUpWaiting gives up the nodes that the state waits for. Where they are half of all or more it
// waits for them; where they are the most it is not they who are at fault.
func (w *workflow) giveUpWaiting(now time.Time, kind falcon.FaultKind, format string, limit time.Duration) {
	late, nodes := w.lateNodes(), len(w.ranks.usedNodes())
	launched := w.op.rec.State == falcon.RecoveryReplace
	many := len(late) > 1
	switch {
	case many &&
		!launched &&
		2*len(late) >= nodes &&
		newWaits(w).awaitMost(now, late):
		return
	case many && launched && 2*len(late) > nodes:
		w.finishRecovery(
			now,
			falcon.RecoveryFailed,
			fmt.Sprintf(format, late[0], limit)+
				fmt.Sprintf(
					", nor did those on %d of %d nodes: what was launched may not be able to rejoin; look at its output, then start the job again from its checkpoint",
					len(late), nodes,
				),
		)
		return
	case many && 2*len(late) > nodes:
		w.finishRecovery(
			now,
			falcon.RecoveryFailed,
			fmt.Sprintf(format, late[0], limit)+
				fmt.Sprintf(
					", nor did %d of %d nodes: the engine's own network may be at fault; start the job again from its checkpoint",
					len(late), nodes,
				),
		)
		return
	}
	for _, n := range late {
		w.giveUpNode(now, kind, n, fmt.Sprintf(format, n, limit))
	}
}

// lateNodes are the nodes that the state waits for.
func (w *workflow) lateNodes() (late []falcon.Node) {
	for _, n := range w.op.stayingNodes() {
		if w.op.waitsForNode(n) {
			late = append(late, n)
		}
	}
	return late
}
