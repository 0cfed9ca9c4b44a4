package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/failslow/falcon/backend/clock"
)

// envClock names the file that says by how much the engine's wall clock is ahead: a duration.
const envClock = "FALCON_LAB_CLOCK"

const (
	clockFile  = "clock"                    // in the lab's folder
	clockMost  = 100 * 365 * 24 * time.Hour // that a clock may be off
	clockEvery = 10 * time.Millisecond      // between two looks at the file
)

// StepClock steps the wall clock that the engine sees. Its boot clock goes on, as that of a
// machine does whose date is set.
func (t Trouble) StepClock(by time.Duration) error {
	off := t.lab.clockOff.Load() + int64(by)
	if by.Abs() > clockMost || time.Duration(off).Abs() > clockMost {
		return fmt.Errorf("lab: the clock would be off by more than %s; give a smaller step", clockMost)
	}
	t.lab.clockOff.Store(off)
	return replaceFile(filepath.Join(t.lab.place.dir, clockFile), time.Duration(off).String())
}

// EmulatedClock is read with the steps that the lab asks for, in a process that a lab has
// started; read itself in any other.
func EmulatedClock(read clock.Source) clock.Source {
	file := os.Getenv(envClock)
	if file == "" || !IsBelow() {
		return read
	}
	c := &steppedClock{file: file, read: read}
	return c.look
}

// steppedClock is a machine's clock whose wall clock is off by what a file says.
type steppedClock struct {
	file string
	read clock.Source

	mu     sync.Mutex // guards what follows
	looked time.Duration
	off    time.Duration
}

func (c *steppedClock) look() clock.Reading {
	r := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looked == 0 || r.Since-c.looked >= clockEvery {
		c.looked = r.Since
		text, _ := os.ReadFile(c.file) // none = no step
		if off, err := time.ParseDuration(strings.TrimSpace(string(text))); err == nil {
			c.off = off
		}
	}
	r.Wall = r.Wall.Add(c.off)
	return r
}
