package engine

import (
	"time"

	"github.com/failslow/falcon/mitigate"
)

// An order holds once the ranks have voted for it. What is known of the vote comes
// from agents' answers and from the ranks' own states.

// votesAfter is how many iterations an order's vote may take to come.
const votesAfter = 10

// judgeOrders ends the orders whose outcome is known.
func (e *Engine) judgeOrders(now time.Time) {
	if o, out := e.orders.revived(e.mem.job.Layout.World(), e.mem.job.Epoch, e.cluster.recoveryBegun()); o != nil {
		e.agreedLate(now, o, out)
	}
	for _, id := range sortedKeys(e.orders.open) {
		o := e.orders.open[id]
		e.cluster.gatherWitnesses(o, now)
		o.gone = e.cluster.endedRank(now)
		o.left = o.Order.Leave && e.cluster.allGone(now)
		o.patience = votesAfter * time.Duration(min(e.det.Steady().CurrentMs, 1e9)*float64(time.Millisecond))
		out, over := o.outcome(e.mem.job.Layout.World(), e.mem.job.Epoch, now)
		if !over {
			e.noteVote(now, o)
			continue
		}
		delete(e.orders.open, id)
		e.batch.add(record(now, kindOutcome, out))
		if out.Failed != "" {
			e.orders.giveUp(o)
			e.oplog.logf("action", 3, "order %d can't take effect: %s", o.Order.ID, out.Failed)
			e.plan.Step(now, mitigate.Undeliverable{Order: o.Order.ID, Reason: out.Failed})
		} else {
			e.committed(now, o, out)
		}
		e.letGo(now)
	}
}

// recoveryBegun reports whether a recovery has begun in this job epoch.
func (c *clusterView) recoveryBegun() bool {
	n := len(c.mem.recoveries)
	return n > 0 && c.mem.recoveries[n-1].JobEpoch == c.mem.job.Epoch && c.mem.recoveries[n-1].Attempts > 0
}

func (e *Engine) agreedLate(now time.Time, o *order, out outcomeRecord) {
	e.batch.add(record(now, kindOutcome, out))
	e.oplog.logf("action", 1, "order %d was given up on and the ranks agreed on it after all", o.Order.ID)
	e.committed(now, o, out)
}

// takeVote takes what a process says of its vote. What it may not say any more, as it
// is fenced, does not count.
func (e *Engine) takeVote(p *process, now time.Time) {
	if e.mem.fences.process(p.name) {
		return
	}
	for _, o := range e.orders.all() {
		o.witness(p, now)
		e.noteVote(now, o)
	}
}

// noteVote makes the first word of an order durable.
func (e *Engine) noteVote(now time.Time, o *order) {
	if v := o.vote(); v != nil {
		e.batch.add(record(now, kindVote, *v))
		e.views.dirty = true
	}
}

// goneAfter is how long the word of ranks that took an order before one of them
// ended may take to come.
const goneAfter = 15 * time.Second
