package shift

import (
	"cmp"
	"math"
)

// Config sets which changes are reported. Zero fields mean the defaults.
type Config struct {
	Floor float64 // smallest change to report, as a share of the level; 0.02
	Rate  float64 // highest rate of false alarms per iteration; 2e-5
}

// Defaults of Config.
const (
	DefaultFloor = 0.02
	DefaultRate  = 2e-5
)

// LeastOf is the smallest change that a watch with a floor reports, allowing for
// noise; floor 0 means the default.
func LeastOf(floor float64) float64 {
	return floorShare * cmp.Or(floor, DefaultFloor)
}

// Change is a proven change. Indexes count observations from 0.
type Change struct {
	Index         int     // first observation of the new level
	Before, After float64 // levels
	Points        int     // points that proved it
	Drift         bool    // it was gradual
}

const (
	blockOf     = 8    // points per block
	stepsLeast  = 8    // differences needed to measure the clock's resolution
	pointsKept  = 256  // newest points
	blocksKept  = 64   // newest blocks
	refBlocks   = 16   // blocks for the level before a change
	refLeast    = 4    // blocks needed for it
	rawMost     = 16   // longest window that is compared by points, longer ones by blocks
	floorShare  = 0.8  // share of Floor from which a change counts, because of noise
	trustLag    = 24   // newest points that are not trusted, because changes are detected late
	suspectMost = 160  // longest time for which a suspected change suspends learning
	lookBack    = 2    // a change is located within this many window lengths
	newestPart  = 5    // newest points, most of which must be beyond the midpoint
	largeEnough = 0.18 // change that the noise never explains
)

// lengths are the compared windows, in points. The first measures the noise of single
// points and proves no change.
var lengths = [...]int{1, 5, 8, 12, 16, 24, 32, 48, 64, 96, 128}

// Watch finds small changes in one series.
type Watch struct {
	cfg    Config
	points [pointsKept]float64 // logarithms, by index
	blocks [blocksKept]float64 // their levels, by number
	next   int                 // index of the next point
	from   int                 // first index of the current level
	step   float64             // smallest difference of two points: the clock's resolution
	steps  int                 // pairs of neighbours that differ
	scales [len(lengths)]scale
	slow   memory
	bursts bursts
	left   float64 // logarithm of the level before the current one
	doubt  int     // index from which points may belong to a new level
	early  early   // a change that came before the noise was known
	acted  int     // index from which an action determines the level
}

// New returns an empty watch.
func New(cfg Config) *Watch {
	cfg.Floor = cmp.Or(cfg.Floor, DefaultFloor)
	cfg.Rate = cmp.Or(cfg.Rate, DefaultRate)
	w := &Watch{cfg: cfg, step: math.Inf(1)}
	for i := range w.scales {
		w.scales[i].allow = cfg.Rate * float64(lengths[i]) / looksPer / float64(len(lengths))
	}
	return w
}

// Observe adds a point and returns the change that it proves, if any.
func (w *Watch) Observe(ms float64) (Change, bool) {
	x := math.Log(ms)
	last := w.points[(w.next+pointsKept-1)%pointsKept]
	if math.IsNaN(x) || math.IsInf(x, 0) {
		x = last
	}
	if off := math.Abs(x - last); off > 0 && w.next > 0 {
		w.step = min(w.step, off)
		w.steps++
	}
	w.points[w.next%pointsKept] = x
	w.next++
	if w.next%blockOf == 0 {
		w.blocks[(w.next/blockOf-1)%blocksKept] = w.pointLevel(w.next-blockOf, w.next)
		w.slow.add(w.blocks[(w.next/blockOf-1)%blocksKept], w.next)
	}
	c, found := w.look()
	if !found {
		c, found = w.lookBackward()
	}
	if !found {
		c, found = w.lookEarly()
	}
	return c, found
}

// SetLevel starts a new level at an index. If the series soon returned to the level
// before, the change between was a burst.
func (w *Watch) SetLevel(index int) {
	before, parts := w.reference(index, refBlocks)
	switch {
	case parts > 0:
	case index > w.from && w.next-index < pointsKept-rawMost:
		before = w.pointLevel(max(w.from, index-rawMost), index)
	default:
		before = math.NaN() // no longer stored
	}
	now := w.pointLevel(max(index, w.next-rawMost), w.next)
	over := index-w.from <= burstReturns && math.Abs(now-w.left) < math.Abs(now-before)/2
	w.bursts.report(burst{w.from, index - 1, math.Abs(before - w.left)}, over && w.from > 0)
	w.left = before
	w.early = early{}
	w.restart(index)
}

