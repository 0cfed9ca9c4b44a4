package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/vote"
	"github.com/failslow/falcon/mitigate"
)

// An order holds once the ranks have voted for it. What is known of the vote comes
// from agents' answers and from the ranks' own states.

// votesAfter is how many iterations an order's vote may take to come.
const votesAfter = 10

// judge ends the orders whose outcome is known.
func (pd *planDelivery) judge(now time.Time) {
	if o, out := pd.orders.revived(
		pd.state.job.Layout.World(),
		pd.state.job.Epoch,
		pd.cluster.recoveryBegun(),
	); o != nil {
		pd.batch.addRecords(record(now, kindOutcome, out))
		pd.oplog.logf("action", 1, "", "order %d was given up on and the ranks agreed on it after all",
			o.Order.ID)
		pd.commit(now, o, out)
	}
	for _, o := range pd.orders.open() {
		if o.Order.Kind == falcon.OrderPlacement {
			for _, p := range pd.job.ranks {
				o.announce(now, p)
			}
		}
		out, over := o.vote.Outcome(now, pd.situation(now, o))
		if !over {
			pd.noteVote(now, o)
			continue
		}
		pd.batch.addRecords(record(now, kindOutcome, out))
		if out.Failed != "" {
			pd.orders.giveUp(o)
			pd.oplog.logf("action", 3, "", "order %d can't take effect: %s", o.Order.ID, out.Failed)
			pd.plan.Step(now, mitigate.Undeliverable{
				Order:  o.Order.ID,
				Reason: out.Failed,
			})
		} else {
			pd.orders.close(o)
			pd.commit(now, o, out)
		}
		pd.sendWaiting(now)
	}
}

// situation is what is seen of the job while an order's vote is waited for.
func (pd *planDelivery) situation(now time.Time, o *order) vote.Situation {
	_, running := pd.cluster.stillRunning(now, pd.state.job.Placement)
	return vote.Situation{
		JobEpoch: pd.state.job.Epoch,
		World:    pd.state.job.Layout.World(),
		Deadline: o.item.Deadline,
		Quiet:    o.quiet,
		Patience: votesAfter * time.Duration(min(pd.det.Steady().CurrentMs, 1e9)*float64(time.Millisecond)),
		Gone:     pd.cluster.endedRank(now),
		Left:     o.Order.Leave && !running,
	}
}

// announce takes what a process reports of its vote in its state.
func (o *order) announce(now time.Time, p *process) {
	o.vote.Announce(now, p.rank, p.state, p.next)
}

// commit carries out an order that the ranks have agreed on.
func (pd *planDelivery) commit(now time.Time, o *order, out outcomeRecord) {
	pd.plan.Step(now, mitigate.Committed{
		Order:        o.Order.ID,
		Iteration:    out.Iteration,
		Status:       out.Status,
		MicroBatches: o.Order.MicroBatches,
		Swap:         out.Swap,
		Resume:       out.Resume,
	})
	if out.Status != 0 {
		pd.oplog.logf("action", 2, "",
			"order %d (%s) was refused by the ranks at iteration %d (status %d): the job goes on as it was",
			o.Order.ID, o.Order.Kind, out.Iteration, out.Status)
		return
	}
	switch rec := pd.state.job; o.Order.Kind {
	case falcon.OrderMicroBatches:
		rec.MicroBatches = slices.Clone(o.Order.MicroBatches)
		pd.describer.commit(now, rec)
	case falcon.OrderPlacement:
		if !pd.describer.place(now, o.Order.ID, out.Iteration, moves(o.Order.Blocks, len(rec.Processes))) {
			pd.oplog.logf("action", 3, "",
				"placement %d does not fit the job's %d ranks: the picture stays as it is",
				o.Order.ID, len(rec.Processes))
			return
		}
		pd.oplog.logf("action", 1, "", "placement %d holds from iteration %d: %s",
			o.Order.ID, out.Iteration, stepsText(out.Swap))
		pd.describer.announceToPlanner(now)
	case falcon.OrderCheckpoint:
		if o.Order.Leave {
			pd.left(now, o, out.Resume)
		}
	}
}

func stepsText(s *falcon.Swap) string {
	text := ""
	for i, name := range falcon.SwapSteps {
		text += fmt.Sprintf("%s %.1f ms, ", name, s.StepMs[i])
	}
	return fmt.Sprintf("%s%.1f MB moved", text, s.MovedMB)
}

// withdraw ends an order: by the vote where a rank has acknowledged it, as the vote
// is the commit, and as undeliverable else. A process that unwinds drops what it
// has not voted for.
func (pd *planDelivery) withdraw(now time.Time, o *order, why string) {
	out := o.vote.Failed(why)
	if o.vote.Taken() > 0 {
		out = o.vote.Agreed()
	}
	pd.batch.addRecords(record(now, kindOutcome, out))
	if out.Failed == "" {
		pd.orders.close(o)
		pd.commit(now, o, out)
		return
	}
	pd.orders.giveUp(o)
	pd.oplog.logf("action", 2, "", "order %d is withdrawn: %s", o.Order.ID, out.Failed)
	pd.plan.Step(now, mitigate.Undeliverable{Order: o.Order.ID, Reason: out.Failed})
}

// recoveryBegun reports whether a recovery has begun in this job epoch.
func (c *clusterView) recoveryBegun() bool {
	n := len(c.state.recoveries)
	return n > 0 &&
		c.state.recoveries[n-1].JobEpoch == c.state.job.Epoch &&
		c.state.recoveries[n-1].Attempts > 0
}

// takeVote takes what a process says of its vote. What it may not say any more, as it
// is fenced, does not count.
func (pd *planDelivery) takeVote(p *process, now time.Time) {
	if pd.state.fences.processFenced(p.name) {
		return
	}
	for _, o := range pd.orders.votable() {
		o.announce(now, p)
		pd.noteVote(now, o)
	}
}

// noteVote makes the first vote known of an order durable.
func (pd *planDelivery) noteVote(now time.Time, o *order) {
	if v := o.vote.TakeFirst(); v != nil {
		pd.batch.addRecords(record(now, kindVote, *v))
		pd.views.dirty = true
	}
}
