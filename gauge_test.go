package falcon

import (
	"math"
	"testing"
)

// What an engine may show to consoles has its place.
func TestGaugesHavePlaces(t *testing.T) {
	if GaugeCount > 16 {
		t.Errorf("%d gauges: raise GaugesMost in backend/api/columns, and this bound", GaugeCount)
	}
}

func TestGauges(t *testing.T) {
	keys := map[string]bool{}
	for _, g := range AllGauges() {
		if g.Key() == "" || g.Name() == "" || g.Unit() == "" || keys[g.Key()] {
			t.Errorf("gauge %d is %q, %q in %q", g, g.Key(), g.Name(), g.Unit())
		}
		keys[g.Key()] = true
		for x, want := range map[float64]int{0: 0, 0.4: 0, 61.5: 62, 700: 700} {
			var v Gauges
			v.Set(g, x)
			if got, ok := v.Value(g); got != want || !ok {
				t.Errorf("%v of %s is shown as %d, %v", x, g.Key(), got, ok)
			}
		}
	}
	for _, x := range []float64{-1, math.NaN(), math.Inf(1), math.MaxInt32} {
		v := Gauges{5, 5}
		if v.Set(GaugeMemory, x); v[1] != 0 {
			t.Errorf("%v is known: %v", x, v)
		}
	}
	for _, v := range []Gauges{nil, {7}, {7, 0}, {7, math.MaxUint32}} {
		if x, ok := v.Value(GaugeMemory); ok {
			t.Errorf("%v has %d", v, x)
		}
	}
}
