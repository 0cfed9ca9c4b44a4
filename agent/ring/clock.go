package ring

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	seqlockTries = 64
	// A tick is between 0.05 and 20 ns: 50 MHz to 20 GHz.
	minTickNs, maxTickNs = 0.05, 20.0
)

// clock converts ticks to CLOCK_MONOTONIC by a rate taken over the whole life
// of the process, anchored at the newest calibration (at most 0.1 s old).
type clock struct {
	ticks, monoNs uint64
	tickNs        float64
	unixOffsetNs  int64
}

// MonoNs is CLOCK_MONOTONIC now, the clock of all deadlines here.
func MonoNs() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// readClock refreshes the conversion; absurd calibrations keep the last good one.
func (p *Process) readClock() error {
	m := p.mem
	startTicks := m.readUint64(hdrStartTicks)
	startMono := m.readUint64(hdrStartMonoNs)
	p.clock.unixOffsetNs = m.readInt64(hdrStartUnixNs) - int64(startMono)
	if !p.tsc {
		p.clock.tickNs = 1
		return nil
	}
	ticks, mono, ok := p.calibration()
	if !ok || ticks <= startTicks || mono <= startMono {
		return p.clockError()
	}
	rate := float64(mono-startMono) / float64(ticks-startTicks)
	if rate < minTickNs || rate > maxTickNs {
		return p.clockError()
	}
	p.clock.ticks = ticks
	p.clock.monoNs = mono
	p.clock.tickNs = rate
	return nil
}

func (p *Process) clockError() error {
	if p.clock.tickNs > 0 {
		return nil
	}
	return fmt.Errorf("%w: %s has no usable clock calibration; remove the file if its process is gone",
		ErrCorrupt, p.path)
}

func (p *Process) calibration() (ticks, mono uint64, ok bool) {
	ok = p.mem.readConsistent(hdrCalibSeq, func() {
		ticks, mono = p.mem.readUint64(hdrCalibTicks), p.mem.readUint64(hdrCalibMonoNs)
	})
	return ticks, mono, ok
}

// ticksToMono is ticks as CLOCK_MONOTONIC ns.
func (c *clock) ticksToMono(ticks uint64) int64 {
	if c.ticks == 0 {
		return int64(ticks)
	}
	return int64(c.monoNs) + int64(float64(int64(ticks-c.ticks))*c.tickNs)
}

// UnixNs turns CLOCK_MONOTONIC ns of this machine into Unix ns, by the pair of
// readings at the process's start. For display: later steps of the wall clock
// are not followed.
func (p *Process) UnixNs(monoNs int64) int64 {
	return monoNs + p.clock.unixOffsetNs
}
