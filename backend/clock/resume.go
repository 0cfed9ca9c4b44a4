package clock

import "time"

// Basis is what says how much time has passed between two processes.
type Basis uint8

// The bases.
const (
	ByNothing Basis = iota // the process before left no mark
	ByBoot                 // the boot clock of the same boot
	ByWall                 // the wall clock: another boot, or another machine
	// the wall clock is behind what the process before has written: none is taken to have passed
	ByWallBack
	ByWallMost // the wall clock says more than ElapsedMost: that much is taken to have passed
)

// Gap is the time between two processes.
type Gap struct {
	Basis   Basis
	Elapsed time.Duration // since the newest record of the process before
	Said    time.Duration // what the wall clock says has passed; negative where it is behind
}

// Resume begins a clock that goes on with the time of an earlier process: with its
// newest mark, nil for none, and the newest steady time that it has written (Unix
// ns), before which this clock never is.
func Resume(read Source, mark *Mark, newestNs int64) (*Clock, Gap) {
	r := read()
	c := &Clock{read: read, since: r.Since}
	newest := time.Unix(0, newestNs)
	gap := gapOf(r, mark, newest)
	c.steady = newest.Add(gap.Elapsed)
	if gap.Basis == ByNothing && r.Wall.After(newest) {
		c.steady = r.Wall.Round(0)
	}
	c.offset = r.Wall.Sub(c.steady)
	if c.offset.Abs() >= driftShown {
		c.shown = c.offset
	}
	return c, gap
}

func gapOf(r Reading, mark *Mark, newest time.Time) Gap {
	if mark == nil {
		return Gap{Said: r.Wall.Sub(newest), Elapsed: max(r.Wall.Sub(newest), 0)}
	}
	said := r.Wall.Sub(newest.Add(time.Duration(mark.OffsetNs)))
	passed := r.Since - time.Duration(mark.SinceNs)
	if mark.BootID != "" && mark.BootID == r.BootID && passed >= 0 {
		now := time.Unix(0, mark.SteadyNs).Add(passed)
		return Gap{
			Basis:   ByBoot,
			Said:    said,
			Elapsed: max(now.Sub(newest), 0),
		}
	}
	switch {
	case said < 0:
		return Gap{Basis: ByWallBack, Said: said}
	case said > ElapsedMost:
		return Gap{Basis: ByWallMost, Said: said, Elapsed: ElapsedMost}
	}
	return Gap{Basis: ByWall, Said: said, Elapsed: said}
}
