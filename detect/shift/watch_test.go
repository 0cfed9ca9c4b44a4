package shift

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// feed adds n points around a level to a watch and returns the proven changes, which
// become the level.
func feed(w *Watch, rng *rand.Rand, n int, ms, cov float64) []Change {
	var out []Change
	for range n {
		if c, found := w.Observe(ms * (1 + cov*rng.NormFloat64())); found {
			out = append(out, c)
			w.SetLevel(c.Index)
		}
	}
	return out
}

func TestStepsAreProvenBothWays(t *testing.T) {
	for _, x := range []struct {
		size, cov float64
		within    int
	}{{0.02, 0.003, 24}, {0.056, 0.003, 9}, {0.03, 0.01, 72}, {0.3, 0.03, 30}} {
		missed := 0
		for seed := range uint64(20) {
			rng := rand.New(rand.NewPCG(seed, 4))
			w := New(Config{})
			quiet := feed(w, rng, 400, 100, x.cov)
			up := feed(w, rng, 300, 100*(1+x.size), x.cov)
			down := feed(w, rng, 300, 100, x.cov)
			if len(quiet) > 0 ||
				len(up) != 1 ||
				len(down) != 1 ||
				up[0].Points > x.within ||
				math.Abs(float64(up[0].Index-400)) > 8 ||
				down[0].After > down[0].Before {
				missed++
				t.Logf("+%.1f %% at %.1f %%, seed %d: %v, %v, %v",
					100*x.size, 100*x.cov, seed, quiet, up, down)
			}
		}
		if missed > 1 {
			t.Errorf("+%.1f %% at %.1f %%: %d of 20 missed", 100*x.size, 100*x.cov, missed)
		}
	}
}

func TestWhatIsNotWorthTellingIsNotTold(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	w := New(Config{})
	feed(w, rng, 400, 100, 0.001)
	if c := feed(w, rng, 2000, 101, 0.001); len(c) > 0 {
		t.Errorf("+1 %%: %v", c)
	}
	w = New(Config{Floor: 0.005})
	feed(w, rng, 400, 100, 0.001)
	if c := feed(w, rng, 200, 101, 0.001); len(c) != 1 {
		t.Errorf("+1 %% with a floor of 0.5 %%: %v", c)
	}
}

// A coarse clock, of which a level has 33 ticks: a tenth of a tick moves the median
// by 3 %.
func TestCoarseClock(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 5))
	w := New(Config{})
	for i := range 4000 {
		level := 33.45
		if i >= 1000 {
			level = 33.55
		}
		if c, found := w.Observe(math.Round(level + 0.02*rng.NormFloat64())); found {
			t.Fatalf("%d: %+v", i, c)
		}
	}
}

// A change with more noise than the series is reported later.
func TestRoughBursts(t *testing.T) {
	announced := 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 6))
		w := New(Config{})
		feed(w, rng, 300, 100, 0.003)
		burst := feed(w, rng, 13, 104.4, 0.02)
		after := feed(w, rng, 300, 100, 0.003)
		if len(burst) > 0 {
			announced++
			t.Logf("seed %d: %v, %v", seed, burst, after)
		}
	}
	if announced > 1 { // the first five points may be equal by chance
		t.Errorf("%d of 40 were reported", announced)
	}
}

// A drift is proven; a level that moves as far in both directions is not a drift.
func TestDrift(t *testing.T) {
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 7))
		w := New(Config{})
		found := 0.0
		for i := range 4000 {
			loss := 0.03 * float64(max(0, i-800)) / 1000
			if _, ok := w.Observe(100 * (1 + loss) * (1 + 0.005*rng.NormFloat64())); ok {
				found = loss
				break
			}
		}
		if found < 0.02 || found > 0.06 {
			t.Errorf("seed %d: reported at a loss of %.1f %%", seed, 100*found)
		}
		w = New(Config{})
		for i := range 12_000 {
			if c, ok := w.Observe(
				100 * (1 + 0.01*math.Sin(float64(i)/900)) * (1 + 0.005*rng.NormFloat64()),
			); ok {
				t.Errorf("seed %d: %d: %+v", seed, i, c)
				w.SetLevel(c.Index)
			}
		}
	}
}

