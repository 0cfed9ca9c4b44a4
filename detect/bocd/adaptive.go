package bocd

import (
	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/shift"
)

// The ways of TrackerConfig.Verification.
const (
	VerifyPaper    = "paper"    // FALCON §4.2: the medians differ by Verify
	VerifyAdaptive = "adaptive" // and by what the series' own noise proves, from Floor on
)

// small is what VerifyAdaptive adds: changes below Verify that the series' own
// noise proves, and their relief. A nil one adds nothing.
type small struct {
	watch *shift.Watch
	// The open onset, where it is below twice Settled: its relief can't be that the
	// level is within Settled of the baseline.
	before, after float64
}

// Least is the smallest change that is reported.
func (c TrackerConfig) Least() float64 {
	if c.Verification == VerifyAdaptive {
		return min(c.Verify, shift.LeastOf(c.Floor))
	}
	return c.Verify
}

const smallRecent = 24 // points whose median is the level that may end a small slowdown

// observeSmall takes in a point and returns the small change that it proves.
func (t *Tracker) observeSmall(ms float64) (shift.Change, bool) {
	if t.small == nil {
		return shift.Change{}, false
	}
	return t.small.watch.Observe(ms)
}

// smallChange is a proven change as the tracker tells it.
func (t *Tracker) smallChange(p shift.Change) Change {
	return Change{
		Index:       p.Index,
		BeforeMs:    p.Before,
		AfterMs:     p.After,
		Change:      relativeChange(p.Before, p.After),
		Probability: t.filter.Last().PRecent,
		DetectedAt:  t.next - 1,
		Why:         t.shiftDecision(p),
	}
}

func (t *Tracker) shiftDecision(p shift.Change) *Decision {
	d := t.decide(ByShift, p.Points)
	d.Drift = p.Drift
	return d
}

// explains reports whether the series' own noise explains a change.
func (s *small) explains(c Change, points int) bool {
	return s != nil && s.watch.Explains(c.BeforeMs, c.AfterMs, points)
}

// mayProve reports whether a change that is not verified may still be proven.
func (s *small) mayProve(c Change) bool {
	return s != nil && s.watch.IsOff(c.BeforeMs, c.AfterMs)
}

func (s *small) setLevel(index int) {
	if s != nil {
		s.watch.SetLevel(index)
	}
}

// open notes an onset. While another is open the level before that one counts.
func (s *small) open(already bool, c Change) {
	if s == nil {
		return
	}
	if s.after = c.AfterMs; !already {
		s.before = c.BeforeMs
	}
}

// isOff reports whether a level is too far off the baseline for a relief. A small
// slowdown is over where less than half of it is left, and of a level that the
// weather moved, not of the baseline.
func (t *Tracker) isOff(level float64) bool {
	if s := t.small; s != nil && s.isSmall(t.cfg.Settled) {
		return level > s.before/2+s.after/2
	}
	return relative(t.baseline, level) > t.cfg.Settled
}

func (s *small) isSmall(settled float64) bool {
	return s.before > 0 &&
		s.after > s.before &&
		relative(s.before, s.after) < 2*settled
}

// reliefLevel is the level that may end a slowdown without a change point.
func (t *Tracker) reliefLevel() float64 {
	if s := t.small; s != nil && s.isSmall(t.cfg.Settled) {
		if t.next-t.from < smallRecent {
			return s.after
		}
		return falcon.Median(t.observations(t.next-smallRecent, t.next))
	}
	return t.LevelMs()
}
