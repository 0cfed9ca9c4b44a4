package bocd

import (
	"math"

	"github.com/failslow/falcon"
)

// verifyAlarm verifies the pending alarm, and ends an incident back at the baseline.
func (t *Tracker) verifyAlarm() []Change {
	if !t.alarm.raised {
		if c, unlike := t.correctLevel(); unlike {
			c.Why = t.decide(ByReference, t.next-c.Index)
			return []Change{t.acceptChange(c)}
		}
		if c, drifted := t.findDrift(); drifted {
			c.Why = t.decide(ByReference, t.next-c.Index)
			return []Change{t.acceptChange(c)}
		}
		return t.checkRelief()
	}
	if t.next-t.alarm.index < sideMin {
		return nil
	}
	c := t.measureChange()
	switch {
	case t.verified(c) && t.holdsBefore(c):
		c.Why = t.decide(ByPosterior, t.next-c.Index)
		c.Index = t.placeChange(c)
		return []Change{t.acceptChange(c)}
	case t.checkReference(&c):
		c.Why = t.decide(ByPosterior, t.next-c.Index)
		return []Change{t.acceptChange(c)}
	case t.returned(c):
		c.Why = t.decide(ByPosterior, t.next-c.Index) // with the burst
		t.removeBurst(c)
	default:
		if later, lasts := t.findLasting(c); lasts {
			later.Why = t.decide(ByPosterior, t.next-later.Index)
			return []Change{t.acceptChange(later)}
		}
		if n := t.next - t.alarm.index; n < patience ||
			n < lastPatience && (t.isOffLevel(c) || t.small.mayProve(c)) {
			return nil
		}
		c.Why = t.decide(ByPosterior, t.next-c.Index)
	}
	t.alarm = alarm{}
	t.jitter = c.Index
	c.Kind = KindJitter
	return []Change{c}
}

// findLasting looks for a change that lasts behind an alarm that does not hold: one
// raised by a hiccup a few points before it, say. It must hold one point more
// than one that the alarm found by itself.
func (t *Tracker) findLasting(c Change) (Change, bool) {
	for i := c.Index + 1; t.next-i > sideMin+1; i++ {
		later := c
		later.Index = i
		later.AfterMs = falcon.Median(t.observations(i, t.next))
		later.Change = relativeChange(c.BeforeMs, later.AfterMs)
		if t.next-i > pointsFor(relative(c.BeforeMs, later.AfterMs)) &&
			t.isBeyondMiddle(later, i) &&
			t.verified(later) &&
			t.holdsBefore(later) {
			return later, true
		}
	}
	return c, false
}

// correctLevel corrects a young level that its own points turn out not to be on: a
// burst right before a step gives the step the burst's level, and the two are
// too close for an alarm of their own. What is off by less, refine puts right.
func (t *Tracker) correctLevel() (Change, bool) {
	c := Change{
		Index:       t.from,
		BeforeMs:    t.centre,
		Probability: t.filter.Last().PRecent,
		DetectedAt:  t.next - 1,
	}
	if t.refined || t.next-t.from <= patience || !t.isOffLevel(c) {
		return c, false
	}
	c, lasts := t.findLasting(c)
	return c, lasts && t.next-c.Index > patience && relative(c.BeforeMs, c.AfterMs) >= 2*t.cfg.Verify
}

// isOffLevel reports whether the newest points are not where the level was.
func (t *Tracker) isOffLevel(c Change) bool {
	return relative(c.BeforeMs, falcon.Median(t.observations(t.next-recent, t.next))) >= t.cfg.Verify
}

// returned reports whether the newest two points are back where the level was: near
// it, and on its side of the middle. Near alone says little where the level was
// learnt from a burst, and is wide.
func (t *Tracker) returned(c Change) bool {
	for i := t.next - 2; i < t.next; i++ {
		if t.isBeyondMiddle(c, i) ||
			relative(c.BeforeMs, t.past[i%history]) > t.levelTolerance() {
			return false
		}
	}
	return true
}

