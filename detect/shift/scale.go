package shift

import (
	"math"
	"slices"
)

const (
	samplesKept = 96   // comparisons remembered for each length
	looksPer    = 3.0  // independent looks in the time of a window: they overlap
	priorOf     = 12   // comparisons that what a shorter window shows is worth
	fitLeast    = 6    // comparisons without which a length proves nothing
	slopeLeast  = 10   // comparisons that show how noise falls with the length
	slopeOff    = 0.05 // by how much less it is taken to fall
	slopeUnseen = 0.25
	winsor      = 3.0  // medians beyond which a comparison counts as that many
	spreadLeast = 1e-4 // a series without noise has some
	tailPrior   = 4.0  // excesses that the prior tail is worth
	tailMean    = 0.8  // mean excess of the prior tail, in spreads: between normal noise's 0.67 and an exponential's 1
)

// scale is what comparisons of one length come to while nothing happens.
type scale struct {
	allow     float64 // probability of exceeding the threshold that one look may have
	samples   [samplesKept]sample
	taken     int
	sampledAt int // newest comparison

	spread float64 // how far they are off on average, in it what shorter windows show
	weight float64 // comparisons that stand behind it
	own    float64 // of them of this length
	excess float64 // sum of what exceeds spread, in spreads
	beyond float64 // how many do
}

// sample is a comparison: how far its two levels were apart.
type sample struct {
	at    int32
	off   float32
	lasts bool // nearly all points were beyond the middle: it could have been told
}

// sample remembers a comparison of length k, one for each so many points, and
// learns from those that are past doubt.
func (w *Watch) sample(k int, off float64, lasts bool) {
	sc := &w.scales[k]
	if w.next-sc.sampledAt < sampleEvery(lengths[k]) {
		return
	}
	sc.samples[sc.taken%samplesKept] = sample{int32(w.next), float32(off), lasts}
	sc.taken++
	sc.sampledAt = w.next
	w.fit(k)
}

// sampleEvery is the distance of comparisons of windows of n points, and worth what
// each says: they overlap, and those of blocks can be taken every blockOf points.
func sampleEvery(n int) int {
	if n > rawMost {
		return max(n/4/blockOf, 1) * blockOf
	}
	return 4
}

func sampleWorth(n int) float64 { return min(1.5*float64(sampleEvery(n))/float64(n), 1) }

// forget drops the comparisons of what turned out to be another level.
func (sc *scale) forget(index int) {
	for sc.taken > 0 && sc.samples[(sc.taken-1)%samplesKept].at > int32(index) {
		sc.taken--
		sc.samples[sc.taken%samplesKept] = sample{}
	}
}

// fit learns the spread of length k and its excesses. What the next shorter length
// shows counts as some comparisons.
func (w *Watch) fit(k int) {
	sc := &w.scales[k]
	var buf [samplesKept]float64
	off := buf[:0]
	for _, s := range sc.samples {
		if s.known(w.doubt) {
			off = append(off, float64(s.off))
		}
	}
	slices.Sort(off)
	sc.own = sampleWorth(lengths[k]) * float64(len(off))
	mean, weight := winsorMean(off), sc.own
	if k > 1 && w.scales[k-1].weight > 0 {
		short := &w.scales[k-1]
		by := min(priorOf, short.weight)
		fall := math.Pow(float64(lengths[k-1])/float64(lengths[k]), w.fall(k))
		mean, weight = (mean*weight+by*short.spread*fall)/(weight+by), weight+by
	}
	sc.spread, sc.weight, sc.excess, sc.beyond = max(mean, spreadLeast), weight, 0, 0
	for _, s := range sc.samples {
		if s.known(w.doubt) && float64(s.off) > sc.spread {
			sc.excess += s.excess(sc.spread)
			sc.beyond++
		}
	}
}

// known reports whether a comparison was of points that are past doubt.
func (s sample) known(doubt int) bool { return s.at > 0 && s.at <= int32(doubt) }

// excess is how far a comparison exceeds the spread, in spreads. One that could
// not have been told, such as of a pause, counts as normal noise's would at most.
func (s sample) excess(spread float64) float64 {
	x := float64(s.off)/spread - 1
	if !s.lasts {
		return min(x, normalExcess)
	}
	return x
}

const normalExcess = 2

// fall is the power of its length with which the noise of a window falls, by the
// lengths below k: a half where points are independent, none where it never
// averages out.
func (w *Watch) fall(k int) float64 {
	for k--; k > 2; k-- {
		if long, short := &w.scales[k], &w.scales[1]; long.own >= slopeLeast && long.spread > 0 && short.spread > 0 {
			slope := math.Log(short.spread/long.spread) / math.Log(float64(lengths[k])/float64(lengths[1]))
			return min(max(slope-slopeOff, 0), 0.5)
		}
	}
	return slopeUnseen
}

// winsorMean is the mean of sorted values, none counted as more than winsor medians.
func winsorMean(sorted []float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	most, sum := winsor*sorted[len(sorted)/2], 0.0
	for _, x := range sorted {
		sum += min(x, most)
	}
	return sum / float64(len(sorted))
}

// threshold is what a comparison of length k must exceed to be proven: what is usual,
// and more where few comparisons leave the spread uncertain, or few of this length
// say little of bursts that are as long.
func (w *Watch) threshold(k int) float64 {
	sc := &w.scales[k]
	if sc.weight < fitLeast || sc.own < 1 {
		return math.Inf(1)
	}
	return w.usual(k) * (1 + unsure/math.Sqrt(sc.weight) + unseen/sc.own)
}

// usual is what a comparison of length k exceeds with the probability allowed, nothing
// being the matter, as far as the series is known: beyond the spread an
// exponential tail whose mean is that of all lengths' excesses.
func (w *Watch) usual(k int) float64 {
	sc := &w.scales[k]
	excess, beyond, of := tailPrior*tailMean, tailPrior, tailPrior/tailShare
	for i := range w.scales[1:] {
		s := &w.scales[i+1]
		excess, beyond, of = excess+s.excess, beyond+s.beyond, of+s.own/sampleWorth(lengths[i+1])
	}
	tail := excess / beyond
	return sc.spread * (1 + tail*math.Log(beyond/of/sc.allow))
}

const (
	tailShare = 0.4 // of comparisons that exceed the mean
	unsure    = 1.0 // standard errors of the spread for which a threshold makes up
	unseen    = 1.0 // the same for bursts: so many comparisons double the threshold
)
