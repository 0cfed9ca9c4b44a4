package shift

import "math"

// Nothing is proven before the noise is known, which takes some hundred points. A change that
// comes in this time would be taken for a part of the noise and never be reported: so the level
// before it is kept, the noise is learned from the points after it, and then the two are compared.

const (
	earlyPoints = 24 // a change must last before the level is kept
	earlyBlocks = 2  // needed for that level
	earlyProof  = 8  // number of the length, 64 points, that the comparison is made with
)

// early is a change that was seen before the noise was known. The zero value is none.
type early struct {
	index int     // first point after it
	level float64 // before it
	parts int     // blocks of that level
}

// lookEarly looks for a change that can't be proven yet and, once the noise is known, compares
// the level now with the one before it.
func (w *Watch) lookEarly() (Change, bool) {
	switch {
	case w.next%blockOf != 0:
	case !w.scales[earlyProof].isKnown():
		w.suspectEarly()
	case w.early.parts > 0 && w.next-lengths[earlyProof] >= w.from:
		return w.proveEarly()
	}
	return Change{}, false
}

// suspectEarly keeps the level before a change that lasts, and has the points after it alone
// learned from. Of several such changes the level before the first one counts.
func (w *Watch) suspectEarly() {
	i := w.next - earlyPoints
	if i < w.from {
		return
	}
	before, parts := w.reference(i, refBlocks)
	if parts < earlyBlocks {
		return
	}
	after := w.level(i)
	if math.Abs(after-before) < floorShare*w.cfg.Floor || !w.lasts(i, before, after) {
		return
	}
	index := w.place(i, before, after)
	if w.early.parts == 0 && index >= w.acted {
		w.early = early{index, before, parts}
	}
	w.restart(index)
}

func (w *Watch) proveEarly() (Change, bool) {
	e := w.early
	n := lengths[earlyProof]
	after := w.level(w.next - n)
	off := math.Abs(after - e.level)
	w.early = early{}
	if e.index < w.acted { // the level since is the action's
		return Change{}, false
	}
	if off < w.least(earlyProof, e.parts) ||
		n < w.pointsFor(off, w.roughness(w.next-n, after)) {
		return Change{}, false
	}
	return Change{Index: e.index, Before: msOf(e.level), After: msOf(after), Points: w.next - e.index}, true
}
