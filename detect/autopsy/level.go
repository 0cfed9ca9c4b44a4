package autopsy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Bounds of what is taken for a change of level.
const (
	noiseTimes    = 1.2  // noises of a point that a change must have: less than that may last by chance
	leastChange   = 0.04 // share of the level before: less is left to people who know the job
	leastPoints   = 3    // at a level
	leastSeries   = 8    // points for any test
	arrangements  = 1000 // in which the points could stand: less, and chance explains what is seen
	window        = 3    // points on either side in whose median a point is clipped
	clipAt        = 5    // noises from that median
	warmupShare   = 0.05 // of a series, or warmupLeast points, may be a slow beginning
	warmupLeast   = 10
	blockSize     = 8 // points whose medians show noise that lasts; longer blocks too
	blocksLeast   = 7
	lastingNoise  = 1.3 // times the differences of independent points
	lastingMargin = 1.35
	resolution    = 1e-4
	noiseSample   = 50_000 // differences are enough for the noise
	unsure        = 6      // points: the noise of a short series is not well known
)

// Shift is a change of level: points from At on differ from those before.
type Shift struct {
	At            int
	Before, After float64 // medians
	Points        int     // at the level after
	Chance        float64 // bound on the probability that equal levels look like this
}

// Change is by how much a level differs from that before: +0.1 = 10 % more.
func (s Shift) Change() float64 { return s.After/s.Before - 1 }

// Levels is what a series does, apart from single points.
type Levels struct {
	Shifts []Shift
	Warmup int     // points at the beginning that are not counted
	Noise  float64 // share of the level, of one point
	Least  float64 // the least change that could have been reported over the last quarter
	Drift  *Drift  // where there is no change of level
	Turned []Turned
}

// Turned is a change that was looked at and turned down.
type Turned struct {
	At     int
	Change float64 // +0.1 = 10 % more
	Why    string
}

const turnedMost = 8 // of a series that are listed

// levels finds the levels of a series of positive values.
//
// It splits where the means of the two sides differ most in units of the noise, as long as that is more than
// noise explains among so many places. The noise is taken from differences of neighbours, which a change of
// level does not enlarge, and single points count only up to clipAt noises.
func levels(values []float64) Levels {
	n := len(values)
	if n < leastSeries {
		return Levels{Least: math.Inf(1)}
	}
	logs := make([]float64, n)
	for i, v := range values {
		logs[i] = math.Log(v)
	}
	noise := noiseOf(logs)
	clipped := clip(logs, noise)
	s := splitter{
		values: logs,
		sums:   sums(clipped),
		noise:  noise * persistence(clipped, noise),
		point:  noise,
	}
	s.split(0, n, 0)
	slices.Sort(s.cuts)
	out := Levels{Noise: math.Expm1(noise), Least: math.Expm1(s.least(n))}
	if out.Shifts, out.Warmup = s.shifts(n); len(out.Shifts) == 0 {
		out.Drift = drift(values)
	}
	out.Turned = s.turned
	return out
}

// splitter finds the places where levels change.
type splitter struct {
	values []float64 // logarithms
	sums   []float64 // of the clipped ones
	noise  float64
	point  float64 // noise of a point
	cuts   []int
	turned []Turned
}

const deepest = 40 // splits within splits

// split looks for the best place in a part of the series.
func (s *splitter) split(from, to, depth int) {
	if to-from < 2*leastPoints || depth > deepest || len(s.cuts) > 1<<10 {
		return
	}
	best, at := 0.0, 0
	for k := from + leastPoints; k <= to-leastPoints; k++ {
		if t := s.contrast(from, k, to); t > best {
			best, at = t, k
		}
	}
	if best < s.wanted() {
		return
	}
	if why := s.against(from, at, to, best); why != "" {
		s.turn(from, at, to, why)
		return
	}
	s.cuts = append(s.cuts, at)
	s.split(from, at, depth+1)
	s.split(at, to, depth+1)
}

// against is why a contrast that is large enough is no change of level, "" where it is one.
func (s *splitter) against(from, at, to int, best float64) string {
	switch few := min(at-from, to-at); {
	case !enough(to-from, few):
		return fmt.Sprintf("%d points of %d may stand together by chance", few, to-from)
	case !s.even(from, at) || !s.even(at, to):
		return "its points differ from each other as much as from the rest: no level"
	case best < clear*s.wanted() && s.byChance(from, to, best):
		return "another order of the same points has as large a difference"
	}
	return ""
}

