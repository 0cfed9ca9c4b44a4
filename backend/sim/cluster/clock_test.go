package cluster

import (
	"fmt"
	"testing"
	"time"

	steady "github.com/failslow/falcon/backend/clock"
)

// clock is a machine's: a wall clock that may step, drift and stop, and beside it a
// monotonic one that only stands while the machine is paused with its kernel.
type clock struct {
	w      *World
	offset time.Duration // of the wall clock, up to since
	rate   float64       // by which it gains from then on
	since  time.Duration
	stops  []stop
	boots  int
	boot   string // the id of boot number boots, made once for many looks
}

// stop is a time in which the monotonic clock stood.
type stop struct{ at, last time.Duration }

// stopOpen is a stop's length while it lasts.
const stopOpen = 1 << 62

// bootAge is what the monotonic clock shows when a run begins.
const bootAge = time.Hour

// offMost bounds how far a wall clock may be off.
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
func (k *clock) stand() {
	k.stops = append(k.stops, stop{k.w.now, stopOpen})
}

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

// wall is what the wall clock shows.
func (k *clock) wall() time.Time {
	return epoch.Add(k.w.now + k.off())
}

// read is one look at both clocks, as a process of the machine takes it.
func (k *clock) read() steady.Reading {
	if k.boot == "" {
		k.boot = fmt.Sprint("boot ", k.boots)
	}
	return steady.Reading{
		Wall:   k.wall(),
		Since:  k.mono(k.w.now),
		BootID: k.boot,
	}
}

// reboot begins the monotonic clock again.
func (k *clock) reboot() {
	k.run()
	k.boots++
	k.boot = ""
	k.stops = append(k.stops[:0], stop{
		at:   -bootAge,
		last: k.w.now + bootAge - time.Second,
	})
}

// The wall clock steps, drifts and stands; the monotonic one does not, but while its machine is
// paused.
func TestClock(t *testing.T) {
	w := newWorld(1)
	k := &clock{w: w}
	k.step(-20 * 365 * 24 * time.Hour)
	w.now = 10 * time.Second
	k.drift(-1)
	w.now = 15 * time.Second
	if got, want := k.wall(), epoch.Add(10*time.Second-20*365*24*time.Hour); !got.Equal(want) {
		t.Errorf("the wall clock shows %v, want %v", got, want)
	}
	if got, want := k.mono(w.now), bootAge+15*time.Second; got != want {
		t.Errorf("the monotonic clock shows %v, want %v", got, want)
	}
	k.stand()
	w.now = 25 * time.Second
	k.run()
	if got, want := k.mono(w.now), bootAge+15*time.Second; got != want {
		t.Errorf("after a pause the monotonic clock shows %v, want %v", got, want)
	}
	k.reboot()
	w.now = 26 * time.Second
	if got, want := k.mono(w.now), 2*time.Second; got != want {
		t.Errorf("after a start of the machine the monotonic clock shows %v, want %v", got, want)
	}
}
