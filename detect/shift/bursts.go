package shift

import "math"

// bursts are the newest changes that ended by themselves, reported or not. A change
// of at most their size must last longer than they did.
type bursts struct {
	kept  [burstsKept]burst
	n     int
	doubt burst // current burst, from the first window with it
}

// burst is a change that did not last.
type burst struct {
	from, to int     // first and last index of its points
	off      float64 // largest change in a window
}

const (
	burstsKept   = 8
	burstForget  = 4096 // points after which a burst is forgotten
	burstLarger  = 1.25 // a change this much larger than a burst is unrelated to it
	burstLonger  = 1.5  // a change must last this much longer than a burst
	burstReturns = 96   // a reported change that ends within these points was a burst
)

// suspect records a window with a change.
func (b *bursts) suspect(from, to int, off float64) {
	if b.doubt.off == 0 || from > b.doubt.to {
		b.end()
		b.doubt.from = from
	}
	b.doubt.to = to
	b.doubt.off = max(b.doubt.off, off)
}

// end stores the current burst.
func (b *bursts) end() {
	if b.doubt.off > 0 {
		b.kept[b.n%burstsKept] = b.doubt
		b.n++
	}
	b.doubt = burst{}
}

// report drops the current burst, which is a change. With over, the level before
// it is back, and c is stored as a burst.
func (b *bursts) report(c burst, over bool) {
	b.doubt = burst{}
	if over {
		b.doubt = c
		b.end()
	}
}

// pointsFor returns how long a change must last because of recent bursts.
func (b *bursts) pointsFor(off float64, now int) int {
	n := 0.0
	for _, k := range b.kept {
		if k.off > 0 &&
			now-k.to < burstForget &&
			math.Abs(off) < burstLarger*k.off {
			n = max(n, burstLonger*float64(k.to-k.from+1))
		}
	}
	return int(n)
}
