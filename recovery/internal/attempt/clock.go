// Package attempt is what one attempt at a recovery has come to: how long its present
// state lasts and may last, and what nodes and ranks have answered to its orders.
//
// It guarantees: a state's time begins again a bounded number of times; an answer
// counts once. An engine that starts again gets the answers from the agents, so that
// nothing here is durable. Time comes in as an argument. It gives no order and decides
// nothing.
package attempt

import "time"

// Clock is how long a recovery is in its present state, and how long it may be.
type Clock struct {
	entered  time.Time     // the state
	deadline time.Time     // zero = none
	limit    time.Duration // that the deadline was set with
	extended int           // how often the deadline was moved
	moved    time.Time     // newest answer that brought the state forward
}

// extensionsMost bounds how often the time of one state begins again.
const extensionsMost = 16

// NewClock begins a state that was entered at a time, possibly by an engine before.
func NewClock(entered, now time.Time) Clock {
	return Clock{entered: entered, moved: now}
}

// Enter begins a state.
func (c *Clock) Enter(now time.Time) {
	c.entered = now
	c.moved = now
	c.extended = 0
}

// Set gives the state a limit from now on, 0 = none.
func (c *Clock) Set(now time.Time, limit time.Duration) {
	c.deadline = time.Time{}
	c.limit = limit
	if limit > 0 {
		c.deadline = now.Add(limit)
	}
}

// Restore takes up a deadline that an engine before has set.
func (c *Clock) Restore(deadline time.Time) {
	c.deadline = deadline
}

// Extend gives the state at least so much time from now; it reports whether the deadline moved.
func (c *Clock) Extend(now time.Time, limit time.Duration) bool {
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

// Postpone moves the deadline.
func (c *Clock) Postpone(by time.Duration) {
	c.deadline = c.deadline.Add(by)
}

// Advance marks an answer that brought the state forward.
func (c *Clock) Advance(now time.Time) {
	c.moved = now
}

// Skip takes a pause of the engine itself out of the time without an answer.
func (c *Clock) Skip(gap time.Duration, now time.Time) {
	if c.moved = c.moved.Add(gap); c.moved.After(now) {
		c.moved = now
	}
}

// Limited reports whether there is a deadline.
func (c *Clock) Limited() bool { return !c.deadline.IsZero() }

// Limit is what the deadline was set with.
func (c *Clock) Limit() time.Duration { return c.limit }

// Due reports whether the deadline has passed, or there is none.
func (c *Clock) Due(now time.Time) bool { return !now.Before(c.deadline) }

// DeadlineNs is the deadline as a recovery shows it, 0 = none.
func (c *Clock) DeadlineNs() int64 {
	if !c.Limited() {
		return 0
	}
	return c.deadline.UnixNano()
}

// Entered is when the state began.
func (c *Clock) Entered() time.Time { return c.entered }

// Spent is the time in the state so far.
func (c *Clock) Spent(now time.Time) time.Duration {
	return now.Sub(c.entered)
}

// Idle is the time since the newest answer.
func (c *Clock) Idle(now time.Time) time.Duration {
	return now.Sub(c.moved)
}
