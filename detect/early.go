package detect

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/bocd"
	"github.com/failslow/falcon/detect/cause"
	"github.com/failslow/falcon/detect/peer"
)

// earlyLook is a short window that is asked for at the first iteration that looks slow,
// before the onset is verified, so that a clear culprit is known by then. Most first slow
// iterations are jitter: each look that no onset follows doubles the distance to the next.
type earlyLook struct {
	cfg       *Config
	clock     *clock
	samples   *sampleLog
	incidents *incidentSet
	baseline  *baseline
	evidence  *evidence
	profile   *profiler

	newest    *window     // nil = none
	res       peer.Result // what it shows
	asked     uint64      // newest early window
	wait      int64       // iterations to the next look
	notBefore int64
}

// startEpoch forgets what was seen of another epoch's processes.
func (e *earlyLook) startEpoch() {
	e.newest = nil
	e.wait = 0
	e.notBefore = 0
}

// request asks for a window after a slow iteration, unless there was one a short time ago,
// or for this slowness.
func (e *earlyLook) request(iteration int64) {
	if iteration < e.notBefore || e.profile.inFlight() || e.slowRun() > 0 {
		return
	}
	e.newest = nil
	e.wait = min(max(2*e.wait, e.cfg.Early.Wait), e.cfg.Early.WaitMost)
	e.notBefore = iteration + e.wait
	e.profile.request(e.cfg.Early.Iterations, "A slow iteration: who is it, if it lasts?")
	e.asked = e.profile.windowID
}

// isOwn reports whether the window is an early look.
func (e *earlyLook) isOwn(w *window) bool { return w.id == e.asked }

// keep holds a window until a culprit is named.
func (e *earlyLook) keep(w *window, res peer.Result) {
	e.newest, e.res = w, res
}

// drop forgets a window that has named its culprit.
func (e *earlyLook) drop() {
	e.newest = nil
}

// justify is called for a verified onset: the look was not in vain.
func (e *earlyLook) justify() {
	e.wait = 0
}

// isOf reports whether there is a window for an onset: its iterations began after the one
// during which it was asked for.
func (e *earlyLook) isOf(onset int64) bool {
	w := e.newest
	return w != nil &&
		w.iteration >= onset-1 &&
		w.iteration <= onset+e.cfg.MergeWithin
}

// levelBefore is what an iteration is held against: the baseline, and while incidents are open
// or actions hold, the level that the job has settled at with them.
func (e *earlyLook) levelBefore() float64 {
	base := e.baseline.currentMs()
	if e.incidents.anyLocated() {
		base = max(base, falcon.Median(e.samples.slowest.newestValues(earlyOver)))
	}
	for _, s := range e.incidents.openIncidents() {
		if s.isLocated() && len(s.actions.inForce) == 0 {
			base = max(base, s.SlowMs)
		}
	}
	return base
}

// isSlow reports whether an iteration looks slow enough to ask for a window.
func (e *earlyLook) isSlow(ms float64) bool {
	base := e.levelBefore()
	return base > 0 && ms > base*(1+e.cfg.Early.Over)
}

// isDue reports whether an iteration of a settled job is slow, beyond what is known.
func (e *earlyLook) isDue(c cell) bool {
	return e.cfg.Early.Iterations > 0 &&
		!e.samples.isLearning() &&
		e.isSlow(c.ms) &&
		!e.baseline.isActions(c.iteration, c.ms) &&
		e.evidence.hasHealthy() &&
		!e.profile.learningDue() &&
		e.incidents.allLocated()
}

// slowRun is how many iterations there were since the window was asked for, 0 without a
// window, where that is too old, or where one of them was not slow.
func (e *earlyLook) slowRun() int {
	w, slowest := e.newest, e.samples.slowest
	if w == nil || slowest.lastIteration() > w.iteration+e.cfg.MergeWithin {
		return 0
	}
	from := max(slowest.indexOfIteration(w.iteration), slowest.oldest())
	for i := from; i < slowest.seen; i++ {
		if !e.isSlow(slowest.valueAt(i)) {
			return 0
		}
	}
	return slowest.seen - from
}

