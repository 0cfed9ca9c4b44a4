package falcon_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{
		{nil, 0},
		{[]float64{3}, 3},
		{[]float64{4, 1}, 2.5},
		{[]float64{9, 1, 5}, 5},
		{[]float64{8, 1, 2, 3}, 2.5},
		{[]float64{math.MaxFloat64, math.MaxFloat64}, math.MaxFloat64},
	} {
		if got := falcon.Median(c.in); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.in, got, c.want)
		}
	}
}

// At most half of the values are on either side of the median.
func TestMedianHalves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 40).Draw(t, "v")
		below := 0
		above := 0
		m := falcon.Median(append([]float64(nil), v...))
		for _, x := range v {
			if x < m {
				below++
			}
			if x > m {
				above++
			}
		}
		if 2*below > len(v) || 2*above > len(v) {
			t.Errorf("%v is no median of %v: %d below, %d above", m, v, below, above)
		}
	})
}
