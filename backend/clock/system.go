package clock

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// tornAfter is how far apart the two clocks may be read.
const (
	tornAfter = time.Millisecond
	readTries = 4
)

// System reads this machine's clocks.
func System() Reading {
	r := Reading{BootID: BootID()}
	for range readTries {
		before := bootClock()
		r.Wall = time.Now().Round(0)
		r.Since = bootClock()
		if r.Torn = r.Since-before > tornAfter; !r.Torn {
			break
		}
	}
	return r
}

func bootClock() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // every kernel has it
	}
	return time.Duration(ts.Nano())
}

// BootID is new for every boot of the machine, "" where the kernel does not say. It is
// read once: it is the same for the life of a process.
var BootID = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
})

var process = sync.OnceValue(func() *Clock { return New(System) })

// Process is the clock of this process, which begins at its first use.
func Process() *Clock { return process() }

// Now is the time of this process's clock.
func Now() time.Time { return Process().Now() }
