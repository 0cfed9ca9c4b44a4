package recovery

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/replica"
)

// holds are the words of the survivors that are trusted: those that parked
// inside the optimizer, or hold nothing, are left out.
func (m *Machine) holds() map[falcon.Rank]falcon.RankHold {
	out := make(map[falcon.Rank]falcon.RankHold, len(m.ranks))
	for r := range m.ranks {
		p := m.ranks[r].proc.Park
		if p.Joining || p.Tag == -1 || p.Hold.Steps[0] < 0 && p.Hold.Steps[1] < 0 {
			continue
		}
		out[falcon.Rank(r)] = p.Hold
		m.cur.Before = max(m.cur.Before, p.Tag)
	}
	return out
}

// rejoin chooses the step and lets the processes go: the point of no return.
func (m *Machine) rejoin(now time.Time) bool {
	c := m.cur
	choice, err := m.cfg.Choose(replica.Query{Layout: m.job.Layout, ZeRO: m.job.ZeRO, Holds: m.holds(), Placement: c.Placement, Domains: m.job.Domains})
	switch {
	case err != nil:
		m.finish(now, falcon.RecoveryFailed, fmt.Sprintf("the job can't be described: %s; start it again from its checkpoint", err))
		return true
	case c.FailedRejoins >= m.cfg.Rejoins && !choice.Checkpoint:
		choice = replica.Choice{Checkpoint: true, Why: fmt.Sprintf("%d rejoins from replicas failed", c.FailedRejoins)}
	}
	if choice.Checkpoint && m.job.Checkpoint < 0 {
		m.finish(now, falcon.RecoveryFailed, choice.Why+"; storage holds no checkpoint that is known of: start the job again from the best state that you have")
		return true
	}
	c.Resume, c.Moves, c.Checkpoint, c.NoReturn = choice.Resume, choice.Moves, choice.Checkpoint, true
	c.Reason = choice.Why
	if c.Checkpoint {
		c.Resume, c.Moves = m.job.Checkpoint, nil
		m.note("recovery", 2, "%s: all ranks go back to the checkpoint of iteration %d: %s", c.ID, c.Resume, choice.Why)
	}
	if len(choice.Outvoted) > 0 {
		m.note("recovery", 2, "%s: the state of %s differs from its replicas' and is restored from them", c.ID, rankList(choice.Outvoted))
	}
	m.enter(now, falcon.RecoveryRejoin, m.cfg.RejoinMost)
	m.orderRejoin()
	m.note("recovery", 1, "%s: generation %d goes on at iteration %d, %d ranks restore", c.ID, c.Generation, c.Resume, m.restoring())
	return true
}

func (m *Machine) restoring() int {
	if m.cur.Checkpoint {
		return len(m.ranks)
	}
	return len(m.cur.Moves)
}

func (m *Machine) orderRejoin() {
	c := m.cur
	m.at.rejoined = map[falcon.Rank]Rejoined{}
	m.command(Rejoin{
		Generation: c.Generation, Order: c.Generation, Resume: c.Resume, Checkpoint: c.Checkpoint,
		Moves: slices.Clone(c.Moves), Splits: slices.Clone(c.Splits), Placement: slices.Clone(c.Placement),
	})
}

func (m *Machine) onRejoined(now time.Time, x Rejoined) {
	c := m.cur
	if c == nil || c.State != falcon.RecoveryRejoin || x.Generation != c.Generation || x.Rank < 0 || int(x.Rank) >= len(m.ranks) {
		return
	}
	switch {
	case x.Status != 0:
		m.rejoinFailed(now, fmt.Sprintf("rank %d could not rejoin (status %d)", x.Rank, x.Status))
	case x.Iteration != c.Resume:
		m.rejoinFailed(now, fmt.Sprintf("rank %d rejoined at iteration %d instead of %d", x.Rank, x.Iteration, c.Resume))
	default:
		m.at.rejoined[x.Rank], m.at.moved = x, now
	}
}