// Act tells that an action determines the level from an index on: it is not compared with a
// level that was kept from before.
func (w *Watch) Act(index int) {
	w.acted = index
}

// restart has the level begin at an index: nothing is learned from comparisons with points
// before it.
func (w *Watch) restart(index int) {
	w.from, w.doubt = index, index
	for i := range w.scales {
		w.scales[i].forget(index)
	}
	w.slow.reset()
}

// look compares the newest points with those before, shortest window first.
func (w *Watch) look() (Change, bool) {
	suspect := false
	for k, n := range lengths {
		i := w.next - n
		if n > rawMost && w.next%blockOf != 0 || i < w.from {
			continue
		}
		before, parts := w.reference(i, refBlocks)
		if parts < refLeast {
			if c, found := w.lookYoung(k, i); found {
				return c, true
			}
			continue
		}
		after := w.level(i)
		off := math.Abs(after - before)
		lasts := w.lasts(i, before, after)
		w.sample(k, off, lasts)
		if n < pointsLeast || off < floorShare*w.cfg.Floor || !lasts {
			continue
		}
		suspect = true
		w.bursts.suspect(i, w.next-1, off)
		if off >= w.least(k, parts) && n >= w.pointsFor(off, w.roughness(i, after)) {
			return Change{
				Index:  w.place(i, before, after),
				Before: msOf(before),
				After:  msOf(after),
				Points: n,
			}, true
		}
	}
	w.trust(suspect)
	return Change{}, false
}

// msOf is a level in milliseconds; that of the largest number would be infinite.
func msOf(level float64) float64 {
	return min(math.Exp(level), math.MaxFloat64)
}

// trust updates which points belong to the current level. Suspect points are not
// learned from; a change that is not proven in time is noise.
func (w *Watch) trust(suspect bool) {
	if !suspect && (w.next%blockOf == 0 || w.next-w.doubt <= trustLag) ||
		w.next-w.doubt > suspectMost {
		w.doubt = max(w.doubt, w.next-trustLag)
	}
}

// pointsFor is how many points a change must last. A few hundred points can't measure
// rare bursts, so a change that is small against the noise of single points, before
// or within it, must last longer.
func (w *Watch) pointsFor(off, own float64) int {
	return max(
		w.pointsByNoise(off/max(w.scales[0].spread*normalMean, own), off),
		w.bursts.pointsFor(off, w.next),
	)
}

func (w *Watch) pointsByNoise(times, off float64) int {
	switch {
	case times >= 12 && off >= 0.05:
		return pointsLeast
	case times >= 8 && off >= 0.03:
		return 8
	case times >= 5.5:
		return 12
	case times >= 4:
		return 16
	}
	return 24
}

const (
	pointsLeast = 5
	normalMean  = 1.25 // standard deviation of normal noise, in mean absolute deviations
	ownNoise    = 1.1  // allowance for few points, which may be rough by chance
)

// roughness is the noise of the points from i around their level. Bursts are rougher
// than the series.
func (w *Watch) roughness(i int, level float64) float64 {
	sum := 0.0
	for j := i; j < w.next; j++ {
		sum += min(math.Abs(w.points[j%pointsKept]-level), roughMost)
	}
	return ownNoise * sum / float64(w.next-i)
}

const roughMost = 0.1 // limit for one point, such as a pause

// least is the smallest change that a window of length k proves, compared with parts
// blocks.
func (w *Watch) least(k, parts int) float64 {
	few := 1.0
	if n := float64(lengths[k]); parts < refBlocks {
		few = math.Sqrt((1/n + 1/float64(parts*blockOf)) / (1/n + 1.0/(refBlocks*blockOf)))
	}
	noise := few * w.threshold(k)
	floor := max(w.cfg.Floor-2*w.scales[k].spread, floorShare*w.cfg.Floor)
	return max(noise, floor) + w.resolution()
}

// resolution is the largest difference of two levels due to a coarse clock.
func (w *Watch) resolution() float64 {
	if w.steps < stepsLeast || w.step < 1e-3 {
		return 0
	}
	return w.step
}

