package detect

import (
	"math"
	"slices"
)

// timeRing holds the newest iteration times of one series, and the iteration of each. Whole,
// a time is as a float32 has it. Narrow, it takes two bytes, and is off by 1/4096 at most:
// thousands of ranks have one each, for charts alone. It grows with what it holds.
type timeRing struct {
	limit  int
	seen   int // values taken in; value i lies at i % cap
	whole  []float32
	narrow []uint16
	isThin bool
	last   float32 // the newest value

	// Iterations go on by one from value to value, but for the gaps.
	origin int64 // iteration of value 0, as if there were none of the gaps that are forgotten
	gaps   []gap
}

// gap is where iterations are missing.
type gap struct {
	index int // first value after it
	by    int64
}

// held is how many values there are.
func (r *timeRing) held() int {
	return min(r.seen, r.limit)
}

// oldest is the index of the first value held.
func (r *timeRing) oldest() int { return r.seen - r.held() }

func (r *timeRing) push(iteration int64, ms float64) {
	if r.seen == 0 {
		r.origin = iteration
	} else if by := iteration - r.iteration(r.seen-1) - 1; by != 0 {
		r.gaps = append(r.gaps, gap{r.seen, by})
	}
	r.last = float32(ms)
	if r.isThin {
		r.narrow = putAt(r.narrow, r.seen, r.limit, narrowed(r.last))
	} else {
		r.whole = putAt(r.whole, r.seen, r.limit, r.last)
	}
	r.seen++
	for len(r.gaps) > 0 && r.gaps[0].index <= r.oldest() {
		r.origin += r.gaps[0].by
		r.gaps = slices.Delete(r.gaps, 0, 1)
	}
}

// ringLeast is what a ring begins with.
const ringLeast = 64

// putAt sets value i of a ring, which doubles up to its limit: append would pass it.
func putAt[T any](ring []T, i, limit int, v T) []T {
	if i >= limit {
		ring[i%limit] = v
		return ring
	}
	if len(ring) == cap(ring) {
		grown := make([]T, len(ring), min(limit, max(ringLeast, 2*cap(ring))))
		copy(grown, ring)
		ring = grown
	}
	return append(ring, v)
}

// iteration is that of a value, the oldest's for those that are gone.
func (r *timeRing) iteration(index int) int64 {
	index = max(index, r.oldest())
	at := r.origin + int64(index)
	for _, g := range r.gaps {
		if g.index <= index {
			at += g.by
		}
	}
	return at
}

func (r *timeRing) valueAt(index int) float64 {
	switch {
	case index == r.seen-1:
		return float64(r.last)
	case r.isThin:
		return float64(widened(r.narrow[index%r.limit]))
	}
	return float64(r.whole[index%r.limit])
}

// A narrow value has the 11 highest bits of a float32's fraction and 5 of its exponent: from
// 2^-6 ms to 2^25 ms, which are 9 hours.
const (
	narrowBy    = 23 - 11
	narrowLeast = (127 - 6) << 11
)

func narrowed(ms float32) uint16 {
	bits := int64(math.Float32bits(ms)+1<<(narrowBy-1))>>narrowBy - narrowLeast
	return uint16(min(max(bits, 0), math.MaxUint16))
}

func widened(v uint16) float32 {
	return math.Float32frombits((uint32(v) + narrowLeast) << narrowBy)
}