func (s *splitter) turn(from, at, to int, why string) {
	if len(s.turned) < turnedMost {
		change := math.Expm1(median(s.values[at:to]) - median(s.values[from:at]))
		s.turned = append(s.turned, Turned{at, change, why})
	}
}

// Of a permutation test.
const (
	clear          = 2    // times the wanted contrast: no test is needed
	shuffles       = 2000 // of which none may have as large a contrast
	blockMost      = 16
	blocksShuffled = 32      // fewer stand in too few orders
	shuffleMax     = 400_000 // values in all: a longer series has its noise from enough differences
)

// byChance reports whether some order of the same points has as large a contrast. Points stay with
// their neighbours where there are enough: what lasts by chance lasts in the other order as well.
func (s *splitter) byChance(from, to int, best float64) bool {
	size := 1
	for b := blockSize; to-from >= blocksShuffled*b && b <= blockMost; b *= 2 {
		size = b
	}
	var blocks [][2]int
	for at := from; at < to; at += size {
		blocks = append(blocks, [2]int{at, min(at+size, to)})
	}
	r := rand.New(rand.NewPCG(uint64(from), uint64(to)))
	n := to - from
	other := splitter{noise: s.noise, sums: make([]float64, n+1)}
	for range min(shuffles, shuffleMax/n) {
		r.Shuffle(len(blocks), func(i, j int) {
			blocks[i], blocks[j] = blocks[j], blocks[i]
		})
		other.order(s, blocks)
		for k := leastPoints; k <= n-leastPoints; k++ {
			if other.contrast(0, k, n) >= best {
				return true
			}
		}
	}
	return false
}

// order sums the points of blocks in their order.
func (s *splitter) order(of *splitter, blocks [][2]int) {
	at := 0
	for _, b := range blocks {
		for i := b[0]; i < b[1]; i++ {
			s.sums[at+1] = s.sums[at] + of.sums[i+1] - of.sums[i]
			at++
		}
	}
}

// even reports whether a short part of the series is a level: single points that happen to stand
// together differ from each other as much as from the rest.
func (s *splitter) even(from, to int) bool {
	if to-from >= blockSize {
		return true
	}
	part := s.values[from:to]
	rest := median(s.values[max(0, from-blockSize):from])
	if from == 0 {
		rest = median(s.values[to:min(len(s.values), to+blockSize)])
	}
	spread := slices.Max(part) - slices.Min(part)
	return spread <= max(6*s.noise, math.Abs(median(part)-rest)/2)
}

// contrast is the difference of the means on both sides of k, in standard errors.
func (s *splitter) contrast(from, k, to int) float64 {
	left := float64(k - from)
	right := float64(to - k)
	d := (s.sums[to]-s.sums[k])/right - (s.sums[k]-s.sums[from])/left
	return math.Abs(d) / (s.noise * math.Sqrt(1/left+1/right))
}

// wanted is the contrast that chance does not reach among all places of the series.
func (s *splitter) wanted() float64 {
	n := float64(len(s.values))
	return (math.Sqrt(2*math.Log(n)) + 1.5) * (1 + unsure/n)
}

// least is the change of the last quarter that would be found.
func (s *splitter) least(n int) float64 {
	after := float64(max(leastPoints, n/4))
	return s.wanted() * s.noise * math.Sqrt(1/after+1/max(1, float64(n)-after))
}

// enough reports whether so few points could stand in enough places among all for chance to be no answer.
func enough(all, few int) bool {
	ways := 1.0
	for i := range few {
		if ways *= float64(all-i) / float64(i+1); ways >= arrangements {
			return true
		}
	}
	return false
}

