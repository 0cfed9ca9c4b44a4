package detect

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/bocd"
)

// onRankChange collects the verified onsets of single ranks. Under lockstep all
// ranks slow together, so one rank alone opens nothing.
func (m *Machine) onRankChange(rank falcon.Rank, s *series, c bocd.Change) {
	if c.Kind != bocd.KindOnset {
		return
	}
	a := alarm{
		rank:        rank,
		iteration:   s.iteration(c.Index),
		beforeMs:    c.BeforeMs,
		afterMs:     c.AfterMs,
		probability: c.Probability,
	}
	if len(m.onsets.alarms) < voicesHeld {
		a.why = decisionOf(rank, s, c)
	}
	m.onsets.addAlarm(a)
}

// checkQuorum opens an incident when enough ranks raised an alarm, in case the job's own
// series lags behind a rank that does not report.
func (m *Machine) checkQuorum() {
	if alarms, enough := m.onsets.quorum(); enough {
		m.openOnset(alarms)
	}
}

// alarmsNear are the alarms within the merge distance of an iteration, one per rank.
func (od *onsetDetector) alarmsNear(at int64) []alarm {
	seen := map[falcon.Rank]bool{}
	var out []alarm
	for _, a := range od.alarms {
		if od.isNear(a.iteration, at) && !seen[a.rank] {
			seen[a.rank] = true
			out = append(out, a)
		}
	}
	return out
}

// isNear reports whether changes at two iterations are taken for one.
func (od *onsetDetector) isNear(a, b int64) bool {
	return max(a-b, b-a) <= od.cfg.MergeWithin
}

func (od *onsetDetector) medianIteration(alarms []alarm) int64 {
	at := make([]int64, len(alarms))
	for i, a := range alarms {
		at[i] = a.iteration
	}
	slices.Sort(at)
	return at[len(at)/2]
}

// isPartOfOnset reports whether a change belongs to the newest reported onset.
func (od *onsetDetector) isPartOfOnset(iteration int64) bool {
	return od.lastOnset != falcon.NoIteration && od.isNear(iteration, od.lastOnset)
}

// onJobChange is a change of the slowest rank's series.
func (m *Machine) onJobChange(c bocd.Change) {
	at := m.samples.slowest.iteration(c.Index)
	why := m.decided.add(decisionOf(-1, m.samples.slowest, c))
	switch {
	case c.Kind == bocd.KindJitter:
		m.onsets.recordDip(at, c)
		if m.onsets.isNewJitter(at) {
			m.out.addNote("", at, "jitter",
				"A change by %s did not last or is too small: %.1f ms before, %.1f ms after, at most %.1f ms",
				changeText(c.Change), c.BeforeMs, c.AfterMs, m.samples.peakAround(c))
		}
	case c.Kind == bocd.KindSettled || m.baseline.isActions(at, c.AfterMs):
		m.out.addNote("", at, "settled", "The change from %.1f to %.1f ms belongs to an action",
			c.BeforeMs, c.AfterMs)
		if c.AfterMs < c.BeforeMs && m.baseline.levelAfter(c.AfterMs) {
			m.samples.settleRange(
				m.baseline.settleFrom(),
				m.baseline.settleTo,
				m.baseline.settleMost,
			)
		}
		m.incidents.expediteAll()
	case c.Kind == bocd.KindOnset &&
		c.AfterMs <= m.baseline.currentMs()*(1+m.cfg.Tracker.Least()):
		m.out.addNote("", at, "rebase", "%.1f ms after %.1f ms is no slower than the baseline",
			c.AfterMs, c.BeforeMs)
	case c.Kind == bocd.KindOnset:
		if !m.onsets.isPartOfOnset(at) {
			alarms := append(m.onsets.alarmsNear(
				at,
			), alarm{-1, at, c.BeforeMs, c.AfterMs, c.Probability, why})
			m.openOnset(alarms)
		}
	case c.Kind == bocd.KindRelief:
		m.onsets.recordDip(at, c)
		m.relief.onFaster(at, c)
	}
}

// recordDip remembers where the job last got a little faster: a sign of a hidden relief.
func (od *onsetDetector) recordDip(at int64, c bocd.Change) {
	_, noise := meanAndSpread(od.samples.slowest.newestValues(dipOver))
	if c.BeforeMs-c.AfterMs > 2*noise && !od.baseline.isSettling(at) {
		od.dipAt = od.samples.firstFast(at, (c.BeforeMs+c.AfterMs)/2)
	}
}