// Explains reports whether the noise of the series explains a change of level that
// began points ago. It is false for a large change and while the noise is not known.
func (w *Watch) Explains(before, after float64, points int) bool {
	off := math.Abs(math.Log(after / before))
	if math.IsNaN(off) || off >= math.Log1p(largeEnough) {
		return false
	}
	k := 0
	for k+1 < len(lengths) && lengths[k+1] <= points {
		k++
	}
	if w.scales[k].own < fitLeast {
		return false
	}
	i := max(w.next-min(points, pointsKept), 0)
	return off < w.usual(k) || points < w.pointsFor(off, w.roughness(i, math.Log(after)))
}

// IsOff reports whether the difference of two levels is large enough to report.
func (w *Watch) IsOff(before, after float64) bool {
	return math.Abs(math.Log(after/before)) >= floorShare*w.cfg.Floor
}

// level is the level of the points from i: the mean without the lowest and the
// highest quarter, so that a pause in four points has no effect and a coarse clock
// little.
func (w *Watch) level(i int) float64 {
	if w.next-i <= rawMost {
		return w.pointLevel(i, w.next)
	}
	var buf [lengths128 / blockOf]float64
	n := 0
	for b := i / blockOf; b < w.next/blockOf; b++ {
		buf[n] = w.blocks[b%blocksKept]
		n++
	}
	return middleMean(buf[:n])
}

const lengths128 = 128 // the last of lengths

func (w *Watch) pointLevel(from, to int) float64 {
	var buf [rawMost]float64
	for i := from; i < to; i++ {
		buf[i-from] = w.points[i%pointsKept]
	}
	return middleMean(buf[:to-from])
}

// reference is the level of up to most blocks before index i, and their number.
func (w *Watch) reference(i, most int) (level float64, parts int) {
	var buf [refBlocks]float64
	last := i / blockOf
	first := max(
		(w.from+blockOf-1)/blockOf,
		last-min(most, refBlocks),
		w.next/blockOf-blocksKept,
	)
	for b := first; b < last; b++ {
		buf[parts] = w.blocks[b%blocksKept]
		parts++
	}
	if parts == 0 {
		return 0, 0
	}
	return middleMean(buf[:parts]), parts
}

// middleMean is the mean of values without the lowest and the highest quarter. It
// sorts them.
func middleMean(values []float64) float64 {
	for i := 1; i < len(values); i++ { // insertion sort is fastest for few values
		for k := i; k > 0 && values[k] < values[k-1]; k-- {
			values[k], values[k-1] = values[k-1], values[k]
		}
	}
	cut := len(values) / 4
	sum := 0.0
	for _, v := range values[cut : len(values)-cut] {
		sum += v
	}
	return sum / float64(len(values)-2*cut)
}

// lasts reports whether nearly all points (or blocks, in long windows) from i are
// beyond the midpoint, with most of the newest points, and most before i are not.
func (w *Watch) lasts(i int, before, after float64) bool {
	middle := (before + after) / 2
	up := after > before
	beyond := func(x float64) bool { return (x > middle) == up }
	if newest := w.countPoints(w.next-newestPart, w.next, beyond); newest < newestPart-1 {
		return false
	}
	n := w.next - i
	if n <= rawMost {
		if w.countPoints(i, w.next, beyond) < n-n/8 {
			return false
		}
	} else {
		b := w.countBlocks(i/blockOf, w.next/blockOf, beyond)
		if n /= blockOf; b < n-n/5 {
			return false
		}
	}
	last := i / blockOf
	first := max((w.from+blockOf-1)/blockOf, last-refBlocks)
	return 4*w.countBlocks(first, last, beyond) <= last-first
}

func (w *Watch) countPoints(from, to int, is func(float64) bool) int {
	n := 0
	for i := from; i < to; i++ {
		if is(w.points[i%pointsKept]) {
			n++
		}
	}
	return n
}

func (w *Watch) countBlocks(from, to int, is func(float64) bool) int {
	n := 0
	for b := from; b < to; b++ {
		if is(w.blocks[b%blocksKept]) {
			n++
		}
	}
	return n
}

// place is the most likely first index of the change: the minimum of the sum of the
// points' distances from the midpoint, each limited to the size of the change.
func (w *Watch) place(i int, before, after float64) int {
	middle := (before + after) / 2
	half := (after - before) / 2
	oldest := max(w.from, i-lookBack*(w.next-i), w.next-pointsKept)
	sum, least, at := 0.0, 0.0, oldest
	for j := oldest; j < w.next; j++ {
		sum += min(max((w.points[j%pointsKept]-middle)/half, -1), 1)
		if sum < least {
			least = sum
			at = j + 1
		}
	}
	return min(at, w.next-1)
}
