package bocd

import "slices"

// A tracker with TrackerConfig.Rest has no filter while its series is at rest: what it keeps is
// the ring of observations. At rest all of them are near the level and the reference, so that
// none of the changes that Verify asks for can begin among them. The second observation off
// it within restWait wakes the filter, which then gets what it has missed, one observation
// after the other: a change needs more of them than that, so that none is reported later.
const (
	restAfter = refeed   // observations near the level after which the filter rests
	restWait  = patience // observations in which a second one off the level wakes it
	restFeed  = refeed   // observations before the first one off that a filter begins with
)

// rest is how long the series has been near its level, and what waits for the filter.
type rest struct {
	calm  int // observations running near the level
	stray int // the one off the level, while the filter rests; see strayed
	off   bool
}

// atRest reports whether the filter rests.
func (t *Tracker) atRest() bool { return t.filter == nil }

// isNear reports whether an observation is so near the level and the reference that it can't be
// part of a change. Within the same bound drift counts nothing.
func (t *Tracker) isNear(ms float64) bool {
	middle := 1 + t.cfg.Verify/2
	near := func(level float64) bool { return ms <= level*middle && ms*middle >= level }
	if !near(t.centre) || t.drift.reference > 0 && !near(t.drift.reference) {
		return false
	}
	return !t.slow || relative(t.baseline, ms) > t.cfg.Settled // else it may be the relief
}

// noteCalm lets the filter rest once all has been near the level for long enough.
func (t *Tracker) noteCalm(ms float64) {
	if !t.cfg.Rest || t.small != nil || t.cfg.Raw {
		return
	}
	if !t.isNear(ms) ||
		!t.refined ||
		t.alarm.raised ||
		t.drift.slower+t.drift.faster > 0 {
		t.rest.calm = 0
		return
	}
	if t.rest.calm++; t.rest.calm >= restAfter && t.next-t.from >= restAfter {
		t.rest, t.corr, t.filter = rest{}, t.filter.mood.corr, nil
	}
}

// observeAtRest takes in an observation, which is in the ring already, while the filter rests.
func (t *Tracker) observeAtRest(ms float64) []Change {
	t.drift.observe(ms, t.cfg.Verify)
	t.updateReference()
	newest := t.next - 1
	switch near := t.isNear(ms); {
	case !near && t.rest.off:
		return t.wake()
	case !near:
		t.rest.stray, t.rest.off = newest, true
	case t.rest.off && newest-t.rest.stray >= restWait:
		t.forgetStray()
	}
	return nil
}

// forgetStray replaces a lone observation off the level by it, as removeBurst does.
func (t *Tracker) forgetStray() {
	if relative(t.centre, t.past[t.rest.stray%history]) > t.levelTolerance() {
		t.remove(t.rest.stray, t.centre)
		t.removed = slices.DeleteFunc(t.removed, func(r Removed) bool {
			return r.Index < t.next-history
		})
	}
	t.rest.off = false
}

// wake begins a filter and gives it what was observed from the first observation off the level on.
func (t *Tracker) wake() []Change {
	next, first := t.next, t.rest.stray
	t.filter = New(t.cfg.Filter)
	t.rest = rest{}
	t.filter.mood.corr = t.corr
	t.next = first
	t.fedFrom = max(t.from, first-restFeed, 0)
	t.forgetRemoved()
	for _, ms := range t.observations(t.fedFrom, first) {
		t.feedFilter(ms)
	}
	var changes []Change
	for t.next < next {
		ms := t.past[t.next%history]
		t.next++
		t.feedFilter(ms)
		t.updateAlarm()
		changes = append(changes, t.verifyAlarm()...)
	}
	return changes
}