// openOnset opens one incident for alarms that mean the same. It stays unreported until it
// has lasted or a culprit is named (bursts.go); while other incidents are open,
// until a profile shows whether another rank is slow.
func (m *Machine) openOnset(alarms []alarm) {
	slices.SortFunc(alarms, func(a, b alarm) int {
		return cmp.Compare(a.iteration, b.iteration)
	})
	at := m.onsets.medianIteration(alarms)
	best := slices.MaxFunc(alarms, func(a, b alarm) int {
		return cmp.Compare(a.afterMs, b.afterMs)
	})
	at = m.samples.firstSlow(at, (best.beforeMs+best.afterMs)/2)
	m.onsets.opened(at)
	m.decided.noteOpened(alarms, at)
	if m.resumeBurst(at, best.afterMs) {
		return
	}
	s := newIncident(falcon.Incident{
		State:             falcon.IncidentVerified,
		OnsetIteration:    at,
		DetectedIteration: m.samples.newest,
		RelievedIteration: falcon.NoIteration,
		HealthyMs:         m.baseline.healthyBefore(best),
		SlowMs:            best.afterMs,
		Probability:       best.probability,
		Verdict:           falcon.Verdict{Cause: falcon.CauseUnknown},
	}, m.profile.windowID)
	s.BeforeMs = best.beforeMs
	others := m.incidents.openIncidents()
	if len(others) > 0 {
		s.floorMs = s.BeforeMs
	}
	m.incidents.add(s)
	m.early.justify()
	m.judgeEarly()
	if len(others) == 0 && s.ID == "" {
		m.publishOrWait(s)
	}
	m.out.addNote("", at, "onset", "%s slower from iteration %d on: %.1f ms instead of %.1f ms (P %.2f)",
		s.subject(), at, best.afterMs, best.beforeMs, best.probability)
}

// onsetDetector places onsets from the alarms of ranks and of the job.
type onsetDetector struct {
	cfg       *Config
	samples   *sampleLog
	baseline  *baseline
	alarms    []alarm
	lastOnset int64 // placement of the newest onset, to merge late alarms
	jitterAt  int64 // newest jitter noted
	dipAt     int64 // newest small downward change
}

// alarm is one rank's verified onset.
type alarm struct {
	rank        falcon.Rank
	iteration   int64
	beforeMs    float64
	afterMs     float64
	probability float64
	why         *Decision // nil where it is not kept
}

// resetToLevel makes the job's tracker ready for another onset at the level of now.
func (od *onsetDetector) resetToLevel() {
	od.samples.slowest.tracker.Rebase(od.samples.slowest.tracker.BaselineMs())
	od.samples.slowest.tracker.Compare(od.samples.currentLevel())
	od.lastOnset = falcon.NoIteration
	od.alarms = nil
}

func (od *onsetDetector) clearAlarms() {
	od.alarms = nil
}

func (od *onsetDetector) startEpoch() {
	od.alarms = nil
	od.lastOnset = falcon.NoIteration
	od.jitterAt = -od.cfg.MergeWithin - 1
	od.dipAt = falcon.NoIteration
}

// addAlarm keeps the alarm of one rank, unless an action or a reported onset explains it.
func (od *onsetDetector) addAlarm(a alarm) {
	if !od.baseline.isActions(a.iteration, a.afterMs) && !od.isPartOfOnset(a.iteration) {
		od.alarms = append(od.alarms, a)
	}
}

// quorum are the alarms that mean one onset, where enough ranks raised one.
func (od *onsetDetector) quorum() ([]alarm, bool) {
	od.alarms = slices.DeleteFunc(od.alarms, func(a alarm) bool {
		return od.isPartOfOnset(a.iteration) ||
			od.baseline.isActions(a.iteration, a.afterMs) ||
			od.samples.newest-a.iteration > int64(od.cfg.History)
	})
	need := max(2, int(od.cfg.Quorum*float64(len(od.samples.ranks))+0.5))
	if len(od.alarms) < need {
		return nil, false
	}
	near := od.alarmsNear(od.medianIteration(od.alarms))
	return near, len(near) >= need
}

// opened remembers where the newest onset was placed.
func (od *onsetDetector) opened(at int64) {
	od.lastOnset, od.alarms = at, nil
}

// isNewJitter reports whether a jitter is to be noted: one line for each.
func (od *onsetDetector) isNewJitter(at int64) bool {
	if at-od.jitterAt <= od.cfg.MergeWithin || od.isPartOfOnset(at) {
		return false
	}
	od.jitterAt = at
	return true
}

// lastDip is the iteration of the newest small downward change.
func (od *onsetDetector) lastDip() int64 { return od.dipAt }

// changeText is a relative change in percent; one that rounds to nothing says so.
func changeText(change float64) string {
	if math.Abs(change) < 0.005 {
		return "less than 1 %"
	}
	return fmt.Sprintf("%+.0f %%", 100*change)
}
