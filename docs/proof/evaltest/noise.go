package evaltest

import (
	"math"
	"math/rand/v2"
)

// benign adds a lasting change of at most 7 % to the level, upwards only where
// a fall would blur the truth of a spell.
func benign(rng *rand.Rand, level []float64, slow bool) {
	if rng.Float64() >= 0.25 {
		return
	}
	by, from := between(rng, -0.07, 0.07), rng.IntN(len(level))
	if slow {
		by = math.Abs(by)
	}
	over := 1
	if rng.IntN(2) == 0 {
		over = 200 + rng.IntN(800)
	}
	for i := from; i < len(level); i++ {
		level[i] *= 1 + by*min(1, float64(i-from+1)/float64(over))
	}
}

const (
	wander     = 0.007 // standard deviation of the level's own wandering
	wanderOver = 500.0 // iterations after which it forgets
	sharedMost = 0.6   // greatest correlation of neighbours' noise
)

// calmShare is the share of jobs that have plain noise only: of 89 undisturbed
// records BOCD without verification keeps quiet in 35.
const calmShare = 35.0 / 89

// plain draws iteration times around a level, with independent normal noise.
func plain(rng *rand.Rand, level []float64, ms, cov float64) []float64 {
	out := make([]float64, len(level))
	for i, l := range level {
		out[i] = ms * l * max(0.2, 1+cov*rng.NormFloat64())
	}
	return out
}

// noisy draws iteration times around a level that wanders, their noise
// correlated.
func noisy(rng *rand.Rand, level []float64, ms, cov float64) []float64 {
	phi := sharedMost * rng.Float64()
	fresh := math.Sqrt(1 - phi*phi)
	hold := math.Exp(-1 / wanderOver)
	step := wander * math.Sqrt(1-hold*hold)
	near, far := rng.NormFloat64(), wander*rng.NormFloat64()
	out := make([]float64, len(level))
	for i, l := range level {
		near = phi*near + fresh*rng.NormFloat64()
		far = hold*far + step*rng.NormFloat64()
		out[i] = ms * l * max(0.2, 1+far+cov*near)
	}
	return out
}

// Rates and sizes of what must never count as slow.
const (
	stallRate = 1.0 / 5000
	burstRate = 1.0 / 2000
	burstMost = 3
)

// disturb puts pauses, spikes, stalls and bursts into a series, never more than
// burstMost running.
func disturb(rng *rand.Rand, ms []float64) {
	long := make([]bool, len(ms))
	if rng.IntN(2) == 0 {
		pauses(rng, ms, long, 50+rng.IntN(451))
	}
	if rng.IntN(10) == 0 {
		pauses(rng, ms, long, 5+rng.IntN(46))
	}
	spikes := between(rng, 0.002, 0.01)
	for i := range ms {
		switch u := rng.Float64(); {
		case u < spikes:
			lengthen(rng, ms, long, i, 1, 1.3, 4)
		case u < spikes+stallRate:
			lengthen(rng, ms, long, i, 1, 20, 400)
		case u < spikes+stallRate+burstRate:
			lengthen(rng, ms, long, i, 2+rng.IntN(burstMost-1), 1.2, 4)
		}
	}
}

// lengthen makes n iterations longer if they and their neighbours are not yet.
func lengthen(rng *rand.Rand, ms []float64, long []bool, at, n int, from, to float64) {
	for i := max(at-1, 0); i < min(at+n+1, len(ms)); i++ {
		if long[i] {
			return
		}
	}
	for i := at; i < min(at+n, len(ms)); i++ {
		ms[i] *= times(rng, from, to)
		long[i] = true
	}
}

// pauses makes one iteration in every so many longer, always about alike.
func pauses(rng *rand.Rand, ms []float64, long []bool, every int) {
	by := times(rng, 1.3, 20)
	for i := rng.IntN(every); i < len(ms); i += every {
		ms[i] *= by * between(rng, 0.95, 1.05)
		long[i] = true
	}
}

// times is log-uniform.
func times(rng *rand.Rand, from, to float64) float64 {
	return from * math.Pow(to/from, rng.Float64())
}