// rejoinFailed tries again, from the checkpoint where replicas did not do, and
// gives up where that did not do either.
func (m *Machine) rejoinFailed(now time.Time, why string) {
	c := m.cur
	c.FailedRejoins++
	if c.FailedRejoins > m.cfg.Rejoins {
		m.finish(now, falcon.RecoveryFailed, fmt.Sprintf("%s, from the checkpoint too; start the job again from it", why))
		return
	}
	m.note("recovery", 2, "%s: %s; it is tried again", c.ID, why)
	m.begin(now, why)
	m.at.retry = m.cur != nil
}

func (a *attempt) rejoinedOK(r falcon.Rank) bool { _, ok := a.rejoined[r]; return ok }

// resume ends the recovery once all ranks train again: each says so, or the job has
// gone through an iteration or come to its end, which no rank does without the others.
func (m *Machine) resume(now time.Time) bool {
	if len(m.at.rejoined) < len(m.ranks) && !m.at.over && !m.pace.grew.After(m.at.entered) {
		return false
	}
	m.finish(now, falcon.RecoveryResumed, m.cur.Reason)
	return true
}

// finish ends the recovery. Without success the processes that wait are ended:
// they would hold their devices for nothing.
func (m *Machine) finish(now time.Time, s falcon.RecoveryState, why string) {
	c, began := m.cur, m.cur.Attempts > 0 && m.cur.JobEpoch == m.job.Epoch
	m.enter(now, s, 0)
	c.Reason, c.EndedNs = why, now.UnixNano()
	if s != falcon.RecoveryResumed && began && !m.at.overtaken && !m.mostOver() { // else they end by themselves
		m.command(Stop{Generation: c.Generation, Nodes: m.stopped()})
	}
	m.cur, m.at = nil, attempt{}
	m.closed, m.closedAt = s != falcon.RecoveryResumed && (!stuck(c) || hangWith(c, noneLeft)), now
	m.pace.moved = now
	if s == falcon.RecoveryResumed {
		m.settle(c)
		from := "" // of a whole restart, only the processes know
		if c.Resume >= 0 {
			from = fmt.Sprintf(" from iteration %d", c.Resume)
		}
		m.note("recovery", 1, "%s: the job trains again%s, %.1f s after the fault", c.ID, from, float64(c.EndedNs-c.StartedNs)/1e9)
	} else {
		m.note("recovery", 2, "%s is %s: %s", c.ID, s, why)
	}
	m.index()
}

// stopped are the nodes whose processes end with a recovery without success: those
// that were given up too, as they may not be fenced yet.
func (m *Machine) stopped() []falcon.Node {
	out := append(slices.Clone(m.sorted), m.cur.Fenced...)
	slices.Sort(out)
	return slices.Compact(out)
}

// settle takes the outcome over into the job, until the engine describes it anew.
func (m *Machine) settle(c *falcon.Recovery) {
	m.job.Placement, m.job.Generation = slices.Clone(c.Placement), max(m.job.Generation, c.Generation)
	for r := range m.ranks {
		x := &m.ranks[r]
		x.beatAt, x.beat, x.proc.Park = time.Time{}, Beat{}, nil // it has said that it trains
	}
	if c.Resume >= 0 {
		m.pace.newest, m.pace.told = min(m.pace.newest, c.Resume-1), min(m.pace.told, c.Resume-1)
	}
}

// stuck says that nothing but the whole job's hang led to it.
func stuck(c *falcon.Recovery) bool {
	return !slices.ContainsFunc(c.Faults, func(f falcon.Fault) bool { return f.Kind != falcon.FaultHang || f.Node != "" })
}

// rejoined is the newest generation that the job has rejoined; 0 for none.
func (m *Machine) rejoined() uint64 {
	for _, c := range slices.Backward(m.recs) {
		if c.State == falcon.RecoveryResumed && !c.Whole && c.JobEpoch >= m.job.Epoch-1 {
			return c.Generation
		}
	}
	return 0
}

// rejoinedBefore takes what an ended process says of its rejoin for the answer of
// its agent, which may be lost.
func (m *Machine) rejoinedBefore(p Process) {
	if c := m.cur; c != nil && c.State == falcon.RecoveryRejoin && p.Rejoined == c.Generation && !m.at.rejoinedOK(p.Rank) {
		m.at.rejoined[p.Rank] = Rejoined{Rank: p.Rank, Generation: c.Generation, Iteration: c.Resume}
	}
}
