package recovery

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// Where no spare comes and policy allows it, the job goes on with the replicas
// that are whole: a whole restart from the checkpoint, as the groups of those who
// stay are of another world. Until that world is there, everything that is known
// of ranks is of the one before.

// fewer says what is given up.
func fewer(s *falcon.Shrink) string {
	return fmt.Sprintf("it goes on with %d of %d replicas: no spare came", len(s.Kept), s.Of)
}

// shrunk is what the job can go on with where an assignment lacks spares; else
// why it can't, empty where policy has no such thing in mind.
func (m *Machine) shrunk(a assignment) (*falcon.Shrink, string) {
	l, total := m.job.Layout, 0
	for _, n := range m.cur.Splits {
		total += int(n)
	}
	unit := max(m.job.Unit, 1)
	switch {
	case !m.policy.Recovery.AllowShrink:
		return nil, ""
	case !m.job.Adapter:
		return nil, "the job has no adapter, so that nobody knows how it shares its batch and state out"
	case m.job.ZeRO.Stage > 0:
		return nil, "ZeRO spreads the optimizer's state over all replicas"
	case l.DP < 2:
		return nil, "the job has one replica"
	case total < unit || total%unit != 0:
		return nil, "not all ranks have said how many micro-batches they take"
	}
	kept := m.wholeReplicas(a)
	if len(kept) == 0 {
		return nil, "no replica is whole"
	}
	kept = kept[:min(len(kept), total/unit)]
	s := &falcon.Shrink{Of: l.DP, Kept: kept, Splits: falcon.Deal(total, len(kept), unit)}
	s.Layout, s.Placement = l.KeepReplicas(m.placement(), kept)
	return s, ""
}

// wholeReplicas are those of which every rank's node stays and can start
// processes, ascending.
func (m *Machine) wholeReplicas(a assignment) []int {
	lost := make([]bool, m.job.Layout.DP)
	for r, d := range m.placement() {
		if n := d.Node(); slices.Contains(a.fence, n) || !m.launches(n) {
			lost[m.job.Layout.Replica(falcon.Rank(r))] = true
		}
	}
	var out []int
	for i, gone := range lost {
		if !gone {
			out = append(out, i)
		}
	}
	return out
}

// spareless is what follows when no spare came in time. Fewer replicas are
// another plan than the one that was approved: it is decided on anew.
func (m *Machine) spareless(now time.Time, a assignment) {
	c := m.cur
	s, _ := m.shrunk(a)
	if s == nil {
		m.finish(now, falcon.RecoveryFailed, fmt.Sprintf("no spare came within %s: %s; bring one and start the job again from its checkpoint", m.cfg.SpareWait, a.lack))
		return
	}
	c.Whole, c.Shrink, c.Reason = true, s, fewer(s)
	c.DecidedBy, c.DecidedFrom = "", ""
	m.at.spare = false
	m.enter(now, falcon.RecoveryProposed, 0)
	m.propose(now)
}

// shrinkAnew looks again at a proposal to go on with fewer replicas: others may
// be lost since, or a spare is here after all. False = the recovery is over.
func (m *Machine) shrinkAnew(now time.Time, a assignment) bool {
	c := m.cur
	if a.lack == "" {
		c.Whole, c.Shrink, c.Reason = false, nil, ""
		m.deadline(now, 0)
		m.note("recovery", 1, "%s: a spare came: no replica is given up", c.ID)
		return true
	}
	s, _ := m.shrunk(a)
	if s == nil {
		m.finish(now, falcon.RecoveryFailed, a.lack+"; bring a spare and start the job again from its checkpoint")
		return false
	}
	c.Shrink = s
	return true
}

// lostMore asks anew where a replica that was to stay is lost as well: true =
// the smaller world that was approved can't be had.
func (m *Machine) lostMore(now time.Time) bool {
	c := m.cur
	if !slices.ContainsFunc(c.Shrink.Placement, func(d falcon.Device) bool { return m.isFenced(d.Node()) }) {
		return false
	}
	c.DecidedBy, c.DecidedFrom = "", ""
	m.enter(now, falcon.RecoveryProposed, 0)
	m.propose(now)
	return true
}

// takeFewer puts the smaller world in force, as far as launches are concerned:
// what was launched for ranks of the world before means nothing in it.
func (m *Machine) takeFewer(generation uint64) {
	c := m.cur
	clear(c.Replaced)
	clear(c.Launched)
	clear(m.ranks)
	m.allBelow(c)
	for r, d := range c.Shrink.Placement {
		c.Replaced[falcon.Rank(r)], c.Launched[falcon.Rank(r)] = d, generation
	}
	c.Splits = slices.Clone(c.Shrink.Splits)
	c.Pending, c.Survivors = nil, nil
}

// allBelow takes no word any more of a process of the world before.
func (m *Machine) allBelow(c *falcon.Recovery) {
	for _, d := range c.Placement {
		m.least[d] = max(m.least[d], c.Generation)
	}
}

// launchedOn is the placement that a recovery launches processes for.
func launchedOn(c *falcon.Recovery) falcon.Placement {
	if c.Shrink != nil {
		return c.Shrink.Placement
	}
	return c.Placement
}
