package recovery

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/replica"
)

// copies is which shards the nodes still hold. A node that is not heard may hold what no other does:
// giving it up would lose training's state, so it is waited for longer.
type copies struct {
	*jobState
	op *operation
}

// holdsShard reports whether a rank's process still has its shard.
func (c *copies) holdsShard(r falcon.Rank) bool {
	_, replaced := c.op.rec.Replaced[r]
	return !replaced &&
		!slices.Contains(c.op.rec.Pending, r) &&
		!c.op.isFenced(c.ranks.nodeOf(r)) &&
		c.ranks.memberOf(r).isAlive()
}

// hasLastCopy reports whether a shard would be lost with node n.
func (c *copies) hasLastCopy(n falcon.Node) bool {
	q := replica.Query{
		Layout:    c.job.Layout,
		ZeRO:      c.job.ZeRO,
		Placement: c.ranks.placementInForce(),
	}
	if q.Check() != nil {
		return false
	}
	return slices.ContainsFunc(q.Shards(), func(shard []falcon.Rank) bool {
		here, elsewhere := false, false
		for _, r := range shard {
			on := c.ranks.nodeOf(r) == n
			holds := c.holdsShard(r)
			here = here || on && holds
			elsewhere = elsewhere || !on && holds
		}
		return here && !elsewhere
	})
}

// irreplaceable reports whether a node not heard is waited for because of what it alone holds.
func (c *copies) irreplaceable(now time.Time, n falcon.Node) bool {
	return c.job.Checkpoint < 0 &&
		c.op.clock.Spent(now) < c.cfg.AgentWait &&
		c.nodes.Get(n, now).Unheard(now) &&
		c.hasLastCopy(n)
}

// awaitsLastCopy reports whether the present state waits for such a node.
func (c *copies) awaitsLastCopy(now time.Time) bool {
	return c.op.isUnderway() &&
		!c.op.rec.Whole &&
		slices.ContainsFunc(c.ranks.usedNodes(), func(n falcon.Node) bool {
			return c.op.waitsForNode(n) && c.irreplaceable(now, n)
		})
}
