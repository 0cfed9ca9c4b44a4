package recovery

import "time"

// phaseClock is how long a recovery is in its present state, and how long it may be.
type phaseClock struct {
	entered  time.Time     // the state
	deadline time.Time     // zero = none
	limit    time.Duration // that the deadline was set with
	extended int           // how often the deadline was moved
	moved    time.Time     // newest answer that brought the state forward
}

// extensionsMost bounds how often the time of one state begins again.
const extensionsMost = 16

// enter begins a state.
func (c *phaseClock) enter(now time.Time) { c.entered, c.moved, c.extended = now, now, 0 }

// set gives the state a limit from now on, 0 = none.
func (c *phaseClock) set(now time.Time, limit time.Duration) {
	c.deadline, c.limit = time.Time{}, limit
	if limit > 0 {
		c.deadline = now.Add(limit)
	}
}

// extend gives the state at least so much time from now on; it reports whether the
// deadline has moved.
func (c *phaseClock) extend(now time.Time, limit time.Duration) bool {
	if c.extended >= extensionsMost {
		return false
	}
	c.extended++
	c.moved = now
	deadline := now.Add(limit)
	if c.deadline.IsZero() || !deadline.After(c.deadline) {
		return false
	}
	c.deadline = deadline
	return true
}

// postpone moves the deadline.
func (c *phaseClock) postpone(by time.Duration) { c.deadline = c.deadline.Add(by) }

// advance marks an answer that brought the state forward.
func (c *phaseClock) advance(now time.Time) { c.moved = now }

// skip takes a pause of the console itself out of the time without an answer.
func (c *phaseClock) skip(gap time.Duration, now time.Time) { c.moved = earlier(c.moved.Add(gap), now) }

// due reports whether the deadline has passed.
func (c *phaseClock) due(now time.Time) bool { return c.limited() && !now.Before(c.deadline) }

// limited reports whether there is a deadline.
func (c *phaseClock) limited() bool { return !c.deadline.IsZero() }

// deadlineNs is the deadline as a recovery shows it, 0 = none.
func (c *phaseClock) deadlineNs() int64 {
	if !c.limited() {
		return 0
	}
	return c.deadline.UnixNano()
}

// spent is the time in the state so far.
func (c *phaseClock) spent(now time.Time) time.Duration { return now.Sub(c.entered) }

// idle is the time since the newest answer.
func (c *phaseClock) idle(now time.Time) time.Duration { return now.Sub(c.moved) }
