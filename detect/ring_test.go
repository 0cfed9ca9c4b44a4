package detect

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/bocd"
)

// A ring is as a plain list of all values: whole to the bits of a float32, narrow within 1/4096.
func TestRingIsAsAList(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 3))
		r := timeRing{limit: 1 + rng.IntN(200), isThin: seed%2 == 0}
		var at []int64
		var ms []float64
		iteration := rng.Int64N(1000)
		for range rng.IntN(1000) {
			iteration++
			if rng.IntN(9) == 0 {
				iteration += rng.Int64N(5)
			}
			x := 1000 * math.Exp(8*rng.NormFloat64())
			x = min(max(x, 0.02), 3e7)
			r.push(iteration, x)
			at = append(at, iteration)
			ms = append(ms, x)
			if r.seen != len(at) || r.held() != min(len(at), r.limit) {
				t.Fatalf("%d seen, %d held", r.seen, r.held())
			}
			for i := r.oldest(); i < r.seen; i += 1 + rng.IntN(20) {
				most := 1.0 / 4096
				if !r.isThin || i == r.seen-1 {
					most = 1e-7
				}
				got := r.valueAt(i)
				if math.Abs(got/ms[i]-1) > most || r.iteration(i) != at[i] {
					t.Fatalf("seed %d: value %d is %v of %d, want %v of %d",
						seed, i, got, r.iteration(i), ms[i], at[i])
				}
			}
		}
	}
}

// rankBytes is what the detector may keep of a quiet rank.
const rankBytes = 4096

// A rank that has been quiet for longer than its history is small.
func TestAQuietRankIsSmall(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	cfg := DefaultConfig()
	s := newRankSeries(&cfg, 1)[0]
	for i := range 3 * cfg.History {
		s.observe(int64(i), 1000+5*rng.NormFloat64())
	}
	size := int(unsafe.Sizeof(*s)+unsafe.Sizeof(bocd.Tracker{})) + 2*cap(s.narrow) + 16*cap(s.gaps)
	if size > rankBytes || cap(s.narrow) != cfg.History {
		t.Errorf("%d bytes, %d values", size, cap(s.narrow))
	} else {
		t.Logf("%d bytes", size)
	}
}

// sameWords reports whether two texts are the same word for word, but for levels that differ in
// their last digit: where a lone outlier was, the level before a change is a median without it.
func sameWords(a, b string) bool {
	const most = 0.002
	was := strings.Fields(a)
	is := strings.Fields(b)
	if len(was) != len(is) {
		return false
	}
	for i := range was {
		x, errX := strconv.ParseFloat(was[i], 64)
		y, errY := strconv.ParseFloat(is[i], 64)
		isLevel := errX == nil &&
			errY == nil &&
			i+1 < len(was) &&
			strings.HasPrefix(was[i+1], "ms")
		if was[i] != is[i] && !(isLevel && math.Abs(x-y) <= most*x) {
			return false
		}
	}
	return true
}

func TestSameWords(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"onset 179, 125.0 ms", "onset 179, 124.9 ms", true},
		{"onset 179, 125.0 ms", "onset 178, 125.0 ms", false},
		{"125.0 ms", "120.0 ms", false},
		{"located", "verified", false},
		{"a b", "a", false},
	} {
		if got := sameWords(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %v", c.a, c.b, got)
		}
	}
}

// Detectors whose ranks' filters rest and those whose filters never do say the same, word for
// word, of jobs that were quiet for long before their fault.
func TestRestSaysTheSameOfJobs(t *testing.T) {
	jobs := *stories
	rested := 0
	if testing.Short() {
		jobs /= 5
	}
	for seed := range uint64(jobs) {
		var said [2]string
		for i, restless := range []bool{true, false} {
			rng := rand.New(rand.NewPCG(seed, 9))
			sh := shapes[seed%uint64(len(shapes))]
			w := newWorld(sh.layout, sh.nodes, 4+rng.IntN(9), seed)
			w.m = New(Config{Restless: restless})
			w.describe()
			w.job.Noise, w.job.Hiccup = 0.001+0.012*rng.Float64(), 0.02*rng.Float64()
			w.run(120 + rng.IntN(60))
			if !restless {
				rested += restingRanks(w.m)
			}
			inject(
				w,
				[]string{"gpu", "weak", "blind", "cpu", "all", "lengths"}[rng.IntN(6)],
				rng,
			)
			w.run(25 + rng.IntN(60))
			w.clearFaults()
			w.run(40 + rng.IntN(100))
			said[i] = w.out.String()
		}
		if !sameWords(said[0], said[1]) {
			t.Fatalf("seed %d:\n%s\n--- at rest:\n%s", seed, said[0], said[1])
		}
	}
	t.Logf("%d ranks at rest before the faults of %d jobs", rested, jobs)
	if rested < jobs {
		t.Error("too few to say anything")
	}
}

func restingRanks(m *Machine) int {
	n := 0
	for r := range m.samples.ranks {
		if s, _ := m.Rank(falcon.Rank(r)); s.Probability == 0 {
			n++
		}
	}
	return n
}
