package shift

import (
	"math"
	"slices"
)

const (
	samplesKept = 96   // comparisons stored per length
	looksPer    = 3.0  // independent comparisons per window length, because they overlap
	priorOf     = 12   // weight of the next shorter window, in comparisons
	fitLeast    = 6    // comparisons that a length needs to prove a change
	slopeLeast  = 10   // comparisons needed to measure how noise falls with the length
	slopeOff    = 0.05 // subtracted from the measured slope
	slopeUnseen = 0.25
	winsor      = 3.0  // limit of a comparison, in medians
	spreadLeast = 1e-4 // smallest spread
	tailPrior   = 4.0  // weight of the prior tail, in excesses
	// mean excess of the prior tail, in spreads: normal noise has 0.67, exponential noise 1
	tailMean = 0.8
)

// scale is the distribution of comparisons of one length without a change.
type scale struct {
	allow     float64 // allowed probability that a comparison exceeds the threshold
	samples   [samplesKept]sample
	taken     int
	sampledAt int // newest comparison

	spread float64 // mean difference, including shorter windows
	weight float64 // comparisons that it is based on
	own    float64 // those of this length
	excess float64 // sum of the excesses over spread, in spreads
	beyond float64 // number of excesses
}

// sample is the difference of the two levels of a comparison.
type sample struct {
	at    int32
	off   float32
	lasts bool // nearly all points were beyond the midpoint, as required of a change
}

// sample stores one comparison of length k per sampleEvery points, and updates the
// scale from those that are trusted.
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

// sampleEvery is the distance of stored comparisons of n points; sampleWorth is the
// weight of one, because they overlap. Windows of blocks change every blockOf points.
func sampleEvery(n int) int {
	if n > rawMost {
		return max(n/4/blockOf, 1) * blockOf
	}
	return 4
}

func sampleWorth(n int) float64 {
	return min(1.5*float64(sampleEvery(n))/float64(n), 1)
}

// forget drops the comparisons after the beginning of a new level.
func (sc *scale) forget(index int) {
	for sc.taken > 0 && sc.samples[(sc.taken-1)%samplesKept].at > int32(index) {
		sc.taken--
		sc.samples[sc.taken%samplesKept] = sample{}
	}
}

// fit updates the spread of length k and its excesses. The next shorter length
// counts as up to priorOf comparisons.
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
		mean = (mean*weight + by*short.spread*fall) / (weight + by)
		weight += by
	}
	sc.spread = max(mean, spreadLeast)
	sc.weight = weight
	sc.excess = 0
	sc.beyond = 0
	for _, s := range sc.samples {
		if s.known(w.doubt) && float64(s.off) > sc.spread {
			sc.excess += s.excess(sc.spread)
			sc.beyond++
		}
	}
}

// known reports whether a comparison is of trusted points.
func (s sample) known(doubt int) bool {
	return s.at > 0 && s.at <= int32(doubt)
}

// excess is the excess of a comparison over the spread, in spreads. For one that
// does not last, such as a pause, it is limited to that of normal noise.
func (s sample) excess(spread float64) float64 {
	x := float64(s.off)/spread - 1
	if !s.lasts {
		return min(x, normalExcess)
	}
	return x
}

const normalExcess = 2

// fall is the exponent with which noise falls with the length of a window, measured
// below length k: 0.5 for independent points, 0 for noise that never averages out.
func (w *Watch) fall(k int) float64 {
	for k--; k > 2; k-- {
		long := &w.scales[k]
		short := &w.scales[1]
		if long.own >= slopeLeast && long.spread > 0 && short.spread > 0 {
			slope := math.Log(short.spread/long.spread) / math.Log(float64(lengths[k])/float64(lengths[1]))
			return min(max(slope-slopeOff, 0), 0.5)
		}
	}
	return slopeUnseen
}

// winsorMean is the mean of sorted values, each limited to winsor medians.
func winsorMean(sorted []float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	most := winsor * sorted[len(sorted)/2]
	sum := 0.0
	for _, x := range sorted {
		sum += min(x, most)
	}
	return sum / float64(len(sorted))
}

// isKnown reports whether the noise of comparisons of a length is known well enough to
// prove a change.
func (sc *scale) isKnown() bool {
	return sc.weight >= fitLeast && sc.own >= 1
}

// threshold is the smallest proven change of length k: the usual difference, raised
// if the spread is uncertain or few comparisons of this length have been seen.
func (w *Watch) threshold(k int) float64 {
	sc := &w.scales[k]
	if !sc.isKnown() {
		return math.Inf(1)
	}
	return w.usual(k) * (1 + unsure/math.Sqrt(sc.weight) + unseen/sc.own)
}

// usual is the difference that a comparison of length k exceeds with the allowed
// probability without a change. The tail beyond the spread is exponential, with the
// mean of the excesses of all lengths.
func (w *Watch) usual(k int) float64 {
	sc := &w.scales[k]
	excess := tailPrior * tailMean
	beyond := tailPrior
	of := tailPrior / tailShare
	for i := range w.scales[1:] {
		s := &w.scales[i+1]
		excess, beyond, of = excess+s.excess, beyond+s.beyond, of+s.own/sampleWorth(lengths[i+1])
	}
	tail := excess / beyond
	return sc.spread * (1 + tail*math.Log(beyond/of/sc.allow))
}

const (
	tailShare = 0.4 // share of comparisons that exceed the mean
	unsure    = 1.0 // weight of the spread's standard error in the threshold
	unseen    = 1.0 // with this many comparisons of a length its threshold doubles
)
