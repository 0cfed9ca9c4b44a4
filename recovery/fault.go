package recovery

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
)

// whole says that the fault takes its node with it: the node can't be trusted
// to run the rank again, and what still runs on it is stopped.
func whole(f falcon.Fault) bool {
	return f.Kind == falcon.FaultNode || f.Kind == falcon.FaultFrozen || f.Kind == falcon.FaultDevice
}

// fault takes a certain fault in: it opens a recovery, joins the one in
// progress, or has it begin again with the next generation.
func (m *Machine) fault(now time.Time, f falcon.Fault) {
	if m.ends.finished || m.cur == nil && m.closed || m.cur != nil && m.cur.Whole && m.cur.State == falcon.RecoveryReplace {
		return // the job stands already and somebody knows, or it has finished, or starts anew as a whole
	}
	f.DetectedNs = now.UnixNano()
	if m.cur == nil {
		m.open(now, f)
	}
	f = m.join(now, f)
	m.note("fault", 2, "%s: %s", m.cur.ID, strings.Join(f.Evidence, "; "))
	switch m.cur.State {
	case falcon.RecoveryProposed:
		m.propose(now)
	case falcon.RecoverySuspend:
		m.at.gather = now.Add(m.cfg.Gather)
		if m.at.retry { // the rejoin failed because of this
			m.at.retry = false
			m.cur.FailedRejoins--
		}
	default:
		m.begin(now, "")
	}
}

// open starts a recovery, which waits for its decision.
func (m *Machine) open(now time.Time, f falcon.Fault) {
	first := f.FirstNs
	if first == 0 || first > now.UnixNano() {
		first = now.UnixNano()
	}
	m.cur = &falcon.Recovery{
		ID: fmt.Sprintf("REC-%04d", m.nextID), State: falcon.RecoveryProposed, Generation: m.generation, JobEpoch: m.job.Epoch,
		Replaced: map[falcon.Rank]falcon.Device{}, Launched: map[falcon.Rank]uint64{}, Placement: slices.Clone(m.job.Placement),
		Splits: slices.Clone(m.job.Splits), Resume: falcon.NoIteration, Before: m.pace.newest, StartedNs: first,
		PhaseMs:   map[string]float64{falcon.PhaseDetect: ms(now.UnixNano() - first)},
		PredictMs: m.predict(),
	}
	m.nextID++
	clear(m.left)
	m.recs = append(m.recs, m.cur)
	if len(m.recs) > recoveriesMost {
		m.recs = slices.Delete(m.recs, 0, len(m.recs)-recoveriesMost)
	}
	m.at = attempt{entered: now, moved: now, badTable: map[falcon.Node]int{}}
	m.dirty()
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }

// join adds a fault to the recovery in progress: to one that it belongs to, or
// as a new one.
func (m *Machine) join(now time.Time, f falcon.Fault) falcon.Fault {
	c := m.cur
	if whole(f) {
		f.Ranks = slices.Clone(m.on[f.Node])
		m.fence(f.Node)
	}
	for _, r := range f.Ranks {
		if !slices.Contains(c.Pending, r) {
			c.Pending = append(c.Pending, r)
		}
		delete(m.at.awaited, r)
	}
	slices.Sort(c.Pending)
	m.dirty()
	m.at.moved = now
	early := c.State == falcon.RecoveryProposed || c.State == falcon.RecoverySuspend
	for i := range c.Faults {
		if o := &c.Faults[i]; early && f.Node != "" && o.Node == f.Node && o.DetectedNs >= now.Add(-hour).UnixNano() && m.sameAttempt(*o) {
			merge(o, f)
			return f
		}
	}
	c.Faults = append(c.Faults, f)
	return f
}

// sameAttempt says that nothing was launched for the fault's ranks yet.
func (m *Machine) sameAttempt(f falcon.Fault) bool {
	return slices.ContainsFunc(f.Ranks, func(r falcon.Rank) bool { return slices.Contains(m.cur.Pending, r) })
}

// merge takes a later sign against the same node into its fault.
func merge(o *falcon.Fault, f falcon.Fault) {
	o.Evidence = append(o.Evidence, f.Evidence...)
	for _, r := range f.Ranks {
		if !slices.Contains(o.Ranks, r) {
			o.Ranks = append(o.Ranks, r)
		}
	}
	slices.Sort(o.Ranks)
	if f.AskedBy == "" {
		o.AskedBy = ""
	}
	switch {
	case whole(f) && !whole(*o), o.Kind == falcon.FaultHang:
		o.Kind, o.Device = f.Kind, f.Device
	case o.Device != f.Device && !whole(*o):
		o.Device = ""
	}
}

// fence gives a node up for this recovery.
func (m *Machine) fence(n falcon.Node) {
	if !m.isFenced(n) {
		m.cur.Fenced = append(m.cur.Fenced, n)
		slices.Sort(m.cur.Fenced)
	}
}

// giveUp takes a node for faulty because of what it did, or did not do, in the
// recovery itself.
func (m *Machine) giveUp(now time.Time, kind falcon.FaultKind, n falcon.Node, why string) {
	if m.isFenced(n) {
		return
	}
	m.fault(now, falcon.Fault{Kind: kind, Node: n, FirstNs: m.at.entered.UnixNano(), Evidence: []string{why}})
}
