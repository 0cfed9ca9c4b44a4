package recovery

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// overdue is what follows when a state takes too long.
func (m *Machine) overdue(now time.Time) {
	c := m.cur
	switch c.State {
	case falcon.RecoverySuspend:
		if c.Whole {
			m.agentsOverdue(now)
			return
		}
		m.suspendOverdue(now)
	case falcon.RecoveryReplace:
		if c.Whole {
			m.finish(now, falcon.RecoveryFailed, "the whole restart did not come up in time; start the job again from its checkpoint")
			return
		}
		m.giveUpLate(now, falcon.FaultNode, "processes launched on node %s did not park within %s", m.cfg.ReplaceMost)
	case falcon.RecoveryTable:
		why := map[falcon.Node]string{}
		for _, n := range m.stay() {
			if !m.at.tabled[n] {
				why[n] = fmt.Sprintf("no answer within %s", m.cfg.TableMost)
			}
		}
		m.tableFailed(now, why)
	case falcon.RecoveryCollect:
		m.giveUpLate(now, falcon.FaultFrozen, "a process on node %s parked no more within %s", m.cfg.CollectMost)
	case falcon.RecoveryRejoin:
		m.rejoinFailed(now, fmt.Sprintf("%d of %d ranks did not rejoin within %s", len(m.ranks)-len(m.at.rejoined), len(m.ranks), m.cfg.RejoinMost))
	}
}

// suspendOverdue takes whoever did not park for frozen, or gives up where no
// spare came.
func (m *Machine) suspendOverdue(now time.Time) {
	if a := m.assign(now); m.at.spare && a.lack != "" {
		m.spareless(now, a)
		return
	}
	m.at.spare = false
	gone := len(m.cur.Fenced)
	m.giveUpLate(now, falcon.FaultFrozen, "processes on node %s did not park within %s", m.cfg.SuspendMost)
	switch {
	case m.cur == nil || m.cur.State != falcon.RecoverySuspend:
	case len(m.cur.Fenced) == gone && !now.Before(m.at.gather): // nobody is late, and still it does not go on
		m.finish(now, falcon.RecoveryFailed, "the job could not be suspended; start it again from its checkpoint")
	default:
		m.deadline(now, m.cfg.SuspendMost)
	}
}

// giveUpLate gives up the nodes that the state waits for, unless they are the
// most: then it is not they who are at fault.
func (m *Machine) giveUpLate(now time.Time, kind falcon.FaultKind, format string, most time.Duration) {
	var late []falcon.Node
	for _, n := range m.stay() {
		if m.waitsFor(n) {
			late = append(late, n)
		}
	}
	if m.cur.State != falcon.RecoveryReplace && len(late) > 1 && 2*len(late) > len(m.on) {
		m.finish(now, falcon.RecoveryFailed, fmt.Sprintf(format, late[0], most)+fmt.Sprintf(", nor did %d of %d nodes: the console's own network may be at fault; start the job again from its checkpoint", len(late), len(m.on)))
		return
	}
	for _, n := range late {
		m.giveUp(now, kind, n, fmt.Sprintf(format, n, most))
	}
}

// onRestored takes up where an engine before this one stopped: the orders of
// the state are given again, under the same generation.
func (m *Machine) onRestored(now time.Time, in Restored) {
	m.nextID = max(m.nextID, in.NextID)
	m.generation = max(m.generation, in.Generation)
	m.recs, m.cur, m.hear.since = nil, nil, now
	for _, d := range in.Devices {
		h := m.host(deviceNode(d.Device.Device), now)
		h.fatal, h.fatalAt = d.Device, time.Unix(0, d.AtNs)
	}
	for _, r := range in.Ended {
		if r >= 0 && int(r) < len(m.ranks) && !launchedSince(in.Recoveries, r) {
			m.ends.succeed(now, r, m.pace.told) // an end that nobody heard of meanwhile counts as the same
		}
	}
	m.allOver(now)
	for _, c := range in.Recoveries {
		c = clone(&c)
		m.recs = append(m.recs, &c)
		m.generation = max(m.generation, c.Generation)
	}
	// Not by the first sign of their faults: that may be older than the recovery before.
	slices.SortStableFunc(m.recs, func(a, b *falcon.Recovery) int {
		return cmp.Or(cmp.Compare(len(a.ID), len(b.ID)), cmp.Compare(a.ID, b.ID))
	})
	if len(m.recs) == 0 {
		return
	}
	last := m.recs[len(m.recs)-1]
	for _, c := range m.recs {
		m.floors(c)
	}
	switch {
	case !last.State.Over():
		m.goOn(now, last)
	case last.JobEpoch != m.job.Epoch:
	case last.State == falcon.RecoveryResumed && !last.Whole && len(last.Placement) == len(m.ranks):
		m.settle(last)
	case last.State != falcon.RecoveryResumed && (last.DecidedBy != "" || last.Attempts > 0):
		m.closed, m.closedAt = true, now
	}
	m.index()
}

