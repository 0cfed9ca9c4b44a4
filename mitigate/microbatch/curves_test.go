package microbatch

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

func bruteCurves(curves [][]float64, total int) float64 {
	best := math.Inf(1)
	var walk func(i, rest int, worst float64)
	walk = func(i, rest int, worst float64) {
		if i == len(curves) {
			if rest == 0 {
				best = min(best, worst)
			}
			return
		}
		for m := 1; m < len(curves[i]) && m <= rest; m++ {
			walk(i+1, rest-m, max(worst, curves[i][m]))
		}
	}
	walk(0, total, 0)
	return best
}

func TestSolveCurvesAgainstBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range 20_000 {
		curves := make([][]float64, 1+r.IntN(4))
		for i := range curves {
			curves[i] = make([]float64, 2+r.IntN(7))
			for m := 1; m < len(curves[i]); m++ {
				curves[i][m] = curves[i][m-1] + float64(r.IntN(4))
			}
		}
		total := 1 + r.IntN(14)
		want := bruteCurves(curves, total)
		m, got, err := SolveCurves(curves, total)
		if math.IsInf(want, 1) {
			if !errors.Is(err, ErrInfeasible) {
				t.Fatalf("%v total %d: infeasible, got %v %v", curves, total, m, err)
			}
			continue
		}
		sum := 0
		for _, k := range m {
			sum += k
		}
		if err != nil || got != want || sum != total {
			t.Fatalf("%v total %d: got %v sum %d (%v), want %v", curves, total, got, sum, err, want)
		}
	}
}
