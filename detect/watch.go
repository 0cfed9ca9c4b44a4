package detect

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/bocd"
	"github.com/failslow/falcon/detect/peer"
)

// Looks at a job whose slowness is explained by its own work, or by nothing: a fault may hide behind it.
const (
	behindEvery   = 20 // iterations
	behindSpacing = 10 * time.Second
)

// watchDue reports whether it is time to look at the ranks although nothing calls
// for it: a rank's slowness need not show in the iteration time.
func (m *Machine) watchDue(at int64) bool {
	open := m.incidents.openIncidents()
	if m.cfg.Watch.Every <= 0 ||
		!m.evidence.hasHealthy() ||
		m.baseline.isSettling(at) ||
		slices.ContainsFunc(open, (*incidentState).isWatched) {
		return false
	}
	return len(open) > 0 && m.rankWatch.dueBehind(at, m.clock.now) || m.rankWatch.due(at, m.clock.now)
}

// watchRanks feeds a window to the rank-level watch and logs what it saw of ranks that no
// incident names.
func (m *Machine) watchRanks(w *window, res *peer.Result) {
	m.rankWatch.noteLook(m.samples.lastIteration(), m.clock.now, m.cfg.Watch)
	for _, s := range m.rankWatch.steps.Look(m.job.desc.Layout, res, w.iteration) {
		if m.incidents.namesRank(s.Rank) || res.Uneven && !s.Failing {
			continue
		}
		switch {
		case s.Failing:
			m.out.addNote(falcon.RankSubject(s.Rank), w.iteration, "watch",
				"%s computed up to %.2f x as long as its peers for %d steps running and waited %.1f ms itself: failing",
				m.job.describe(s.Rank), s.Ratio, s.Steps, s.Waits)
		case s.Steps < m.cfg.Watch.Steps:
			m.out.addNote(falcon.RankSubject(s.Rank), w.iteration, "watch",
				"%s computed up to %.2f x as long as its peers for %s, then no longer: transient",
				m.job.describe(s.Rank), s.Ratio, formatSteps(s.Steps))
		default:
			m.out.addNote(falcon.RankSubject(s.Rank), w.iteration, "watch",
				"%s computes as its peers do again after %d steps",
				m.job.describe(s.Rank), s.Steps)
		}
	}
	if m.rankWatch.steps.Any() {
		m.watchSoon()
	}
}

// watchSoon has the ranks looked at again shortly.
func (m *Machine) watchSoon() {
	m.rankWatch.schedule(m.samples.lastIteration()+m.cfg.Profile.Spacing, m.clock.now)
}

func formatSteps(n int) string {
	if n == 1 {
		return "1 step"
	}
	return fmt.Sprintf("%d steps", n)
}

// failing keeps the ranks that the watch calls failing, seen by more than one window.
func (rw *rankWatcher) failing(ranks []falcon.Rank) []falcon.Rank {
	return slices.DeleteFunc(slices.Clone(ranks), func(r falcon.Rank) bool {
		_, failing := rw.steps.Steps(r)
		_, twice := rw.steps.Since(r)
		return !failing || !twice
	})
}

// throughputOver is how many unpaused iterations the alarm's level is taken
// over: longer than any verification, as it lies below all of them.
const throughputOver = 24

// checkThroughput raises the alarm that the job runs below a
// share of its best, or of the peak that the operator gave, although no onset
// is open. Below its own best a rank got slow unseen, so an incident opens;
// below a peak that it never reached the ranks are profiled. Nearly all of the
// iterations count, and the newest without exception: right after a relief
// half of them are slow still.
func (m *Machine) checkThroughput(iteration int64) {
	best, peak := m.baseline.currentMs(), m.cfg.PeakIterationMs
	if m.samples.isLearning() ||
		best <= 0 ||
		m.baseline.isSettling(iteration) ||
		!m.baseline.settledFor(throughputOver, iteration) ||
		m.samples.slowest.held() < throughputOver {
		return
	}
	tail := m.samples.slowest.newestValues(throughputOver)
	fastest := slices.Sorted(slices.Values(tail))[throughputOver/10]
	level := falcon.Median(slices.Clone(tail))
	line := m.cfg.Throughput * min(fastest, slices.Min(tail[throughputOver-levelOver:]))
	if line <= best && (peak <= 0 || line <= peak) {
		m.throughputNoted = false
		return
	}
	if m.throughputNoted || len(m.incidents.list) > 0 { // open, or an action of theirs may still hold
		return
	}
	m.throughputNoted = true
	if line <= best || m.profile.learningDue() {
		m.out.addNote("", iteration, "throughput",
			"%.1f ms an iteration is %.0f %% of the peak throughput (%.1f ms): the ranks are profiled",
			level, 100*peak/level, peak)
		m.rankWatch.schedule(iteration, m.clock.now)
		return
	}
	m.out.addNote("", iteration, "throughput",
		"%.1f ms an iteration is %.0f %% of the job's best throughput (%.1f ms), and no onset was seen",
		level, 100*best/level, best)
	i := m.samples.slowest.seen - 1
	for oldest := m.samples.slowest.oldest(); i > oldest &&
		m.samples.slowest.valueAt(i-1) > best/m.cfg.Throughput; {
		i--
	}
	at := m.samples.slowest.iteration(i)
	m.openOnset([]alarm{{-1, at, best, level, m.samples.changeProbability(), &Decision{
		By:        ByThroughput,
		Kind:      bocd.KindOnset,
		Rank:      -1,
		Iteration: at,
		DecidedAt: iteration,
		BeforeMs:  best,
		AfterMs:   level,
		Points:    throughputOver,
	}}})
}

