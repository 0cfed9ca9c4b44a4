package detect

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/bocd"
	"github.com/failslow/falcon/detect/peer"
)

// faster is a verified downward change of the job. It relieves nobody by
// itself: levelRelief does where the level is back, and where it is not the
// culprit is looked at.
func (m *Machine) faster(at int64, c bocd.Change) {
	open := m.openStories()
	if len(open) == 0 {
		if c.AfterMs <= m.baselineMs()*(1+m.cfg.Settled) && !m.recently(at) {
			m.baseline = min(m.baselineMs(), c.AfterMs)
			m.learn = learning{due: true}
			m.note(at, "rebase", "New baseline %.1f ms instead of %.1f ms", c.AfterMs, c.BeforeMs)
		}
		return
	}
	at = m.firstFast(at, (c.BeforeMs+c.AfterMs)/2)
	for _, s := range open {
		s.check, s.faster = s.located() && len(s.inForce) == 0, at
		if s.check && m.waits(s) {
			s.check, s.silent.later = false, true
		}
	}
	m.hurry()
}

// firstFast moves a placement past what is still slow: to the first iteration
// that is fast together with the one after it.
func (m *Machine) firstFast(at int64, middle float64) int64 {
	for i := max(m.slow.indexOf(at), m.slow.seen-len(m.slow.ms)); i+1 < m.slow.seen; i++ {
		if m.slow.value(i) <= middle && m.slow.value(i+1) <= middle {
			return m.slow.iteration(i)
		}
	}
	return at
}

// recently says that an incident was relieved around iteration at, so that the
// job is faster because of it.
func (m *Machine) recently(at int64) bool {
	return slices.ContainsFunc(m.stories, func(s *story) bool {
		return s.State == falcon.IncidentRelieved && at-s.RelievedIteration <= 2*m.cfg.MergeWithin
	})
}

// hurry makes watched culprits due earlier, as something changed.
func (m *Machine) hurry() {
	for _, s := range m.openStories() {
		s.urgent = s.urgent || s.watching()
	}
}

// levelRelief ends incidents that show in the iteration time when its level is
// back within the settled share of the healthy one.
func (m *Machine) levelRelief(iteration int64) {
	if m.slow.tracker.Learning() {
		return
	}
	m.lookAtCounters()
	tail := m.slow.tail(levelOver)
	for _, s := range m.openStories() {
		if m.waits(s) || s.blind && s.located() || s.hidden || s.FromStart || s.moved && s.located() && (m.away() || iteration < s.backAt+m.cfg.SettleAfter) || len(s.inForce) > 0 || s.HealthyMs <= 0 || iteration < s.DetectedIteration+levelOver {
			continue
		}
		healthy := max(s.HealthyMs, s.floorMs)
		between := (healthy + max(s.SlowMs, healthy)) / 2
		back := falcon.Median(slices.Clone(tail)) <= healthy*(1+m.cfg.Settled)
		if !back || !most(tail, max(between, healthy*(1+m.cfg.Settled))) || m.pausing(s, iteration) {
			continue
		}
		if since := max(m.backSince(between), s.backAt); s.ID == "" && s.floorMs == 0 {
			m.pass(s, since)
		} else {
			m.relieve(s, since, "the iteration time is back within 5 % of what it was")
		}
	}
}

// accept takes work of the job's own that grew (a longer sequence, a larger
// batch) as its normal pace once it has lasted, so that what comes on top of it
// is measured against it.
func (m *Machine) accept(iteration int64) {
	open := m.openStories()
	if len(open) != 1 || !open[0].judged() || m.waits(open[0]) || open[0].Verdict.Cause != falcon.CauseNotHardware || len(open[0].inForce) > 0 ||
		iteration < open[0].OnsetIteration+m.cfg.AcceptAfter || m.settling(iteration) {
		return
	}
	m.relieve(open[0], iteration, fmt.Sprintf("the job has worked like this for %d iterations: that is its pace now", m.cfg.AcceptAfter))
	m.rebase, m.healthy = true, peer.Healthy{}
}

// most says that all of values but one are at or below a level.
func most(values []float64, ms float64) bool {
	above := 0
	for _, v := range values {
		if v > ms {
			above++
		}
	}
	return above <= 1
}

// backSince is the first iteration of the newest run below a level; a single
// hiccup does not end the run.
func (m *Machine) backSince(ms float64) int64 {
	i, oldest := m.slow.seen-1, m.slow.seen-len(m.slow.ms)
	for i > oldest {
		switch {
		case m.slow.value(i-1) <= ms:
			i--
		case i-3 >= oldest && m.slow.value(i-2) <= ms && m.slow.value(i-3) <= ms:
			i -= 2
		default:
			return m.slow.iteration(i)
		}
	}
	return m.slow.iteration(i)
}

// lookAtCounters makes a watched culprit due when its clock is back at its
// peers' for the first time.
func (m *Machine) lookAtCounters() {
	for _, s := range m.openStories() {
		if !s.watching() || s.streak > 0 || s.Verdict.Cause != falcon.CauseGPU || s.urgent {
			continue
		}
		if at, _, ok := m.clockBack(s); ok && at > s.badAt {
			s.urgent = true
		}
	}
}

