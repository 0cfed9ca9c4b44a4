package bocd

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// reported are the changes that a tracker reports of a series, but for jitter, and how many
// observations its filter rested for.
func reported(t *testing.T, ms []float64, rests bool) (out []Change, rested int) {
	t.Helper()
	cfg := DefaultTrackerConfig()
	cfg.Verification, cfg.Rest = VerifyPaper, rests
	tr := NewTracker(cfg)
	for _, x := range ms {
		changes, err := tr.Observe(x)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			if c.Kind != KindJitter {
				c.Probability = 0
				out = append(out, c)
			}
		}
		if tr.atRest() {
			rested++
		}
	}
	return out, rested
}

// Bounds of what is the same decision of generated series: drifts have no place of their own,
// and the points that show a shallow one may lie driftMost apart.
const (
	samePlace = 24
	sameLevel = 0.02
)

// differs says how the decisions of a tracker whose filter rests differ from those of one whose
// filter does not; exact reports whether they are the same to the last bit.
func differs(t *testing.T, ms []float64) (why string, exact bool, rested int) {
	t.Helper()
	want, _ := reported(t, ms, false)
	got, rested := reported(t, ms, true)
	if len(got) != len(want) {
		return fmt.Sprintf("%d decisions, want %d: %+v, want %+v",
			len(got), len(want), got, want), false, rested
	}
	for i, g := range got {
		w := want[i]
		place := max(g.Index-w.Index, w.Index-g.Index)
		found := max(g.DetectedAt-w.DetectedAt, w.DetectedAt-g.DetectedAt)
		level := max(relative(g.BeforeMs, w.BeforeMs), relative(g.AfterMs, w.AfterMs))
		if g.Kind != w.Kind || place > samePlace || found > driftMost || level > sameLevel {
			return fmt.Sprintf("%+v, want %+v", g, w), false, rested
		}
	}
	return "", slices.Equal(bare(got), bare(want)), rested
}

// bare are changes without what decided them: a filter that woke was fed from elsewhere.
func bare(all []Change) []Change {
	for i := range all {
		all[i].Why = nil
	}
	return all
}

// A filter that rests leads to the decisions of one that does not: on every record to the last bit.
func TestRestDecidesTheSameOnRecords(t *testing.T) {
	points, rested := 0, 0
	for _, r := range readRecords(t) {
		for name, ms := range durations(t, r) {
			why, exact, m := differs(t, ms)
			if !exact {
				t.Errorf("%s %s: not the same: %s", short(r.File), name, why)
			}
			points += len(ms)
			rested += m
		}
	}
	t.Logf("at rest for %d of %d points", rested, points)
}

// And on generated ranks: steps, ramps, bursts, lone outliers and drifts of any size on noise.
func TestRestDecidesTheSameOnGeneratedRanks(t *testing.T) {
	series := 3000
	if testing.Short() {
		series = 300
	}
	points, rested, same := 0, 0, 0
	for seed := range uint64(series) {
		ms := generated(seed)
		why, exact, m := differs(t, ms)
		if why != "" {
			t.Errorf("seed %d: %s", seed, why)
		}
		if exact {
			same++
		}
		points += len(ms)
		rested += m
	}
	t.Logf("at rest for %d of %d points; %d of %d series to the last bit", rested, points, same, series)
	if rested < points/2 || same < series*9/10 {
		t.Error("too little")
	}
}

// While the filter rests a tracker is small, and a series that moves wakes it.
func TestATrackerAtRestIsSmall(t *testing.T) {
	cfg := DefaultTrackerConfig()
	cfg.Verification, cfg.Rest = VerifyPaper, true
	first := NewTracker(cfg)
	tr := first.Another()
	for i := range 200 {
		_, _ = tr.Observe(1000 + float64(i%7))
	}
	if !tr.atRest() || tr.PRecent() != 0 {
		t.Fatalf("not at rest after 200 quiet points: P %v", tr.PRecent())
	}
	if size := unsafe.Sizeof(*tr); size > 1536 {
		t.Errorf("%d bytes", size)
	}
	for i := range 40 {
		if _, _ = tr.Observe(1300); i == 1 && tr.atRest() {
			t.Error("at rest after two points far off")
		}
	}
	if !tr.Slow() {
		t.Error("a step was not found")
	}
}

func generated(seed uint64) []float64 {
	rng := rand.New(rand.NewPCG(seed, 77))
	n, noise := 600+rng.IntN(900), 0.001+0.02*rng.Float64()*rng.Float64()
	level := make([]float64, n)
	for i := range level {
		level[i] = 1000
	}
	raise := func(from, to int, by func(share float64) float64) {
		for i := from; i < min(to, n); i++ {
			level[i] *= by(float64(i-from) / float64(to-from))
		}
	}
	for range rng.IntN(5) {
		from, size := 120+rng.IntN(n-120), 0.4*rng.Float64()*rng.Float64()
		lasts := 1 + rng.IntN(300)
		switch rng.IntN(5) {
		case 0: // a step and back
			raise(from, from+lasts, func(float64) float64 { return 1 + size })
		case 1: // for good
			raise(from, n, func(float64) float64 { return 1 + size })
		case 2: // a drift
			raise(from, from+lasts, func(x float64) float64 { return 1 + size*x })
			raise(from+lasts, n, func(float64) float64 { return 1 + size })
		case 3: // a burst
			raise(from, from+1+rng.IntN(6), func(float64) float64 { return 1 + 3*size })
		default: // faster
			raise(from, n, func(float64) float64 { return 1 / (1 + size) })
		}
	}
	for i := range level {
		level[i] *= 1 + noise*rng.NormFloat64()
		if rng.IntN(150) == 0 {
			level[i] *= 1 + rng.ExpFloat64()
		}
	}
	return level
}
