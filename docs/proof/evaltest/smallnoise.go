package evaltest

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/failslow/falcon"
)

// Noise is one class of what an undisturbed job's iteration times do, as factors
// of their level. The classes are fitted on the undisturbed records of
// shared/data with an even number; those with an odd one judge (small_test.go).
type Noise struct {
	Name string
	Draw func(rng *rand.Rand, n int, cov float64) []float64
}

// NoiseClasses are the classes that have a formula.
func NoiseClasses() []Noise {
	return []Noise{
		{"independent", independent},
		{"correlated", correlated},
		{"heavy tails", heavyTails},
		{"bursts", bursts},
		{"checkpoints", checkpoints},
		{"weather", weather},
		{"a day", daily},
	}
}

func independent(rng *rand.Rand, n int, cov float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = max(0.2, 1+cov*rng.NormFloat64())
	}
	return out
}

const recordCorr = 0.45 // of neighbours, in the two records that have most

// correlated is a first-order autoregression.
func correlated(rng *rand.Rand, n int, cov float64) []float64 {
	out := make([]float64, n)
	fresh, near := math.Sqrt(1-recordCorr*recordCorr), rng.NormFloat64()
	for i := range out {
		near = recordCorr*near + fresh*rng.NormFloat64()
		out[i] = max(0.2, 1+cov*near)
	}
	return out
}

// heavyTails is Student's t with 3 degrees of freedom, its upper side twice as
// wide: hiccups make an iteration longer, nothing makes it much shorter.
func heavyTails(rng *rand.Rand, n int, cov float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		chi := 0.0
		for range 3 {
			z := rng.NormFloat64()
			chi += z * z
		}
		x := rng.NormFloat64() / math.Sqrt(chi/3)
		if x > 0 {
			x *= 2
		}
		out[i] = max(0.2, 1+cov*x)
	}
	return out
}

// bursts is independent noise with what disturb puts in, and with bursts of up
// to three iterations that are as small as the changes looked for.
func bursts(rng *rand.Rand, n int, cov float64) []float64 {
	out := independent(rng, n, cov)
	disturb(rng, out)
	long := make([]bool, n)
	for i := range out {
		if rng.Float64() < 1.0/200 {
			lengthen(rng, out, long, i, 1+rng.IntN(burstMost), 1.02, 1.3)
		}
	}
	return out
}

// checkpoints is correlated noise with one to three longer iterations at a fixed
// distance, and an evaluation of one iteration at another, where no checkpoint is
// near: more than burstMost running are a spell.
func checkpoints(rng *rand.Rand, n int, cov float64) []float64 {
	out := correlated(rng, n, cov)
	long := make([]bool, n)
	running := 1 + rng.IntN(burstMost)
	recurring(rng, out, long, 50+rng.IntN(451), running)
	recurring(rng, out, long, 10+rng.IntN(41), 1)
	return out
}

// recurring makes so many iterations longer at a fixed distance, about alike.
func recurring(rng *rand.Rand, ms []float64, long []bool, every, running int) {
	by := times(rng, 1.05, 20)
	for i := rng.IntN(every); i < len(ms); i += every {
		by *= between(rng, 0.99, 1.01)
		lengthen(rng, ms, long, i, running, by, by)
	}
}

// weather has as much noise at all lengths of time: levels that forget after 8,
// 64, 512 and 4,096 iterations, a third of cov each, and independent noise. So
// have the two 8B records at 64 and 128 GPUs: the level of 64 iterations differs
// from that of the 128 before by as much as the level of 8 does.
func weather(rng *rand.Rand, n int, cov float64) []float64 {
	taus := []float64{8, 64, 512, 4096}
	at := make([]float64, len(taus))
	for k := range at {
		at[k] = rng.NormFloat64()
	}
	out := make([]float64, n)
	for i := range out {
		sum := 0.8 * rng.NormFloat64()
		for k, tau := range taus {
			hold := math.Exp(-1 / tau)
			at[k] = hold*at[k] + math.Sqrt(1-hold*hold)*rng.NormFloat64()
			sum += at[k] / 3
		}
		out[i] = max(0.2, 1+cov*sum)
	}
	return out
}

// daily is correlated noise on a level that goes 1 % up and down in 5,000 to
// 20,000 iterations, as a room's temperature has it.
func daily(rng *rand.Rand, n int, cov float64) []float64 {
	out := correlated(rng, n, cov)
	period, phase := between(rng, 5000, 20000), 2*math.Pi*rng.Float64()
	for i := range out {
		out[i] *= 1 + 0.01*math.Sin(phase+2*math.Pi*float64(i)/period)
	}
	return out
}

// Walks is noise read from the given records: one of them, forwards and backwards
// in turn over pieces of random length, so that no level is made that the record
// has not. It turns where the record is near its level, not within a burst, which
// would become twice as long, and leaves out its first iterations. A cov is not
// asked for.
func Walks(records [][]float64) func(rng *rand.Rand, n int, _ float64) []float64 {
	return func(rng *rand.Rand, n int, _ float64) []float64 {
		record := records[rng.IntN(len(records))][walkFrom:]
		level := falcon.Median(slices.Clone(record))
		out := make([]float64, 0, n)
		at, step, left := rng.IntN(len(record)), 1, 0
		for len(out) < n {
			if left <= 0 && math.Abs(record[at]/level-1) < 0.02 {
				step, left = -step, 100+rng.IntN(900)
			}
			if at+step < 0 || at+step >= len(record) {
				step = -step
			}
			at, left = at+step, left-1
			out = append(out, record[at])
		}
		return out
	}
}

const walkFrom = 20 // iterations of a record left out: it warms up