// levelTolerance is how far from the level a point counts as being on it.
func (t *Tracker) levelTolerance() float64 {
	return max(t.cfg.Verify/2, 1.5*clampFinite(t.scale/math.Abs(t.centre)))
}

// removeBurst replaces a burst that is over by the level it left and starts the
// filter over without it. Otherwise the newest run would begin with the burst,
// its variance would swallow a real change a few points later, and that is how
// a plain filter misses changes in published logs.
func (t *Tracker) removeBurst(c Change) {
	for i := max(min(c.Index, t.alarm.first), t.next-history, 0); i < t.next; i++ {
		if relative(c.BeforeMs, t.past[i%history]) > t.levelTolerance() {
			t.remove(i, c.BeforeMs)
		}
	}
	t.refilter()
}

func (t *Tracker) measureChange() Change {
	i := t.alarm.index
	before := falcon.Median(t.observations(max(t.from, i-beforeMost), i))
	after := falcon.Median(t.observations(i, t.next))
	return Change{
		Index:       i,
		BeforeMs:    before,
		AfterMs:     after,
		Change:      relativeChange(before, after),
		Probability: t.alarm.probability,
		DetectedAt:  t.next - 1,
	}
}

// verified reports whether the medians differ enough, over enough points, nearly
// all of which lie beyond the middle between the two levels. The last two
// keep the short bursts of validation, recompilation and stragglers out, which
// published logs are full of: the smaller a change, the longer it must last.
func (t *Tracker) verified(c Change) bool {
	n := t.next - c.Index
	return n >= pointsFor(relative(c.BeforeMs, c.AfterMs)) &&
		t.exceedsNoise(c) &&
		t.holdsAfter(c) &&
		!t.small.explains(c, n)
}

// holdsBefore reports whether two in three points before a change lay on their side of the
// middle: a burst among the first few of a series makes a median that nothing
// ever was at.
func (t *Tracker) holdsBefore(c Change) bool {
	n, off := 0, 0
	for i := max(t.from, c.Index-beforeMost); i < c.Index; i++ {
		n++
		if t.isBeyondMiddle(c, i) {
			off++
		}
	}
	return 3*off <= n
}

// holdsAfter reports whether nearly all points from a change on lie beyond the middle, all
// of them where there are few. Where it is faster, pauses and other hiccups say
// nothing: only points that are no slower than before count.
func (t *Tracker) holdsAfter(c Change) bool {
	n, beyond := 0, 0
	for i := c.Index; i < t.next; i++ {
		if c.AfterMs < c.BeforeMs &&
			relative(c.BeforeMs, t.past[i%history]) >= t.cfg.Verify &&
			t.past[i%history] > c.BeforeMs {
			continue
		}
		n++
		if t.isBeyondMiddle(c, i) {
			beyond++
		}
	}
	if n < manyPoints {
		return n > sideMin && beyond >= n-n/8
	}
	return beyond >= n-n/5
}

// isBeyondMiddle reports whether an observation is on the new level's side of the middle.
func (t *Tracker) isBeyondMiddle(c Change, index int) bool {
	middle := c.BeforeMs/2 + c.AfterMs/2
	return (t.past[index%history] > middle) == (c.AfterMs > c.BeforeMs)
}

// placeChange moves a verified change to the first observation beyond the middle:
// the most probable run length is at times off by a point or two.
func (t *Tracker) placeChange(c Change) int {
	index := c.Index
	for range sideMin {
		if !t.isBeyondMiddle(c, index) && t.next-index > sideMin {
			index++
		}
	}
	for range sideMin {
		if index-1 >= t.from+sideMin && t.isBeyondMiddle(c, index-1) {
			index--
		}
	}
	return index
}

// pointsFor is how many points a change of this size must last.
func pointsFor(size float64) int {
	switch {
	case size >= 0.18:
		return sideMin + 1
	case size >= 0.15:
		return sideMin + 2
	}
	return sideMin + 5
}
