package detect

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/bocd"
)

// rankChange collects the verified onsets of single ranks. Under lockstep all
// ranks slow together, so one rank alone opens nothing.
func (m *Machine) rankChange(rank falcon.Rank, s *series, c bocd.Change) {
	if c.Kind != bocd.KindOnset {
		return
	}
	at := s.iteration(c.Index)
	if m.settling(at) || m.merges(at) {
		return
	}
	m.alarms = append(m.alarms, alarm{rank, at, c.BeforeMs, c.AfterMs, c.Probability})
}

// quorum opens an incident when enough ranks raised one, in case the job's own
// series lags behind a rank that does not report.
func (m *Machine) quorum() {
	m.alarms = slices.DeleteFunc(m.alarms, func(a alarm) bool {
		return m.merges(a.iteration) || m.settling(a.iteration) || m.newest-a.iteration > int64(m.cfg.History)
	})
	need := max(2, int(m.cfg.Quorum*float64(len(m.ranks))+0.5))
	if len(m.alarms) < need {
		return
	}
	near := m.near(m.median(m.alarms))
	if len(near) >= need {
		m.onset(near)
	}
}

// near are the alarms placed within the merge distance of an iteration, one
// per rank.
func (m *Machine) near(at int64) []alarm {
	seen := map[falcon.Rank]bool{}
	var out []alarm
	for _, a := range m.alarms {
		if d := a.iteration - at; d >= -m.cfg.MergeWithin && d <= m.cfg.MergeWithin && !seen[a.rank] {
			seen[a.rank] = true
			out = append(out, a)
		}
	}
	return out
}

func (m *Machine) median(alarms []alarm) int64 {
	at := make([]int64, len(alarms))
	for i, a := range alarms {
		at[i] = a.iteration
	}
	slices.Sort(at)
	return at[len(at)/2]
}

// merges says that a change placed at iteration is part of an onset that was
// already told.
func (m *Machine) merges(iteration int64) bool {
	if m.lastOnset == falcon.NoIteration {
		return false
	}
	d := iteration - m.lastOnset
	return d >= -m.cfg.MergeWithin && d <= m.cfg.MergeWithin
}

// settling says that a change placed at iteration belongs to an action.
func (m *Machine) settling(iteration int64) bool {
	return iteration < m.settleTo && iteration >= m.settleTo-m.cfg.SettleAfter-m.cfg.SettleBefore
}

// jobChange is a change of the slowest rank's series.
func (m *Machine) jobChange(c bocd.Change) {
	at := m.slow.iteration(c.Index)
	switch {
	case c.Kind == bocd.KindJitter:
		m.dip(at, c)
		if at-m.jitterAt > m.cfg.MergeWithin && !m.merges(at) {
			m.jitterAt = at
			m.note(at, "jitter", "A change by %.0f %% did not last or is too small: %.1f ms before, %.1f ms after, at most %.1f ms", 100*c.Change, c.BeforeMs, c.AfterMs, m.peak(c))
		}
	case c.Kind == bocd.KindSettled || m.settling(at):
		m.note(at, "settled", "The change from %.1f to %.1f ms belongs to an action", c.BeforeMs, c.AfterMs)
		m.hurry()
	case c.Kind == bocd.KindOnset && c.AfterMs <= m.baselineMs()*(1+m.cfg.Tracker.Verify):
		m.note(at, "rebase", "%.1f ms after %.1f ms is no slower than the baseline", c.AfterMs, c.BeforeMs)
	case c.Kind == bocd.KindOnset:
		if !m.merges(at) {
			alarms := append(m.near(at), alarm{-1, at, c.BeforeMs, c.AfterMs, c.Probability})
			m.onset(alarms)
		}
	case c.Kind == bocd.KindRelief:
		m.dip(at, c)
		m.faster(at, c)
	}
}

// dip remembers where the job last got a little faster: the sign of relief
// while an action hides the fault.
func (m *Machine) dip(at int64, c bocd.Change) {
	_, noise := spread(m.slow.tail(dipOver))
	if c.BeforeMs-c.AfterMs > 2*noise && !m.settling(at) {
		m.dipAt = m.firstFast(at, (c.BeforeMs+c.AfterMs)/2)
	}
}

// firstSlow moves a placement past a hiccup before the change: to the first
// iteration that is slow together with the one after it.
func (m *Machine) firstSlow(at int64, middle float64) int64 {
	for i := max(m.slow.indexOf(at), m.slow.seen-len(m.slow.ms)); i+1 < m.slow.seen; i++ {
		if m.slow.value(i) > middle && m.slow.value(i+1) > middle {
			return m.slow.iteration(i)
		}
	}
	return at
}

// dipOver is how many iterations tell the noise that a dip must exceed.
const dipOver = 32

// peak is the largest value around a change that did not last.
func (m *Machine) peak(c bocd.Change) float64 {
	top := c.AfterMs
	for i := max(c.Index-2, m.slow.seen-len(m.slow.ms), 0); i < m.slow.seen; i++ {
		top = max(top, m.slow.value(i))
	}
	return top
}

// onset opens one story for alarms that mean the same. It stays untold until it
// has lasted or somebody is named (bursts.go); while other incidents are open,
// until a profile says whether somebody new is slow.
func (m *Machine) onset(alarms []alarm) {
	slices.SortFunc(alarms, func(a, b alarm) int { return cmp.Compare(a.iteration, b.iteration) })
	at := m.median(alarms)
	best := slices.MaxFunc(alarms, func(a, b alarm) int { return cmp.Compare(a.afterMs, b.afterMs) })
	at = m.firstSlow(at, (best.beforeMs+best.afterMs)/2)
	m.lastOnset, m.alarms = at, nil
	if m.burstAgain(at, best.afterMs) {
		return
	}
	s := &story{Incident: falcon.Incident{
		State: falcon.IncidentVerified, OnsetIteration: at, DetectedIteration: m.newest,
		RelievedIteration: falcon.NoIteration, HealthyMs: m.baselineMs(), SlowMs: best.afterMs,
		Probability: best.probability, Verdict: falcon.Verdict{Cause: falcon.CauseUnknown},
	}, beforeMs: best.beforeMs, after: m.windows, inForce: map[falcon.Rung]bool{}}
	others := m.openStories()
	if len(others) > 0 {
		s.floorMs = s.beforeMs
	}
	m.stories = append(m.stories, s)
	if len(others) == 0 {
		m.introduce(s)
	}
	m.note(at, "onset", "%s slower from iteration %d on: %.1f ms instead of %.1f ms (P %.2f)", s.name(), at, best.afterMs, best.beforeMs, best.probability)
}

// tell gives a story its id and hands it out.
func (m *Machine) tell(s *story) {
	s.ID = fmt.Sprintf("INC-%04d", m.nextID)
	m.nextID++
	m.emit(s)
}

// openStories are those whose fault lasts, told or not.
func (m *Machine) openStories() []*story {
	var out []*story
	for _, s := range m.stories {
		if s.Open() {
			out = append(out, s)
		}
	}
	return out
}
