package mitigate

import (
	"testing"
)

func TestDoubt(t *testing.T) {
	for _, c := range []struct {
		gain, off float64
		want      bool // doubted
	}{
		{3.5, 0.13, true},   // 3.5 % by a model that is 13 % wrong
		{13, 0.13, true},    // as much as the error is no evidence either
		{13.1, 0.13, false}, // more is
		{3.5, 0.02, false},
		{3.5, 0, false},    // nothing is known of an error
		{14, 3, true},      // any model
		{15.1, 3, false},   // but never beyond the bound
		{15.1, 0.2, false}, // likewise
	} {
		if err := errorExceedsGain(plan{beforeMs: 100, gainMs: c.gain, modelError: c.off}); (err != nil) != c.want {
			t.Errorf("gain %v %% of a model %v off: %v", c.gain, c.off, err)
		}
	}
	for _, c := range []struct{ model, measured, want float64 }{{113, 100, 0.13}, {87, 100, 0.13}, {0, 100, 0}, {100, 0, 0}, {100, 100, 0}} {
		if got := modelError(c.model, c.measured); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("model %v measured %v: off by %v", c.model, c.measured, got)
		}
	}
}
