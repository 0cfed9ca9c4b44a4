package cluster

import (
	"testing"
	"time"
	"unsafe"
)

// clock is a machine's: a wall clock that may step, drift and stop, and beside it a
// monotonic one that only stands while the machine is paused with its kernel.
type clock struct {
	w      *World
	offset time.Duration // of the wall clock, up to since
	rate   float64       // by which it gains from then on
	since  time.Duration
	stops  []stop
}

// stop is a time in which the monotonic clock stood.
type stop struct{ at, last time.Duration }

// stopOpen is a stop's length while it lasts.
const stopOpen = 1 << 62

// bootAge is what the monotonic clock shows when a run begins.
const bootAge = time.Hour

// offMost bounds how far a wall clock may be off: time.Time knows some 130 years around the
// runs' epoch beside a monotonic reading.
const offMost = 60 * 365 * 24 * time.Hour

// off is by how much the wall clock is ahead now.
func (k *clock) off() time.Duration {
	return k.offset + time.Duration(float64(k.w.now-k.since)*k.rate)
}

// step moves the wall clock.
func (k *clock) step(by time.Duration) {
	if off := k.off() + by; off.Abs() > offMost {
		by = -by
	}
	k.offset += by
}

// drift has the wall clock gain at a rate from now on: -1 is a clock that stands.
func (k *clock) drift(rate float64) {
	k.offset, k.since, k.rate = k.off(), k.w.now, rate
}

// stand and run stop the monotonic clock, and the wall clock with it, and let them go on.
func (k *clock) stand() { k.stops = append(k.stops, stop{k.w.now, stopOpen}) }

func (k *clock) run() {
	if n := len(k.stops); n > 0 && k.stops[n-1].last == stopOpen {
		k.stops[n-1].last = k.w.now - k.stops[n-1].at
		k.offset -= k.stops[n-1].last
	}
}

// mono is what the monotonic clock showed at a moment of the run.
func (k *clock) mono(at time.Duration) time.Duration {
	shown := at + bootAge
	for _, s := range k.stops {
		shown -= max(0, min(at-s.at, s.last))
	}
	return shown
}

// now is the time by both clocks, as time.Now has it.
func (k *clock) now() time.Time {
	return bothClocks(epoch.Add(k.w.now+k.off()), k.mono(k.w.now))
}

// rawTime is time.Time as Go lays it out. With the highest bit of wall set, wall holds 33 bits of
// seconds since 1885 and 30 of nanoseconds, and ext the monotonic reading.
type rawTime struct {
	wall uint64
	ext  int64
	loc  *time.Location
}

const (
	hasMono   = 1 << 63
	nanosBits = 30
)

var year1885 = time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()

// bothClocks is a time with a monotonic reading, which the time package only makes of this
// machine's own clocks.
func bothClocks(wall time.Time, mono time.Duration) time.Time {
	raw := rawTime{
		wall: hasMono | uint64(wall.Unix()-year1885)<<nanosBits | uint64(wall.Nanosecond()),
		ext:  int64(mono), loc: time.Local,
	}
	return *(*time.Time)(unsafe.Pointer(&raw))
}

// A time of both clocks is what the time package makes of it: its wall clock steps, and
// differences do not.
func TestBothClocks(t *testing.T) {
	w := newWorld(1)
	k := &clock{w: w}
	was := k.now()
	w.now = 10 * time.Second
	k.step(-20 * 365 * 24 * time.Hour)
	now := k.now()
	if got := now.Sub(was); got != 10*time.Second {
		t.Errorf("the difference is %v, want 10s", got)
	}
	if got, want := now.UnixNano(), epoch.Add(10*time.Second-20*365*24*time.Hour).UnixNano(); got != want {
		t.Errorf("the wall clock shows %d, want %d", got, want)
	}
	if got := now.Add(time.Minute).Sub(was); got != 70*time.Second {
		t.Errorf("a sum has lost its monotonic reading: %v", got)
	}
	k.stand()
	w.now = 15 * time.Second
	k.run()
	if got := k.now().Sub(now); got != 0 {
		t.Errorf("a clock that stood went on by %v", got)
	}
}
