package shift

import "math"

// Nothing is proven before the noise is known, which takes some hundred points. A change that
// comes in this time would be taken for a part of the noise and never be told: so the level
// before it is kept, the noise is learned from the points after it, and then the two are compared.

const (
	earlyPoints = 24 // a change must last before its level is kept: one of lengths
	earlyProof  = 8  // number of the length, 64 points, that the comparison is made with
)

// early is a change that was seen before the noise was known. The zero value is none.
type early struct {
	index int     // first point after it
	level float64 // before it
	parts int     // blocks of that level
}

// isKnown reports whether the noise of comparisons of a length is known well enough to
// prove a change.
func (sc *scale) isKnown() bool { return sc.weight >= fitLeast && sc.own >= 1 }

// suspectEarly keeps the level before a change that can't be proven yet, and learns from the
// points after it alone. Of several such changes the level before the first one counts.
func (w *Watch) suspectEarly(index int, level float64, parts int) {
	if w.early.parts == 0 {
		w.early = early{index, level, parts}
	}
	w.restart(index)
}

// lookEarly compares the level now with the one before an early change, once the noise is known.
func (w *Watch) lookEarly() (Change, bool) {
	e, n := w.early, lengths[earlyProof]
	if e.parts == 0 || w.next%blockOf != 0 || w.next-n < w.from || !w.scales[earlyProof].isKnown() {
		return Change{}, false
	}
	after := w.level(w.next - n)
	off := math.Abs(after - e.level)
	w.early = early{}
	if off < w.least(earlyProof, e.parts) || n < w.pointsFor(off, w.roughness(w.next-n, after)) {
		return Change{}, false
	}
	return Change{Index: e.index, Before: msOf(e.level), After: msOf(after), Points: w.next - e.index}, true
}
