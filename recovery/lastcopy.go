package recovery

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/replica"
)

// A node that is not heard may be well, and hold what no other node holds: giving
// it up would lose the training's state. It is waited for longer than others.

// holdsShard reports whether a rank's process still has its shard.
func (m *Machine) holdsShard(r falcon.Rank) bool {
	_, replaced := m.cur.Replaced[r]
	x := &m.ranks[r]
	return !replaced && !slices.Contains(m.cur.Pending, r) && !m.isFenced(m.placement()[r].Node()) && x.known && x.proc.Alive
}

// lastCopy reports whether a shard would be lost with node n.
func (m *Machine) lastCopy(n falcon.Node) bool {
	q := replica.Query{Layout: m.job.Layout, ZeRO: m.job.ZeRO, Placement: m.placement()}
	if q.Check() != nil {
		return false
	}
	return slices.ContainsFunc(q.Shards(), func(shard []falcon.Rank) bool {
		here, elsewhere := false, false
		for _, r := range shard {
			on := m.placement()[r].Node() == n
			holds := m.holdsShard(r)
			here, elsewhere = here || on && holds, elsewhere || !on && holds
		}
		return here && !elsewhere
	})
}

// irreplaceable reports whether a node that is not heard is waited for because of what
// it alone holds.
func (m *Machine) irreplaceable(now time.Time, n falcon.Node) bool {
	return m.job.Checkpoint < 0 && now.Sub(m.at.entered) < m.cfg.AgentWait && m.unheard(now, m.host(n, now)) && m.lastCopy(n)
}

// deadlineWaits reports whether the present state waits for such a node.
func (m *Machine) deadlineWaits(now time.Time) bool {
	return m.recovering() && !m.cur.Whole && slices.ContainsFunc(m.sorted, func(n falcon.Node) bool { return m.waitsFor(n) && m.irreplaceable(now, n) })
}
