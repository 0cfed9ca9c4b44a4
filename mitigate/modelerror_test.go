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
		err := errorExceedsGain(plan{beforeMs: 100, gainMs: c.gain, modelError: c.off})
		if (err != nil) != c.want {
			t.Errorf("gain %v %% of a model %v off: %v", c.gain, c.off, err)
		}
	}
	for _, c := range []struct{ model, measured, want float64 }{
		{113, 100, 0.13},
		{87, 100, 0.13},
		{0, 100, 0},
		{100, 0, 0},
		{100, 100, 0},
	} {
		got := modelError(c.model, c.measured)
		if got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("model %v measured %v: off by %v", c.model, c.measured, got)
		}
	}
}

func TestErrorOfChange(t *testing.T) {
	for _, c := range []struct {
		name                               string
		model, healthyModel, ms, healthyMs float64
		want                               float64
	}{
		{"right", 120, 100, 120, 100, 0},
		{"as wrong when all was well", 132, 110, 120, 100, 0},
		{"right when all was well, the machines' load since", 120, 100, 138, 100, 18.0 / 138},
		{"the fastest is slow too", 120, 115, 120, 100, 0},
		{"wrong the other way when all was well", 132, 95, 120, 100, 0.1},
		{"the healthy time is not known", 132, 110, 120, 0, 0.1},
		{"nor what the model makes of it", 132, 0, 120, 100, 0.1},
		{"nor that of now", 0, 110, 120, 100, 0},
	} {
		got := errorOfChange(c.model, c.healthyModel, c.ms, c.healthyMs)
		if got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%s: off by %v, want %v", c.name, got, c.want)
		}
	}
}
