package lab

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/failslow/falcon/backend/clock"
)

// The engine of a lab sees the steps that it was asked for, and no other process does.
func TestEmulatedClock(t *testing.T) {
	l, _ := troubled(t)
	began := time.Unix(1_700_000_000, 0)
	since := time.Hour
	machine := func() clock.Reading {
		return clock.Reading{Wall: began, Since: since, BootID: "a"}
	}
	t.Setenv(envDir, l.place.dir)
	if got := EmulatedClock(machine)(); !got.Wall.Equal(began) {
		t.Errorf("without a lab's file the clock says %v", got.Wall)
	}
	t.Setenv(envClock, filepath.Join(l.place.dir, clockFile))
	c := EmulatedClock(machine)
	if got := c(); !got.Wall.Equal(began) || got.Since != since {
		t.Errorf("before a step the clock says %+v", got)
	}
	total := time.Duration(0)
	for _, by := range []time.Duration{-30 * time.Second, 10 * 365 * 24 * time.Hour, -3 * time.Second} {
		if err := l.Trouble().carryOut(Request{Op: "step-clock", For: by}); err != nil {
			t.Fatal(err)
		}
		total += by
		since += clockEvery
		got := c()
		if !got.Wall.Equal(began.Add(total)) ||
			got.Since != since ||
			got.BootID != "a" {
			t.Errorf("after a step by %v the clock says %+v, want %v", by, got, began.Add(total))
		}
	}
	if err := l.Trouble().StepClock(clockMost); err == nil {
		t.Error("a clock may be off by any time")
	}
}
