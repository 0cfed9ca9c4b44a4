package engine

import (
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
	if o, out := pd.orders.revived(pd.state.job.Layout.World(), pd.state.job.Epoch, pd.cluster.recoveryBegun()); o != nil {
		pd.agreedLate(now, o, out)
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
			pd.oplog.logf("action", 3, "order %d can't take effect: %s", o.Order.ID, out.Failed)
			pd.plan.Step(now, mitigate.Undeliverable{Order: o.Order.ID, Reason: out.Failed})
		} else {
			pd.orders.close(o)
			pd.commit(now, o, out)
		}
		pd.sendWaiting(now)
	}
}

// situation is what is seen of the job while an order's vote is waited for.
func (pd *planDelivery) situation(now time.Time, o *order) vote.Situation {
	return vote.Situation{
		JobEpoch: pd.state.job.Epoch, World: pd.state.job.Layout.World(), Deadline: o.item.Deadline, Quiet: o.quiet,
		Patience: votesAfter * time.Duration(min(pd.det.Steady().CurrentMs, 1e9)*float64(time.Millisecond)),
		Gone:     pd.cluster.endedRank(now), Left: o.Order.Leave && pd.cluster.allGone(now),
	}
}

// announce takes what a process reports of its vote in its state.
func (o *order) announce(now time.Time, p *process) { o.vote.Announce(now, p.rank, p.state, p.next) }

// recoveryBegun reports whether a recovery has begun in this job epoch.
func (c *clusterView) recoveryBegun() bool {
	n := len(c.state.recoveries)
	return n > 0 && c.state.recoveries[n-1].JobEpoch == c.state.job.Epoch && c.state.recoveries[n-1].Attempts > 0
}

func (pd *planDelivery) agreedLate(now time.Time, o *order, out outcomeRecord) {
	pd.batch.addRecords(record(now, kindOutcome, out))
	pd.oplog.logf("action", 1, "order %d was given up on and the ranks agreed on it after all", o.Order.ID)
	pd.commit(now, o, out)
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

// goneAfter is how long the answers of ranks that took an order before one of them
// ended may take to come.
const goneAfter = 15 * time.Second
