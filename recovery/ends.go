package recovery

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// processEnded judges the end of a process.
func (m *Machine) processEnded(now time.Time, p Process) {
	idle := m.op.nothingOrdered()
	held := idle && endedHeld(p)
	unexplained := p.Exit == "" || held
	switch {
	case m.stop.isStopped() && m.op.rec == nil && p.Normal, m.ends.Finished():
		return
	case idle && p.Finished && !held, !idle &&
		p.Finished &&
		(m.op.replies.Rejoined(p.Rank) || m.op.onlyWaits()):
		m.rankSucceeded(now, p.Rank)
		return
	case m.op.rec == nil && p.Normal && !held:
		return // on an order
	case !idle &&
		(m.op.rec.Whole || m.op.replies.Stopping(p.Rank) || p.Normal && m.op.replies.Rejoined(p.Rank)):
		m.op.clock.Advance(now)
		return
	case idle &&
		unexplained &&
		m.ends.Covers(now, &m.pace, m.cfg.Beat, m.ranks.worldSize()):
		m.rankSucceeded(now, p.Rank)
		return
	case m.op.rec != nil && slices.Contains(m.op.rec.Pending, p.Rank):
		if idle && p.Exit == "" && m.endedUnwatched(now, p) {
			m.ends.Doubt(p.Rank)
		}
		return
	case !idle &&
		p.Finished &&
		m.op.rec.State == falcon.RecoverySuspend &&
		!wasHeldBack(m.op.rec, p):
		// before the order came; where others have parked, the rank is missed later
		m.rankSucceeded(now, p.Rank)
		return
	case idle && unexplained:
		m.ends.Await(p.Rank, now, held || !m.endedUnwatched(now, p))
		return
	}
	m.flow.onFault(now, m.detect.exitFault(now, p))
}

// endedHeld reports whether a process ended in order while it was parked for a generation that it has
// not rejoined: it was ordered to end, and the job has not come to its end with it. Where others train on,
// a recovery did that which this engine does not know of any more: the rank is missed.
func endedHeld(p Process) bool {
	return p.Finished && p.Park != nil && p.Park.Generation > p.Rejoined
}

// endedUnwatched reports whether the agent of a process that ended, or this engine, was away
// since the process was last known to live: nobody saw it end.
func (m *Machine) endedUnwatched(now time.Time, p Process) bool {
	return m.nodes.Get(p.Node, now).AwaySince(m.ranks.memberOf(p.Rank).lastAlive())
}

// wasHeldBack reports whether a process that ended was parked, as far as is known.
// What an agent saw last may be older than the rejoin of an earlier generation:
// ranks that were ordered to rejoin may have trained to the job's end since.
func wasHeldBack(c *falcon.Recovery, p Process) bool {
	return p.Park != nil && (!c.NoReturn || p.Park.Generation >= c.Generation)
}

// noteWords takes a later report of why an ended process failed, as it says itself, into the fault
// that its end is.
func (m *Machine) noteWords(p Process) {
	x := m.ranks.memberOf(p.Rank)
	if p.Alive ||
		!x.hasEnded() ||
		!x.sameProcess(p) ||
		p.Ending.Words() == "" ||
		x.process().Ending.Words() != "" {
		return
	}
	x.noteWords(p.Ending)
	if m.op.rec != nil && addWords(m.op.rec, x.process()) {
		m.op.markChanged()
	}
}

// addWords reports whether a fault that the end of a process is has what the process says of it now.
func addWords(c *falcon.Recovery, p Process) bool {
	for i := range c.Faults {
		f := &c.Faults[i]
		if f.Node == p.Node &&
			slices.Contains(f.Ranks, p.Rank) &&
			(f.Kind == falcon.FaultExit || f.Kind == falcon.FaultDevice) {
			f.Evidence, f.Words = append(f.Evidence, describeWords(p)), p.Ending.Words()
			return true
		}
	}
	return false
}

// explainEnd takes a later report of how a process ended, where that was unknown.
func (m *Machine) explainEnd(now time.Time, p Process) {
	x := m.ranks.memberOf(p.Rank)
	if !m.ends.Open(p.Rank) ||
		p.Alive ||
		p.Exit == "" ||
		!x.sameProcess(p) ||
		x.process().Exit != "" {
		return
	}
	m.ends.Explain(p.Rank)
	x.explainEnd(p)
	m.processEnded(now, p)
}

// rankSucceeded enters an end with success, and those that it explains.
func (m *Machine) rankSucceeded(now time.Time, r falcon.Rank) {
	m.op.rankSucceeded(now)
	m.out.addEnded(m.ends.Succeed(now, r, m.pace.InBeats()))
	m.finishEpoch(now)
}

// finishEpoch closes the job epoch once all its ranks have ended with success.
func (m *Machine) finishEpoch(now time.Time) {
	if !m.ends.Finish(m.ranks.worldSize()) {
		return
	}
	m.out.addNote("", "recovery", 0, "the job has finished: all %d ranks ended normally", m.ranks.worldSize())
	if m.op.rec != nil &&
		(m.op.rec.State == falcon.RecoveryProposed ||
			m.op.rec.State == falcon.RecoverySuspend && !m.op.rec.Whole ||
			m.op.onlyWaits()) {
		m.flow.finishRecovery(now, falcon.RecoveryCancelled,
			"the job has finished: nothing is left to recover")
	}
}

// watchEnds takes ends that were not explained in time for faults. A node that is
// not heard, or not yet, may still report how they came.
func (m *Machine) watchEnds(now time.Time) {
	if !m.ends.AnyOpen() {
		return
	}
	wait := m.cfg.Unexplained
	if m.nodes.AnyMissing(m.ranks.usedNodes(), now) {
		wait = max(wait, m.cfg.Grace)
	}
	for _, r := range m.ends.Overdue(now, wait) {
		x := m.ranks.memberOf(r)
		allAnnounced := endedHeld(x.process()) && !m.ranks.anyProcessTrains()
		if x.hasEnded() && !allAnnounced {
			m.flow.onFault(now, m.detect.exitFault(now, x.process()))
		}
	}
}
