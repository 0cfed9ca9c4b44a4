package autopsy

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

// made is a series of n points around 1,000 with a step of that share at a place.
func made(r *rand.Rand, n, at int, share, noise float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = 1000 * (1 + noise*r.NormFloat64())
		if i >= at {
			out[i] *= 1 + share
		}
	}
	return out
}

func TestPowerOfLevels(t *testing.T) {
	for _, c := range []struct {
		before, after int
		share, noise  float64
		least         float64
	}{
		{40, 10, 0.08, 0.003, 0.95},
		{40, 3, 0.08, 0.003, 0.95},
		{100, 20, 0.08, 0.02, 0.95},
		{300, 3, 0.35, 0.003, 0.95},
		{20, 20, 0.2, 0.02, 0.95},
	} {
		r := rand.New(rand.NewPCG(1, uint64(c.before)))
		const plays = 200
		found := 0
		for range plays {
			l := levels(made(r, c.before+c.after, c.before, c.share, c.noise))
			if len(l.Shifts) == 1 && math.Abs(float64(l.Shifts[0].At-c.before)) <= 1 {
				found++
			}
		}
		if float64(found) < c.least*plays {
			t.Errorf("%+v: found %d of %d", c, found, plays)
		}
	}
}

func TestNoiseIsNoChange(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	for _, n := range []int{8, 20, 60, 300, 3000} {
		for _, noise := range []float64{0.001, 0.01, 0.05, 0.2} {
			for range 40 {
				values := made(r, n, n, 0, noise)
				for range n / 50 {
					values[r.IntN(n)] *= 1 + 10*r.Float64()
				}
				if l := levels(values); len(l.Shifts) > 0 {
					t.Errorf("n %d noise %g: %+v", n, noise, l.Shifts)
				}
			}
		}
	}
}

// The median by selection is that by sorting.
func TestMedianIsThatOfAll(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 5))
	for n := range 200 {
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(r.IntN(n + 1))
		}
		if got, want := median(values), falcon.Median(slices.Clone(values)); got != want {
			t.Fatalf("%v: %g, want %g", values, got, want)
		}
	}
}
