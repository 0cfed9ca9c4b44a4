package detect

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// watchDue says that it is time to look at the ranks although nothing calls
// for it: a rank's slowness need not show in the iteration time.
func (m *Machine) watchDue(at int64) bool {
	return m.cfg.Watch.Every > 0 && len(m.openStories()) == 0 && m.healthy.Known() && at >= m.watchAt && !m.now.Before(m.watchFrom) && !m.settling(at)
}

// lookAtRanks feeds a window's iterations to the rank-level watch
// (straggler-chapter §2) and tells what it saw of ranks that no incident
// names.
func (m *Machine) lookAtRanks(w *window, res *peer.Result) {
	m.watchAt, m.watchFrom = m.slow.last()+m.cfg.Watch.Every, m.now.Add(m.cfg.Watch.Spacing)
	for _, s := range m.rankWatch.Look(m.job.Layout, res, w.iteration) {
		if m.named(s.Rank) || res.Uneven && !s.Failing {
			continue
		}
		switch {
		case s.Failing:
			m.note(w.iteration, "watch", "%s computed up to %.2f x as long as its peers for %d steps running and waited %.1f ms itself: failing", m.device(s.Rank), s.Ratio, s.Steps, s.Waits)
		case s.Steps < m.cfg.Watch.Steps:
			m.note(w.iteration, "watch", "%s computed up to %.2f x as long as its peers for %s, then no longer: transient", m.device(s.Rank), s.Ratio, steps(s.Steps))
		default:
			m.note(w.iteration, "watch", "%s computes as its peers do again after %d steps", m.device(s.Rank), s.Steps)
		}
	}
	if m.rankWatch.Any() {
		m.lookSoon()
	}
}

// lookSoon has the ranks looked at again shortly.
func (m *Machine) lookSoon() {
	m.watchAt, m.watchFrom = m.slow.last()+m.cfg.Profile.Spacing, m.now
}

func steps(n int) string {
	if n == 1 {
		return "1 step"
	}
	return fmt.Sprintf("%d steps", n)
}

// named says that an open incident names the rank.
func (m *Machine) named(r falcon.Rank) bool {
	return slices.ContainsFunc(m.stories, func(s *story) bool { return s.Open() && s.located() && s.touches(r) })
}

func (m *Machine) device(r falcon.Rank) string {
	if int(r) < len(m.job.Placement) {
		return fmt.Sprintf("%s (rank %d)", m.job.Placement[r], r)
	}
	return fmt.Sprintf("rank %d", r)
}

// failing keeps of a list the ranks that the watch calls failing, seen by more
// than one window.
func (m *Machine) failing(ranks []falcon.Rank) []falcon.Rank {
	return slices.DeleteFunc(slices.Clone(ranks), func(r falcon.Rank) bool {
		_, failing := m.rankWatch.Steps(r)
		_, twice := m.rankWatch.Since(r)
		return !failing || !twice
	})
}

// throughputOver is how many unpaused iterations the alarm's level is taken
// over: longer than any verification, as it lies below all of them.
const throughputOver = 24

// throughput raises the alarm of straggler-chapter §4: the job runs below a
// share of its best, or of the peak that the operator gave, although no onset
// is open. Below its own best somebody got slow unseen, so an incident opens;
// below a peak that it never reached the ranks are looked at. Nearly all of the
// iterations count, and the newest without exception: right after a relief
// half of them are slow still.
func (m *Machine) throughput(iteration int64) {
	best, peak := m.baselineMs(), m.cfg.PeakIterationMs
	if m.slow.tracker.Learning() || best <= 0 || m.settling(iteration) || iteration < m.settleTo+throughputOver || len(m.slow.ms) < throughputOver {
		return
	}
	tail := m.slow.tail(throughputOver)
	fastest := slices.Sorted(slices.Values(tail))[throughputOver/10]
	level, line := falcon.Median(slices.Clone(tail)), m.cfg.Throughput*min(fastest, slices.Min(tail[throughputOver-levelOver:]))
	if line <= best && (peak <= 0 || line <= peak) {
		m.throughputTold = false
		return
	}
	if m.throughputTold || len(m.stories) > 0 { // open, or an action of theirs may still hold
		return
	}
	m.throughputTold = true
	if line <= best || m.learn.due {
		m.note(iteration, "throughput", "%.1f ms an iteration is %.0f %% of the peak throughput (%.1f ms): the ranks are looked at", level, 100*peak/level, peak)
		m.watchAt, m.watchFrom = iteration, m.now
		return
	}
	m.note(iteration, "throughput", "%.1f ms an iteration is %.0f %% of the job's best throughput (%.1f ms), and no onset was seen", level, 100*best/level, best)
	i := m.slow.seen - 1
	for oldest := m.slow.seen - len(m.slow.ms); i > oldest && m.slow.value(i-1) > best/m.cfg.Throughput; {
		i--
	}
	m.onset([]alarm{{-1, m.slow.iteration(i), best, level, m.slow.tracker.PRecent()}})
}