func TestHostilePoints(t *testing.T) {
	odd := []float64{
		math.NaN(),
		math.Inf(1),
		math.Inf(-1),
		0,
		-1,
		math.MaxFloat64,
		math.SmallestNonzeroFloat64,
		1,
		1,
	}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 8))
		w := New(Config{})
		for i := range 3000 {
			ms := odd[rng.IntN(len(odd))]
			if seed%2 == 0 && i%7 > 0 {
				ms = 100
			}
			c, found := w.Observe(ms)
			if found &&
				(math.IsNaN(c.Before) || math.IsNaN(c.After) || c.Index < 0 || c.Index >= i+1) {
				t.Fatalf("%d: %+v", i, c)
			}
			if found && rng.IntN(2) == 0 {
				w.SetLevel(c.Index)
			}
		}
	}
}

func TestConstantSeries(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	w := New(Config{})
	if c := feed(w, rng, 500, 100, 0); len(c) > 0 {
		t.Fatal(c)
	}
	if c := feed(w, rng, 30, 103, 0); len(c) != 1 || c[0].Index != 500 {
		t.Error(c)
	}
}

func TestMemoryIsFixed(t *testing.T) {
	if size := unsafe.Sizeof(Watch{}); size > 18<<10 {
		t.Errorf("a watch takes %d bytes", size)
	}
	rng, w := rand.New(rand.NewPCG(1, 1)), New(Config{})
	feed(w, rng, 1000, 100, 0.01)
	n := testing.AllocsPerRun(2000, func() {
		w.Observe(100 * (1 + 0.01*rng.NormFloat64()))
	})
	if n > 0 {
		t.Errorf("%g allocations a point", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	w := New(Config{})
	xs := make([]float64, 1<<12)
	for i := range xs {
		xs[i] = 100 * (1 + 0.01*rng.NormFloat64())
	}
	b.ReportAllocs()
	for i := range b.N {
		w.Observe(xs[i&(1<<12-1)])
	}
}

// The largest number that there is has a logarithm whose power is larger still.
func TestLevelsAreFinite(t *testing.T) {
	w := New(Config{})
	announced := 0
	for i := range 400 {
		ms := 1e-128 * (1 + 0.01*float64(i%3))
		if i >= 330 {
			ms = math.MaxFloat64
		}
		c, ok := w.Observe(ms)
		if !ok {
			continue
		}
		announced++
		if math.IsInf(c.Before, 0) || math.IsInf(c.After, 0) {
			t.Fatalf("%d: %+v", i, c)
		}
	}
	if announced == 0 {
		t.Error("no change is reported")
	}
}

// A change that comes right after another one, before the new level has enough blocks, is
// proven by the level's first points; without one nothing is reported.
func TestYoungLevel(t *testing.T) {
	for _, gap := range []int{8, 12, 20, 30} {
		missed := 0
		for seed := range uint64(20) {
			rng := rand.New(rand.NewPCG(seed, 9))
			w := New(Config{})
			feed(w, rng, 400, 100, 0.01)
			w.SetLevel(400) // an action's
			quiet := feed(w, rng, gap, 105, 0.01)
			up := feed(w, rng, 24, 116, 0.01)
			if len(quiet) > 0 ||
				len(up) != 1 ||
				math.Abs(float64(up[0].Index-400-gap)) > 2 {
				missed++
				t.Logf("gap %d, seed %d: %v, %v", gap, seed, quiet, up)
			}
		}
		if missed > 1 {
			t.Errorf("gap %d: %d of 20 missed", gap, missed)
		}
	}
	announced := 0
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 10))
		w := New(Config{})
		feed(w, rng, 400, 100, 0.02)
		w.SetLevel(400)
		announced += len(feed(w, rng, 32, 130, 0.02))
	}
	if announced > 1 {
		t.Errorf("%d of 2,000 young levels without a change were announced", announced)
	}
}