// launchedSince reports whether a recovery that goes on has launched a rank that
// had ended with success.
func launchedSince(all []falcon.Recovery, r falcon.Rank) bool {
	return slices.ContainsFunc(all, func(c falcon.Recovery) bool { return !c.State.Over() && c.Launched[r] > 0 })
}

// floors says again of which generation the processes on devices are at least.
func (m *Machine) floors(c *falcon.Recovery) {
	on := launchedOn(c)
	for r, g := range c.Launched {
		if r >= 0 && int(r) < len(on) && (g <= m.job.Generation || c.JobEpoch == m.job.Epoch) {
			m.least[on[r]] = max(m.least[on[r]], g)
		}
	}
	if c.Shrink != nil && c.NoReturn && c.JobEpoch == m.job.Epoch {
		m.allBelow(c)
	}
}

// goOn restores the attempt: where the engine stood still, its time counts.
func (m *Machine) goOn(now time.Time, c *falcon.Recovery) {
	m.cur = c
	if c.Replaced == nil {
		c.Replaced = map[falcon.Rank]falcon.Device{}
	}
	if c.Launched == nil {
		c.Launched = map[falcon.Rank]uint64{}
	}
	if c.PhaseMs == nil {
		c.PhaseMs = map[string]float64{}
	}
	spent := 0.0
	for _, v := range c.PhaseMs {
		spent += v
	}
	m.at = attempt{entered: earlier(time.Unix(0, c.StartedNs+int64(spent*1e6)), now), moved: now, badTable: map[falcon.Node]int{}}
	m.index()
	if c.JobEpoch != m.job.Epoch || len(c.Placement) != len(m.ranks) {
		m.endedByEpoch(now)
		return
	}
	m.again(now)
	m.note("recovery", 1, "%s goes on at %s after a start of the engine", c.ID, c.State)
}

// again gives the orders of the present state.
func (m *Machine) again(now time.Time) {
	c := m.cur
	for _, d := range c.Placement {
		m.host(d.Node(), now)
	}
	m.awaitLaunched()
	switch c.State {
	case falcon.RecoveryProposed:
		if c.DeadlineNs > 0 {
			m.at.until = time.Unix(0, c.DeadlineNs)
		}
	case falcon.RecoverySuspend:
		if c.Whole {
			m.at.agents = map[falcon.Node]bool{}
			m.deadline(now, m.cfg.AgentWait)
			return
		}
		m.at.gather = now.Add(m.cfg.Gather)
		m.deadline(now, m.cfg.SuspendMost)
		m.suspend()
		m.orderAwaited()
	case falcon.RecoveryReplace:
		if c.Whole {
			m.deadline(now, m.cfg.RestartMost)
			m.orderRestart()
			return
		}
		m.deadline(now, m.cfg.ReplaceMost)
		m.orderReplace()
		m.orderAwaited()
	case falcon.RecoveryTable:
		m.deadline(now, m.cfg.TableMost)
		m.at.tabled = map[falcon.Node]bool{}
		m.command(Table{Generation: c.Generation, Placement: slices.Clone(c.Placement)})
	case falcon.RecoveryCollect:
		m.deadline(now, m.cfg.CollectMost)
	case falcon.RecoveryRejoin:
		m.deadline(now, m.cfg.RejoinMost)
		m.orderRejoin()
	}
}

// Phases before any recovery was seen, in ms: those of a container with its
// imports, and of one shard over one link; every recovery replaces them by what
// was measured.
var phaseDefaults = map[string]float64{
	falcon.PhaseSuspend: 500, falcon.PhaseReplace: 60e3, falcon.PhaseTable: 500, falcon.PhaseCollect: 10,
	falcon.PhaseGroups: 5e3, falcon.PhaseRestore: 5e3, falcon.PhaseResume: 500,
}

// copyMBsDefault is the rate at which a shard is taken to move, 10⁶ B/s.
const copyMBsDefault = 5e3

// predict is the median of each phase over the newest recoveries that ended
// well, else a default.
func (m *Machine) predict() map[string]float64 {
	out := map[string]float64{}
	for phase, def := range phaseDefaults {
		if phase == falcon.PhaseRestore && m.job.StateMB > 0 {
			def = m.job.StateMB / copyMBsDefault * 1e3
		}
		out[phase] = def
		if seen := m.seen(phase); len(seen) > 0 {
			out[phase] = seen[len(seen)/2]
		}
	}
	return out
}

// seen are the newest times of a phase, ascending.
func (m *Machine) seen(phase string) []float64 {
	var out []float64
	for _, c := range slices.Backward(m.recs) {
		if v, ok := c.PhaseMs[phase]; ok && c.State == falcon.RecoveryResumed && !c.Whole && len(out) < predictFrom {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}