// rankWatcher counts how long ranks are slow that slow no iteration.
type rankWatcher struct {
	steps       *peer.Watch
	nextAt      int64     // iteration from which the ranks of a quiet job are profiled
	nextTime    time.Time // time from which they are
	lastAt      int64     // iteration of the newest profile, whatever it was taken for
	lastTime    time.Time
	unexplained map[falcon.Rank]int64 // slow without an onset of their own, since which iteration
	groups      []slowGroup           // likewise
}

// slowGroup is messages that are slow without an onset of their own.
type slowGroup struct {
	peer.Group
	since int64
}

// startEpoch begins with no rank seen slow.
func (rw *rankWatcher) startEpoch(world int, cfg WatchConfig) {
	rw.steps = peer.NewWatch(world, cfg.Over, cfg.Steps)
	rw.nextAt, rw.lastAt = 0, 0
	rw.unexplained = nil
	rw.groups = nil
}

// schedule sets the earliest iteration and time of the next profile of a quiet job.
func (rw *rankWatcher) schedule(iteration int64, at time.Time) {
	rw.nextAt, rw.nextTime = iteration, at
}

// noteLook takes a profile that has come, and puts off the next one.
func (rw *rankWatcher) noteLook(iteration int64, now time.Time, cfg WatchConfig) {
	rw.lastAt = iteration
	rw.lastTime = now
	rw.schedule(iteration+cfg.Every, now.Add(cfg.Spacing))
}

// dueBehind reports whether it is time to look at a job whose slowness is explained.
func (rw *rankWatcher) dueBehind(iteration int64, now time.Time) bool {
	return iteration >= rw.lastAt+behindEvery && now.Sub(rw.lastTime) >= behindSpacing
}

func (rw *rankWatcher) due(iteration int64, now time.Time) bool {
	return iteration >= rw.nextAt && !now.Before(rw.nextTime)
}

// move takes what is known of devices to another placement.
func (rw *rankWatcher) move(was, now falcon.Placement) {
	rw.steps.Move(was, now)
	rw.unexplained = nil
	rw.groups = nil
}

// slowSince is the first iteration in which the watch saw a rank slow.
func (rw *rankWatcher) slowSince(r falcon.Rank) (iteration int64, twice bool) {
	return rw.steps.Since(r)
}

// takeUnexplained are the ranks that the window before showed slow without an
// onset, and since when; they are forgotten.
func (rw *rankWatcher) takeUnexplained() map[falcon.Rank]int64 {
	out := rw.unexplained
	rw.unexplained = nil
	return out
}

func (rw *rankWatcher) keepUnexplained(ranks map[falcon.Rank]int64) {
	rw.unexplained = ranks
}

// slowAgain takes the groups that a window shows slow, and returns since when those of them are that the
// window before showed slow too.
func (rw *rankWatcher) slowAgain(iteration int64, groups []peer.Group) (again []slowGroup) {
	before := rw.groups
	rw.groups = nil
	for _, g := range groups {
		since := iteration
		for _, b := range before {
			if b.Same(&g) {
				since = b.since
				again = append(again, b)
			}
		}
		rw.groups = append(rw.groups, slowGroup{g, since})
	}
	return again
}

// forgetGroups has the next window that shows a group slow be the first of two.
func (rw *rankWatcher) forgetGroups() { rw.groups = nil }
