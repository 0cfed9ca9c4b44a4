package autopsy

import (
	"math"
	"math/rand/v2"
	"testing"
)

// wandering is noise that lasts: each point keeps most of the one before.
func wandering(r *rand.Rand, n int, keeps, noise, growth float64) []float64 {
	out := make([]float64, n)
	at := 0.0
	for i := range out {
		at = keeps*at + noise*r.NormFloat64()
		out[i] = 1000 * math.Exp(at+growth*float64(i)/float64(n))
	}
	return out
}

func TestDriftIsFound(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 1))
	for _, n := range []int{40, 60, 400, 5000} {
		const plays = 100
		found := 0
		for range plays {
			l := levels(wandering(r, n, 0, 0.01, 0.4))
			if l.Drift != nil || len(l.Shifts) > 0 {
				found++
			}
		}
		if found < 95 {
			t.Errorf("%d points that grow by half: %d of %d found", n, found, plays)
		}
	}
}

func TestLastingNoiseIsNoDrift(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 2))
	const plays = 1000
	for _, n := range []int{40, 100, 600} {
		for _, keeps := range []float64{0, 0.5, 0.8} {
			found := 0
			for range plays {
				if drift(wandering(r, n, keeps, 0.03, 0)) != nil {
					found++
				}
			}
			if found > plays/200 {
				t.Errorf("%d points, each keeps %g of the one before: %d of %d drift", n, keeps, found, plays)
			}
		}
	}
}

// Slow iterations that begin to recur are found; those that recur from the beginning are the job's own.
func TestRecurringIterations(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 3))
	const plays = 200
	found, wrong, own := 0, 0, 0
	for range plays {
		values := wandering(r, 500, 0, 0.005, 0)
		fromStart := wandering(r, 500, 0, 0.005, 0)
		single := wandering(r, 500, 0, 0.005, 0)
		for i := range values {
			if i >= 160 && i%20 < 2 {
				values[i] *= 1.3
			}
			if i%20 == 19 {
				fromStart[i] *= 3
			}
			if r.IntN(80) == 0 {
				single[i] *= 1 + 3*r.Float64()
			}
		}
		if x := recurring(values, 0.005); x != nil && x.From == 160 {
			found++
		}
		if recurring(fromStart, 0.005) != nil {
			own++
		}
		if recurring(single, 0.005) != nil {
			wrong++
		}
	}
	if found < plays*95/100 || own > 0 || wrong > 0 {
		t.Errorf("found %d of %d, of the job's own %d, of single ones %d", found, plays, own, wrong)
	}
}
