package recovery

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

func (m *Machine) onBeat(now time.Time, b Beat) {
	if !m.ranks.hasRank(b.Rank) {
		return
	}
	x := m.ranks.memberOf(b.Rank)
	if !x.isAlive() || x.process().Pid != b.Pid {
		return
	}
	before, newest := x.takeBeat(now, b)
	m.pace.Confirm(before, newest, m.cfg.Beat, m.op.confirmAbove())
	m.pace.See(now, b.Iteration, m.health.Holds())
}

func (m *Machine) onNode(now time.Time, n Node) {
	if !n.Alive {
		m.nodes.Get(n.Node, now).Disconnect(now, n.How)
		if n.How == Goodbye && m.op.isUnderway() && m.op.waitsForNode(n.Node) {
			m.op.extendDeadline(now, m.cfg.LeaveStall)
		}
		return
	}
	suspected, gone := m.nodes.Hear(n.Node, now)
	if suspected {
		m.out.addNote(string(n.Node), "fault", 0, "node %s is heard again", n.Node)
	}
	if gone && m.op.isUnderway() && m.op.waitsForNode(n.Node) {
		m.op.extendDeadline(now, m.op.clock.Limit())
	}
}

// onLate has no node judged by silence until the engine has caught up.
func (m *Machine) onLate(now time.Time) {
	if m.health.Late(now, m.cfg.Beat) {
		m.out.addNote("", "fault", 1,
			"the engine is late itself: no node is judged by silence until it has caught up")
	}
}

// onProcess takes a process's report, unless the process is not, or no longer, the rank's owner.
func (m *Machine) onProcess(now time.Time, p Process) {
	m.stop.noteLeftover(p, m.op.rec == nil)
	if !m.ranks.hasRank(p.Rank) ||
		p.Node != m.ranks.nodeOf(p.Rank) ||
		p.Generation < m.ranks.generationFloor(m.ranks.deviceOf(p.Rank)) {
		return
	}
	if !m.op.nothingOrdered() && slices.Contains(m.op.rec.Fenced, p.Node) {
		m.op.proof.note(p)
		m.noteAwaited(now, p)
		return
	}
	rejoined := m.hist.rejoinedGeneration(m.job.Epoch)
	if m.op.rec == nil && p.Generation <= rejoined && p.Rejoined < rejoined {
		p.Park = nil // of before the newest rejoin, which all have carried out: its agent was away
	}
	m.explainEnd(now, p)
	m.noteWords(p)
	x := m.ranks.memberOf(p.Rank)
	if x.outdates(p) {
		return
	}
	died := !p.Alive && !x.hasEnded()
	x.takeReport(now, p)
	switch {
	case died:
		m.op.rejoinedBeforeEnd(p)
		m.processEnded(now, p)
	case m.op.rec != nil && p.Alive:
		m.flow.onProcess(now, p.Rank)
	}
}

// noteAwaited takes a report of a process on a node that is given up and may be taken back: it is
// no fault, and whoever ended is replaced then.
func (m *Machine) noteAwaited(now time.Time, p Process) {
	x := m.ranks.memberOf(p.Rank)
	if (returns{&m.op}).onlySilence(now, p.Node) && !x.outdates(p) {
		x.takeReport(now, p)
	}
}

// onDevice keeps a device's fatal report as a sign: by itself it is not acted
// on, since the job may go on; with an end of its process, a silence of its
// node, or a stall, its node is faulty.
func (m *Machine) onDevice(now time.Time, d Device) {
	report := d.report()
	n := report.Node()
	if len(m.ranks.ranksOnNode(n)) == 0 {
		return
	}
	if !d.Fatal {
		m.out.addNote(string(d.Device), "fault", 1, "%s", report)
		return
	}
	m.nodes.Get(n, now).Report(report, now)
	if m.op.rec == nil {
		m.out.addNote(string(d.Device), "fault", 1,
			"%s; the node is given up when its process ends, it falls silent or the job stalls",
			report)
		return
	}
	for _, f := range m.op.rec.Faults { // the process's end may have been reported first
		if f.Kind == falcon.FaultExit &&
			f.Node == n &&
			report.Concerns(f.Device) &&
			now.UnixNano()-f.DetectedNs < int64(EventLife) &&
			!m.op.isFenced(n) {
			m.flow.onFault(now, falcon.Fault{
				Kind:     falcon.FaultDevice,
				Node:     n,
				Device:   d.Device,
				FirstNs:  now.UnixNano(),
				Evidence: []string{report.String()},
			})
			return
		}
	}
}

// Hears reports whether silence means something: neither the engine nor its network
// is at fault, or they have been for so long that nothing waits for them any more.
func (m *Machine) Hears(now time.Time) bool {
	return m.health.SilenceCounts(now, m.cfg.HangMin)
}

// onNewer begins again above a generation that a node has seen, and that was not known. A whole
// restart does so when what it has launched has ended.
func (m *Machine) onNewer(now time.Time, in Newer) {
	m.generations.raiseTo(in.Generation)
	c := m.op.rec
	if m.op.isUnderway() && !c.Whole && in.Generation >= c.Generation {
		m.flow.beginAttempt(now, fmt.Sprintf("node %s has seen generation %d", in.Node, in.Generation))
	}
}
