package recovery

import (
	"time"

	"github.com/failslow/falcon"
)

// Machine recovers one job. It is not safe for concurrent use, and must not be copied.
//
// It takes the inputs and hands them to its parts. Each part owns its fields: what
// is known of the job (jobState with the tables of ranks and nodes, the pace, the
// console's own hearing and the ends of processes), the detector that finds faults
// in it, the recovery in progress (operation), the workflow that takes it from
// state to state, the history of recoveries and the outbox.
type Machine struct {
	jobState
	out         outbox
	hist        history
	stop        stoppage
	generations generations
	op          operation
	flow        workflow
	detect      detector
	last        time.Time // newest Tick
}

// New makes a machine that knows of no job.
func New(cfg Config) *Machine {
	m := &Machine{
		jobState: newJobState(cfg.withDefaults()),
		out:      newOutbox(),
		hist:     newHistory(),
		stop:     newStoppage(),
	}
	m.op = operation{jobState: &m.jobState, out: &m.out}
	m.flow = newWorkflow(m)
	m.detect = newDetector(m)
	return m
}

// Ready lists what is to be done now: recoveries are made durable first.
func (m *Machine) Ready() Ready {
	return m.out.pendingReady(m.hist.oldestFirst())
}

// Advance confirms that the last Ready was carried out.
func (m *Machine) Advance() {
	m.out.clearAll()
}

// Recoveries lists those that are kept, newest first.
func (m *Machine) Recoveries() []falcon.Recovery {
	out := make([]falcon.Recovery, 0, recoveriesMost)
	for _, c := range m.hist.newestFirst() {
		out = append(out, cloneRecovery(c))
	}
	return out
}

// Step takes one input. Time never goes back.
func (m *Machine) Step(now time.Time, in Input) {
	switch in := in.(type) {
	case Beat:
		m.onBeat(now, in) // frequent: Tick looks at it
		return
	case Node:
		m.onNode(now, in)
		return
	case MessageReceived:
		if m.nodes.Get(in.Node, now).Suspected() {
			m.onNode(now, Node{Node: in.Node, Alive: true})
		}
		return
	case Pace:
		m.pace.Report(now, in.Iteration, in.Ms, in.Held, m.health.Holds())
		return
	case Late:
		m.onLate(now)
		return
	case Standstill:
		m.heldUp = in.Text
		return
	case Job:
		m.onJob(now, in)
	case SetPolicy:
		m.policy = in.Policy
	case Restored:
		m.onRestored(now, in)
	case Newer:
		m.onNewer(now, in)
	case Decision:
		m.onDecision(now, in)
	default:
		m.stepJob(now, in)
	}
	m.flow.advanceStates(now)
}

// stepJob takes the inputs that mean nothing without a job.
func (m *Machine) stepJob(now time.Time, in Input) {
	if !m.hasJob {
		return
	}
	switch in := in.(type) {
	case Process:
		m.onProcess(now, in)
	case Device:
		m.onDevice(now, in)
	case Suspended:
		m.flow.onSuspended(now, in)
	case Launched:
		m.flow.onLaunched(now, in)
	case Tabled:
		m.flow.onTabled(now, in)
	case Rejoined:
		m.flow.onRejoined(now, in)
	case Demand:
		m.onDemand(now, in)
	}
}

// Tick looks for silence and checks deadlines; it is called at least once a beat.
func (m *Machine) Tick(now time.Time) {
	m.skipPause(now)
	m.last = now
	if !m.hasJob {
		return
	}
	if held, over := m.detect.assessLocalHealth(now); over {
		m.restartClocks(now, held)
	}
	m.detect.excuseSilence(now)
	m.watchJob(now)
	m.flow.advanceStates(now)
	if m.op.deadlinePassed(now) && !m.detect.copies.awaitsLastCopy(now) {
		m.flow.onDeadline(now)
		m.flow.advanceStates(now)
	}
}

// skipPause takes a time in which the machine itself was not called out of
// everybody's silence: an engine that slept must not fence the cluster.
func (m *Machine) skipPause(now time.Time) {
	gap := now.Sub(m.last) - m.cfg.Beat
	if m.last.IsZero() || gap <= 0 {
		return
	}
	m.nodes.Skip(gap, now)
	m.ranks.skipPause(gap, now)
	m.pace.Skip(gap, now)
	m.op.skipPause(gap, now)
}

// restartClocks restarts all clocks after a time in which silence could not be judged.
func (m *Machine) restartClocks(now time.Time, held time.Duration) {
	m.nodes.Restart(now)
	m.ends.Restart(now)
	m.pace.Restart(now)
	m.health.Restart(now)
	m.op.restartWaits(now, held)
}

// watchJob looks for nodes and processes that are silent.
func (m *Machine) watchJob(now time.Time) {
	if m.op.isUnderway() && m.op.rec.Whole || m.ends.Finished() {
		return // a whole restart has its own deadline
	}
	m.flow.reopenIfTraining()
	m.detect.markSuspects(now)
	if !m.health.Holds() {
		m.watchEnds(now)
		m.flow.finishIfOver(now)
		m.handleFaults(now, m.detect.deadNodes(now))
		m.handleFaults(now, m.detect.silentRanks(now))
		m.handleJobFault(now, m.detect.parkedAlone)
	}
	m.handleJobFault(now, m.detect.jobHang)
	m.handleJobFault(now, m.detect.emptyJob)
	m.flow.cancelIfHealed(now)
	m.flow.stopLeftovers(now)
}

// handleFaults takes up faults that were found together.
func (m *Machine) handleFaults(now time.Time, faults []falcon.Fault) {
	for _, f := range faults {
		m.flow.onFault(now, f)
	}
}

// handleJobFault takes up a fault of the whole job, unless it recovers or is stopped already.
func (m *Machine) handleJobFault(now time.Time, find func(time.Time) (falcon.Fault, bool)) {
	if m.op.rec != nil || m.stop.isStopped() {
		return
	}
	if f, found := find(now); found {
		m.flow.onFault(now, f)
	}
}
