package shift

import "math"

// bursts are the newest changes that were over by themselves, told or not: what is
// no larger must last longer than they did.
type bursts struct {
	kept  [burstsKept]burst
	n     int
	doubt burst // that lasts, from the first window that showed it
}

// burst is a change that did not last.
type burst struct {
	from, to int     // first and last index of its points
	off      float64 // greatest change that a window showed
}

const (
	burstsKept   = 8
	burstForget  = 4096 // points after which a burst says nothing any more
	burstLarger  = 1.25 // times a burst from which a change is another thing
	burstLonger  = 1.5  // times as long as a burst from which a change is
	burstReturns = 96   // points within which a told change that is over was a burst
)

// suspect notes a window that shows a change.
func (b *bursts) suspect(from, to int, off float64) {
	if b.doubt.off == 0 || from > b.doubt.to {
		b.end()
		b.doubt.from = from
	}
	b.doubt.to, b.doubt.off = to, max(b.doubt.off, off)
}

// end remembers the burst that lasted.
func (b *bursts) end() {
	if b.doubt.off > 0 {
		b.kept[b.n%burstsKept] = b.doubt
		b.n++
	}
	b.doubt = burst{}
}

// told forgets the burst that turned out to be a change; was it over by itself
// soon, it is remembered as one.
func (b *bursts) told(c burst, over bool) {
	b.doubt = burst{}
	if over {
		b.doubt = c
		b.end()
	}
}

// pointsFor is how long a change must last at a time because bursts did.
func (b *bursts) pointsFor(off float64, now int) int {
	n := 0.0
	for _, k := range b.kept {
		if k.off > 0 && now-k.to < burstForget && math.Abs(off) < burstLarger*k.off {
			n = max(n, burstLonger*float64(k.to-k.from+1))
		}
	}
	return int(n)
}
