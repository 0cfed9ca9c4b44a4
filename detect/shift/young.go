package shift

import "math"

// A level that has just begun has too few blocks to be compared with. A change that comes in
// this time would become a part of it and never be reported: so a change that is well above
// the noise, which is known from the levels before, is proven by the level's first points.

const (
	youngLeast = 5    // points of a level that another one is compared with
	youngFloor = 0.04 // smallest change that they prove
	youngDoubt = 1.5  // how much larger than by noise alone, as neighbours are alike
)

// lookYoung compares the newest n points with the first points of a level that has less than
// refLeast blocks.
func (w *Watch) lookYoung(k, i int) (Change, bool) {
	n := lengths[k]
	first := max(w.from, i-rawMost)
	if w.from == 0 ||
		i-first < youngLeast ||
		n < 8 ||
		n > rawMost ||
		!w.scales[k].isKnown() {
		return Change{}, false
	}
	before := w.pointLevel(first, i)
	after := w.level(i)
	off := math.Abs(after - before)
	few := math.Sqrt((1/float64(n) + 1/float64(i-first)) / (1/float64(n) + 1.0/(refBlocks*blockOf)))
	if off < max(youngFloor, few*youngDoubt*w.threshold(k))+w.resolution() ||
		n < w.pointsFor(off, w.roughness(i, after)) ||
		!w.lasts(i, before, after) {
		return Change{}, false
	}
	middle := (before + after) / 2
	up := after > before
	if 4*w.countPoints(first, i, func(x float64) bool {
		return (x > middle) == up
	}) > i-first {
		return Change{}, false
	}
	return Change{Index: w.place(i, before, after), Before: msOf(before), After: msOf(after), Points: n}, true
}