// clockBack is the first iteration seen after the clocks of all culprits read
// normal, and the newest one seen when they did not yet.
func (m *Machine) clockBack(s *story) (at, bad int64, ok bool) {
	at, bad = falcon.NoIteration, falcon.NoIteration
	for _, d := range s.Verdict.Devices {
		since, until, normal := m.history.Normal(d)
		first, seen := m.times.first(since.At, since.Ns)
		if !normal || !seen {
			return 0, 0, false
		}
		at = max(at, first)
		if last, seen := m.times.first(until.At, until.Ns); seen && !until.At.IsZero() {
			bad = max(bad, last-1)
		}
	}
	return at, bad, at != falcon.NoIteration
}

// watch judges a story's culprit by a window that was asked for after its
// action took force.
func (m *Machine) watch(s *story, w *window, res peer.Result) {
	if w.iteration < s.since || m.waits(s) {
		return
	}
	if s.lines() {
		m.watchLines(s, w, &res)
		return
	}
	s.urgent = false
	healthy, known := m.culpritHealthy(s, res)
	checked := s.check
	s.check = false
	switch {
	case !known:
		return
	case !healthy:
		s.streak, s.badAt = 0, w.iteration
		return
	case s.burstAt > 0 && w.iteration < s.burstAt+m.cfg.BurstWithin:
		return // it comes and goes
	case checked && len(s.inForce) == 0:
		m.relieve(s, s.faster, "the job got faster and the culprit computes as its peers do")
		return
	case !s.watching():
		return
	}
	if s.streak == 0 {
		s.healthyAt = w.iteration + 1
	}
	s.streak++
	if s.streak < m.cfg.Relief.Streak {
		return
	}
	m.relieve(s, max(m.reliefOf(s), s.badAt+1), "the culprit was as fast as its peers in three profiles running")
}

// reliefOf places the relief of a watched culprit: at the first healthy window,
// or earlier where its clock was back, or where the job got a little faster
// while neither a window nor a reading says that it was still slow.
func (m *Machine) reliefOf(s *story) int64 {
	at, bad := s.healthyAt, s.badAt
	if s.Verdict.Cause == falcon.CauseGPU {
		if back, still, ok := m.clockBack(s); ok && back > bad {
			at, bad = min(at, back), max(bad, still)
		}
	}
	if m.dipAt > bad && m.dipAt < at {
		return m.dipAt
	}
	return at
}

// culpritHealthy says whether everything that a story names is at or below the
// rule again; known is false where something was not measured.
func (m *Machine) culpritHealthy(s *story, res peer.Result) (healthy, known bool) {
	if s.Verdict.Cause == falcon.CauseNetwork && len(s.Verdict.Devices) == 0 {
		suspect := slices.ContainsFunc(res.Groups, func(g peer.Group) bool { return (g.Suspect || g.Crowded) && s.touches(g.Ranks...) }) ||
			slices.ContainsFunc(res.Pairs, func(p peer.Pair) bool { return p.Suspect && s.touches(p.From, p.To) })
		return !suspect, res.Missing == 0
	}
	for _, d := range s.Verdict.Devices {
		r, placed := m.job.Placement.Rank(d)
		if !placed {
			continue // carries no rank any more: it slows nobody
		}
		q := res.Ranks[r]
		if q.Basis == peer.ByNone {
			return false, false
		}
		if q.Ratio > m.suspectRatio() || res.AllSlow || slices.Contains(res.SlowStages, m.job.Layout.Coord(r).PP) {
			return false, true
		}
	}
	return true, true
}

func (m *Machine) suspectRatio() float64 {
	if m.cfg.Rules.Suspect > 0 {
		return m.cfg.Rules.Suspect
	}
	return 1.1
}

// passedUnseen is told of a burst that a profile came too late for: it names
// nobody, and nothing is done about it.
const passedUnseen = "the slowdown passed before anybody could be profiled: nobody is named"

// rearm makes the job's tracker ready for another onset at the level of now.
func (m *Machine) rearm() {
	m.slow.tracker.Rebase(m.slow.tracker.BaselineMs())
	m.slow.tracker.Compare(m.level())
	m.lastOnset, m.alarms = falcon.NoIteration, nil
}

// relieve ends a story.
func (m *Machine) relieve(s *story, at int64, why string) {
	at = max(at, s.OnsetIteration+1)
	if s.ID == "" {
		m.note(at, "relief", "The second slowdown went before anybody was named: %s", why)
		m.drop(s)
		return
	}
	if !s.judged() {
		s.Verdict.Severity = 1
		s.Verdict.Evidence = append(s.Verdict.Evidence, falcon.Evidence{Kind: falcon.EvidenceTiming, Text: passedUnseen})
		why = passedUnseen
	}
	s.State, s.RelievedIteration, s.check, s.healthyAt = falcon.IncidentRelieved, at, false, m.slow.last()
	m.recall(s)
	m.healLinks(s)
	if !m.slow.tracker.Learning() {
		m.rearm()
	}
	m.emit(s)
	m.note(at, "relief", "%s relieved at iteration %d: %s", s.ID, at, why)
	if s.FromStart || !m.healthy.Known() {
		m.learn = learning{due: true, after: m.slow.last() + m.cfg.SettleAfter}
	}
}
