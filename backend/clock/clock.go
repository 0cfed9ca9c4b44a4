package clock

import (
	"sync"
	"time"
)

// StepLeast is the least change of the wall clock against the boot clock between
// two looks that counts as a step: a clock that is disciplined slowly changes by
// less than a millisecond a second.
const StepLeast = 500 * time.Millisecond

// ElapsedMost bounds the time that is taken to have passed where only the wall
// clock says how much did: over a boot of the machine, or on another machine.
const ElapsedMost = 7 * 24 * time.Hour

// Reading is one look at a machine's clocks.
type Reading struct {
	Wall   time.Time     // may step
	Since  time.Duration // since the machine's boot, suspended or not
	BootID string        // new for every boot; "" = not known
	Torn   bool          // the two were not read together: not good for finding a step
}

// Source reads a machine's clocks. It may be called from any goroutine.
type Source func() Reading

// Wall makes a source of a wall clock alone, which must not step: for tests and
// for owners that schedule time themselves.
func Wall(now func() time.Time) Source {
	return func() Reading {
		at := now()
		return Reading{
			Wall:   at,
			Since:  time.Duration(at.UnixNano()),
			BootID: "given",
		}
	}
}

// Mark ties steady time to a boot clock: what the next process goes on with.
type Mark struct {
	SteadyNs int64  `json:"steady_unix_ns"`
	SinceNs  int64  `json:"since_boot_ns"`
	OffsetNs int64  `json:"offset_ns"` // wall clock minus steady time at that moment
	BootID   string `json:"boot,omitempty"`
}

// Step is a change of the wall clock against the boot clock.
type Step struct {
	By     time.Duration
	Offset time.Duration // of the wall clock against steady time since the step
}

// Clock is the time of one process. Now and Offset may be called from any
// goroutine, Look from one.
type Clock struct {
	read   Source
	steady time.Time // at since
	since  time.Duration

	lock   sync.Mutex
	offset time.Duration // of the wall clock, as of the newest look
	shown  time.Duration // the same, and unchanged while it hardly changes
}

// driftShown is how far a slowly corrected wall clock goes before Offset follows it.
const driftShown = 100 * time.Millisecond

// New begins a clock at the wall clock's time.
func New(read Source) *Clock {
	r := read()
	return &Clock{read: read, steady: r.Wall.Round(0), since: r.Since}
}

// Now is the steady time.
func (c *Clock) Now() time.Time {
	return c.at(c.read())
}

func (c *Clock) at(r Reading) time.Time {
	return c.steady.Add(max(r.Since-c.since, 0))
}

// Offset is the wall clock minus steady time, as of the newest look and to a tenth of a
// second: what is added to a steady time to show it to a person. It is 0 as long as the
// wall clock was not set.
func (c *Clock) Offset() time.Duration {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.shown
}

// Look compares the wall clock with steady time and reports whether it has stepped
// since the last look. A slow correction is followed and is no step.
func (c *Clock) Look() (Step, bool) {
	r := c.read()
	if r.Torn {
		return Step{}, false
	}
	offset := r.Wall.Sub(c.at(r))
	c.lock.Lock()
	defer c.lock.Unlock()
	by := offset - c.offset
	c.offset = offset
	if (offset - c.shown).Abs() >= driftShown {
		c.shown = offset
	}
	return Step{By: by, Offset: offset}, by.Abs() >= StepLeast
}

// Mark is the clock as it is now.
func (c *Clock) Mark() Mark {
	r := c.read()
	return Mark{
		SteadyNs: c.at(r).UnixNano(),
		SinceNs:  int64(r.Since),
		OffsetNs: int64(c.Offset()),
		BootID:   r.BootID,
	}
}
