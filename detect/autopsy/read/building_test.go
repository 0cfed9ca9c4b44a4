package read

import (
	"math"
	"testing"

	"github.com/failslow/falcon/detect/autopsy"
)

// A series of any length has bounded points, which are means of as many values each, in order.
func TestALongSeriesIsBounded(t *testing.T) {
	var b building
	const n = 5*pointsMost + 3
	for i := range n {
		b.add(autopsy.Point{Value: float64(i), Iteration: int64(i)})
	}
	b.close()
	if len(b.points) > pointsMost || len(b.points) < pointsMost/2 {
		t.Fatalf("%d points", len(b.points))
	}
	for k, p := range b.points {
		want := float64(k*b.each) + float64(b.each-1)/2
		if p.Iteration != int64(k*b.each) || math.Abs(p.Value-want) > 1e-6 {
			t.Fatalf("point %d of %d values: %+v, want %g", k, b.each, p, want)
		}
	}
}

// Of the values of one iteration the largest counts.
func TestRanksOfOneIteration(t *testing.T) {
	var b building
	for i := range 30 {
		for r := range 3 {
			b.add(autopsy.Point{
				Value:     float64(10*i + (r+i)%3),
				Iteration: int64(i),
			})
		}
	}
	b.close()
	if len(b.points) != 30 || b.ranks != 60 || b.points[7].Value != 72 {
		t.Errorf("%d points, %d merged, %+v", len(b.points), b.ranks, b.points[7])
	}
}