// onset is that of an incident that need not wait for its verification: every iteration
// since was slow, and counters accuse the ranks that the window does. The two signs do
// not depend on each other.
func (e *earlyLook) onset(healthyBefore func(alarm) float64) (a alarm, ok bool) {
	if !e.incidents.allLocated() || e.slowRun() < earlyLeast {
		return alarm{}, false
	}
	w, slowest := e.newest, e.samples.slowest
	a = alarm{
		-1,
		w.iteration,
		e.levelBefore(),
		slowest.valueAt(slowest.seen - 1),
		e.samples.changeProbability(),
		nil,
	}
	s := newIncident(
		falcon.Incident{
			OnsetIteration: w.iteration,
			HealthyMs:      healthyBefore(a),
			SlowMs:         a.afterMs,
		},
		w.id,
	)
	timing, _, ok := e.judge(s)
	a.why = &Decision{
		By:         ByEarly,
		Kind:       bocd.KindOnset,
		Rank:       -1,
		Iteration:  w.iteration,
		DecidedAt:  slowest.lastIteration(),
		BeforeMs:   a.beforeMs,
		AfterMs:    a.afterMs,
		Points:     e.slowRun(),
		Window:     w.id,
		Ranks:      timing.Slow,
		Confirming: ok,
	}
	return a, ok
}

// Bounds below which no rank is named by an early window: of short iterations, a handful
// are over before an operator has read the line.
const (
	earlyOver  = 12          // iterations that make the level before: of them up to half may be slow already
	earlyLeast = 3           // slow iterations that open an incident without verification
	earlyLasts = time.Second // that the job has been slow for
)

// judge is what the window shows of an incident; ok reports whether it is enough to name
// its culprit: the job is slow still, and counters accuse each rank that the window does.
func (e *earlyLook) judge(s *incidentState) (timing peer.Result, v falcon.Verdict, ok bool) {
	if e.clock.now.Sub(e.samples.times.startOfIteration(s.OnsetIteration)) < earlyLasts ||
		e.slowRun() == 0 {
		return timing, v, false
	}
	timing = e.evidence.withoutOthers(e.res, s)
	c := e.evidence.caseFor(s, timing)
	v = cause.Judge(c)
	confirmed := timing.Clear &&
		len(timing.Slow) > 0 &&
		!slices.ContainsFunc(timing.Slow, func(r falcon.Rank) bool {
			return !c.Confirmed(r)
		})
	return timing, v, confirmed && e.evidence.isConvincing(v, timing)
}

// lookEarly asks for an early window after a slow iteration, or opens an incident by it.
func (m *Machine) lookEarly(c cell) {
	if !m.early.isDue(c) || m.tests.waiting() {
		return
	}
	if a, ok := m.early.onset(m.baseline.healthyBefore); ok {
		m.openOnset([]alarm{a})
		return
	}
	m.early.request(c.iteration)
}

// endEarly keeps an early window, and judges by it.
func (m *Machine) endEarly(w *window, res peer.Result) {
	m.profile.keep(w, res)
	m.links.addTransfers(&res)
	m.early.keep(w, res)
	m.judgeEarly()
	if a, ok := m.early.onset(m.baseline.healthyBefore); ok {
		m.openOnset([]alarm{a})
	}
}

// judgeEarly gives the incident of an early window its verdict once counters confirm what it
// shows, as they come later than it. Without them it counts for nothing, not even as the first
// of two windows that accuse a rank: where the work differs from iteration to iteration, one
// accuses any rank.
func (m *Machine) judgeEarly() {
	for _, s := range m.incidents.openIncidents() {
		if s.hasVerdict() || !m.early.isOf(s.OnsetIteration) {
			continue
		}
		timing, v, ok := m.early.judge(s)
		if !ok {
			continue
		}
		m.early.drop()
		s.basis = verdictBasis{timing: &timing, at: m.clock.now}
		m.publishVerdict(s, v)
		return
	}
}
