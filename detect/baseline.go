package detect

import (
	"math"

	"github.com/failslow/falcon"
)

// baseline is the iteration time that slowness is measured against.
type baseline struct {
	cfg        *Config
	out        *output
	samples    *sampleLog
	incidents  *incidentSet
	restoredMs float64 // restored, or lowest verified regime; 0 = unknown
	rebase     bool    // take the level after the settle window as the baseline
	settleTo   int64   // first iteration that no action owns
	settleMost float64 // ms; a level above it no action owns
}

// holdWhileOpen keeps the baseline while an incident is open: where ranks showed it first,
// the job's first level takes in slow iterations.
func (bl *baseline) holdWhileOpen(before float64) {
	if before > 0 &&
		bl.currentMs() > before*(1+bl.cfg.Settled) &&
		len(bl.incidents.openIncidents()) > 0 {
		bl.restoredMs = before
	}
}

// adoptLevel looks at the level that an action led to, as a fault whose onset fell
// into the settle window raised no alarm of its own.
func (bl *baseline) adoptLevel(iteration int64) {
	level := bl.samples.currentLevel()
	baseline := bl.currentMs()
	bl.samples.slowest.tracker.Compare(level)
	if bl.samples.isLearning() || baseline <= 0 {
		return
	}
	acting := bl.incidents.acting()
	switch {
	case level < baseline*(1-bl.cfg.Settled):
		bl.restoredMs = min(bl.restoredMs, level)
		bl.samples.slowest.tracker.Rebase(level)
		bl.out.addNote("", iteration, "rebase", "New baseline %.1f ms instead of %.1f ms", level, baseline)
	case !acting:
		bl.samples.slowest.tracker.Compare(baseline)
	}
}

// endWarmUp is the end of the warm-up: a baseline that was handed over from before
// a restart holds on, as the job may be slow right now.
func (bl *baseline) endWarmUp() {
	if bl.restoredMs > 0 && bl.restoredMs < bl.samples.slowest.tracker.BaselineMs() {
		bl.samples.slowest.tracker.Rebase(bl.restoredMs)
		return
	}
	bl.restoredMs = 0
	bl.out.addNote("", bl.samples.lastIteration(), "rebase", "Baseline %.1f ms",
		bl.samples.slowest.tracker.BaselineMs())
}

// currentMs is the lowest verified regime of the epoch, 0 while learning.
func (bl *baseline) currentMs() float64 {
	if bl.samples.slowest == nil || bl.samples.isLearning() {
		return bl.restoredMs
	}
	b := bl.samples.slowest.tracker.BaselineMs()
	if bl.restoredMs == 0 || b < bl.restoredMs {
		return b
	}
	return bl.restoredMs
}

// healthyBefore is the level that an onset is measured against: the baseline, or
// the level right before it where it is so small that the weather's share of the
// level would count as the fault's, or where the job has no level yet.
func (bl *baseline) healthyBefore(a alarm) float64 {
	healthy := bl.currentMs()
	if healthy == 0 {
		return a.beforeMs
	}
	if bl.cfg.isSmall(a.beforeMs, a.afterMs) && len(bl.incidents.openIncidents()) == 0 {
		return max(healthy, a.beforeMs)
	}
	return healthy
}

// isSettling reports whether a change placed at iteration belongs to an action.
func (bl *baseline) isSettling(iteration int64) bool {
	return iteration >= bl.settleFrom() && iteration < bl.settleTo
}

// settleFrom is the first iteration of the settle window that ends at settleTo.
func (bl *baseline) settleFrom() int64 {
	return bl.settleTo - bl.cfg.SettleAfter - bl.cfg.SettleBefore
}

func (bl *baseline) restore(ms float64) {
	bl.restoredMs = ms
}

// relearn takes the level after the settle window as the baseline.
func (bl *baseline) relearn() {
	bl.rebase = true
}

func (bl *baseline) settleUntil(iteration int64, most float64) {
	bl.settleTo, bl.settleMost = iteration, most
}

// mostAfter is the highest level that an action can lead to, ms: undone while no fault is open,
// it makes the job no slower; an S2, no slower than its open faults made it. What does is a new
// fault. What a placement leads to, or what an undone action lets in, is not known here.
func (bl *baseline) mostAfter(in Acted) float64 {
	base := bl.currentMs()
	open := bl.incidents.openIncidents()
	if base <= 0 ||
		in.Reverted && len(open) > 0 ||
		!in.Reverted && in.Rung != falcon.RungS2 {
		return math.Inf(1)
	}
	most := max(base, bl.samples.currentLevel())
	for _, s := range open {
		most = max(most, s.SlowMs)
	}
	return most * (1 + bl.cfg.Tracker.Verify)
}

// levelAfter takes the level that an action has led to: a change to a higher one that comes
// within its settle window is not the action's. It reports whether that bound is lower than
// the one before; of an action whose level is not known before it is taken, it never is.
func (bl *baseline) levelAfter(ms float64) bool {
	most := ms * (1 + bl.cfg.Settled)
	if math.IsInf(bl.settleMost, 1) || most >= bl.settleMost {
		return false
	}
	bl.settleMost = most
	return true
}

// isActions reports whether a change placed at iteration, to a level of ms, belongs to an action.
func (bl *baseline) isActions(iteration int64, ms float64) bool {
	return bl.isSettling(iteration) && ms <= bl.settleMost
}

// lower takes a verified lower level as the baseline.
func (bl *baseline) lower(ms float64) {
	bl.restoredMs = min(bl.currentMs(), ms)
}

// startEpoch forgets the settle window, and with it the baseline where another epoch had it.
func (bl *baseline) startEpoch(again bool) {
	bl.settleTo = 0
	if again {
		bl.restoredMs, bl.rebase = 0, false
	}
}

// finishRelearn ends relearning after the settle window and reports whether it did.
func (bl *baseline) finishRelearn(iteration int64) bool {
	tracker := bl.samples.slowest.tracker
	if !bl.rebase || iteration < bl.settleTo || tracker.Learning() {
		return false
	}
	bl.rebase, bl.restoredMs = false, 0
	tracker.Rebase(0)
	tracker.Compare(bl.samples.currentLevel())
	bl.out.addNote("", iteration, "rebase", "New baseline %.1f ms", tracker.BaselineMs())
	return true
}

// settledFor reports whether so many iterations have passed since the settle window.
func (bl *baseline) settledFor(iterations, at int64) bool {
	return at >= bl.settleTo+iterations
}

// endsSettling reports whether the level that an action led to is known now.
func (bl *baseline) endsSettling(iteration int64) bool {
	return bl.settleTo > 0 && iteration == bl.settleTo+levelOver
}