// shifts are the changes that matter, and how many points at the beginning are a warm-up.
func (s *splitter) shifts(n int) (out []Shift, warmup int) {
	type part struct {
		from, to int
		level    float64
	}
	bounds := append([]int{0}, append(s.cuts, n)...)
	var parts []part
	for i := 1; i < len(bounds); i++ {
		parts = append(parts, part{bounds[i-1], bounds[i], median(s.values[bounds[i-1]:bounds[i]])})
	}
	limit := max(warmupLeast, int(warmupShare*float64(n)))
	for len(parts) > 1 && parts[0].to <= limit && parts[0].level > parts[1].level {
		warmup, parts = parts[0].to, parts[1:]
	}
	for i := 1; i < len(parts); {
		if math.Abs(math.Expm1(parts[i].level-parts[i-1].level)) >= max(leastChange, noiseTimes*s.point) {
			i++
			continue
		}
		s.turn(
			parts[i-1].from,
			parts[i].from,
			parts[i].to,
			fmt.Sprintf("less than %.2g %%, which is left to who knows the job",
				100*max(leastChange, noiseTimes*s.point)),
		)
		whole := part{parts[i-1].from, parts[i].to, median(s.values[parts[i-1].from:parts[i].to])}
		parts = slices.Replace(parts, i-1, i+1, whole)
		i = max(1, i-1)
	}
	for i := 1; i < len(parts); i++ {
		a := parts[i-1]
		b := parts[i]
		t := s.contrast(a.from, b.from, b.to)
		chance := float64(n) * math.Erfc(t/math.Sqrt2)
		out = append(out, Shift{b.from, math.Exp(a.level), math.Exp(b.level), b.to - b.from, min(1, chance)})
	}
	return out, warmup
}

// noiseOf is the standard deviation of a point, from differences of neighbours.
func noiseOf(values []float64) float64 {
	stride := max(1, len(values)/noiseSample)
	diffs := make([]float64, 0, len(values)/stride)
	for i := 0; i+1 < len(values); i += stride {
		diffs = append(diffs, math.Abs(values[i+1]-values[i]))
	}
	return max(1.4826*median(diffs), rms(diffs)/rmsOfGaussian, resolution) / math.Sqrt2
}

const (
	counted       = 0.9  // of the differences: a few are huge
	rmsOfGaussian = 0.79 // root mean square of that share of a Gaussian's values
)

// rms is the root mean square of the smaller values.
func rms(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	sorted = sorted[:max(1, int(counted*float64(len(sorted))))]
	total := 0.0
	for _, v := range sorted {
		total += v * v
	}
	return math.Sqrt(total / float64(len(sorted)))
}

// persistence is how much more medians of blocks differ than independent points would have them, at
// the length of blocks at which it is most: noise that lasts is no change of level.
func persistence(values []float64, noise float64) float64 {
	most := 1.0
	for size := blockSize; len(values) >= blocksLeast*size; size *= 2 {
		var diffs []float64
		before := math.NaN()
		for i := 0; i+size <= len(values); i += size {
			m := median(values[i : i+size])
			if !math.IsNaN(before) {
				diffs = append(diffs, math.Abs(m-before))
			}
			before = m
		}
		expected := noise * math.Sqrt(math.Pi/float64(size)) // of the difference of two medians
		most = max(most, 1.4826*median(diffs)/expected)
	}
	if most > lastingNoise {
		return most * lastingMargin // it is known from a few blocks only
	}
	return most
}

// clip limits each value to clipAt noises from the median around it.
func clip(values []float64, noise float64) []float64 {
	out := make([]float64, len(values))
	var around [2*window + 1]float64
	for i, v := range values {
		from := max(0, i-window)
		to := min(len(values), i+window+1)
		near := around[:copy(around[:], values[from:to])]
		slices.Sort(near)
		m := near[(len(near)-1)/2] // at an end a third of it may be single points
		out[i] = min(max(v, m-clipAt*noise), m+clipAt*noise)
	}
	return out
}

func sums(values []float64) []float64 {
	out := make([]float64, len(values)+1)
	for i, v := range values {
		out[i+1] = out[i] + v
	}
	return out
}

// median is falcon.Median of values. It orders a copy only as far as it must: sorting a million
// points takes longer than all else.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	a := slices.Clone(values)
	high := nth(a, n/2)
	if n%2 == 1 {
		return high
	}
	return slices.Max(a[:n/2])/2 + high/2
}

// nth is the value that stands at k once a is sorted; smaller ones stand before it then.
func nth(a []float64, k int) float64 {
	from := 0
	to := len(a) - 1
	for from < to {
		pivot := max(min(a[from], a[(from+to)/2]), min(max(a[from], a[(from+to)/2]), a[to])) // of three
		i, j := from, to
		for i <= j {
			for a[i] < pivot {
				i++
			}
			for a[j] > pivot {
				j--
			}
			if i <= j {
				a[i], a[j] = a[j], a[i]
				i++
				j--
			}
		}
		switch {
		case k <= j:
			to = j
		case k >= i:
			from = i
		default:
			return a[k]
		}
	}
	return a[k]
}
