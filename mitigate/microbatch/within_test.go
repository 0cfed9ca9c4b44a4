package microbatch

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// tryAll is the second implementation: every split within the bounds.
func tryAll(curves [][]float64, total int, b Bounds, i int) float64 {
	if i == len(curves) {
		if total == 0 {
			return 0
		}
		return math.Inf(1)
	}
	best := math.Inf(1)
	for m := 1; m < len(curves[i]) && m <= total; m++ {
		if (b.Min != nil && m < b.Min[i]) ||
			(b.Max != nil && m > b.Max[i]) ||
			(b.MultipleOf != nil && m%b.MultipleOf[i] != 0) {
			continue
		}
		best = min(best, max(curves[i][m], tryAll(curves, total-m, b, i+1)))
	}
	return best
}

func TestSolveWithinEqualsTryingAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, total := rapid.IntRange(1, 4).Draw(t, "replicas"), rapid.IntRange(1, 16).Draw(t, "total")
		var curves [][]float64
		for range n {
			c := []float64{0}
			at := 0.0
			for range rapid.IntRange(1, 16).Draw(t, "most") {
				at += float64(rapid.IntRange(0, 5).Draw(t, "step"))
				c = append(c, at)
			}
			curves = append(curves, c)
		}
		var b Bounds
		many := func(name string, lo, hi int) []int {
			return rapid.SliceOfN(rapid.IntRange(lo, hi), n, n).Draw(t, name)
		}
		if rapid.Bool().Draw(t, "bounded") {
			b.Min = many("min", 0, 3)
			b.Max = many("max", 1, 16)
		}
		switch rapid.IntRange(0, 2).Draw(t, "multiples") {
		case 1:
			q := rapid.IntRange(1, 4).Draw(t, "multiple")
			for range n {
				b.MultipleOf = append(b.MultipleOf, q)
			}
		case 2:
			b.MultipleOf = many("multiples", 1, 4)
		}
		want := tryAll(curves, total, b, 0)
		m, got, err := SolveCurvesWithin(curves, total, b)
		if (err != nil) != math.IsInf(want, 1) || (err == nil && got != want) {
			t.Fatalf("%v ms by %v (%v), trying all finds %v", got, m, err, want)
		}
		if err == nil &&
			(sumCounts(m) != total ||
				tryAll(curves, total, Bounds{Min: m, Max: m, MultipleOf: b.MultipleOf}, 0) != got) {
			t.Fatalf("%v does not keep the bounds %+v", m, b)
		}
	})
}

func TestSolveWithinSaysWhatIsWrong(t *testing.T) {
	curves := [][]float64{{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}}
	for _, c := range []struct {
		b    Bounds
		want error
	}{
		{Bounds{Min: []int{1}}, ErrInput},
		{Bounds{MultipleOf: []int{0, 1}}, ErrInput},
		{Bounds{Max: []int{1, 1}}, ErrInfeasible},
		{Bounds{MultipleOf: []int{3, 3}}, ErrInfeasible},
		{Bounds{Min: []int{3, 1}, Max: []int{2, 4}}, ErrInfeasible},
	} {
		if _, _, err := SolveCurvesWithin(curves, 4, c.b); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c.b, err)
		}
	}
}
