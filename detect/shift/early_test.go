package shift

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A small change that comes before the noise is known is reported once it is, with the point at
// which it came; one that has gone by then is not.
func TestAChangeBeforeTheNoiseIsKnown(t *testing.T) {
	for _, x := range []struct {
		size, cov float64
		after     int // points before the change
	}{
		{0.03, 0.001, 45},
		{0.056, 0.003, 20},
		{0.07, 0.005, 26},
		{0.033, 0.003, 50},
		{0.07, 0.003, 40},
		{0.07, 0.01, 60},
		{-0.05, 0.003, 45},
		{0.05, 0.01, 100},
	} {
		missed := 0
		for seed := range uint64(20) {
			rng := rand.New(rand.NewPCG(seed, 9))
			w := New(Config{})
			quiet := feed(w, rng, x.after, 100, x.cov)
			announced := feed(w, rng, 300, 100*(1+x.size), x.cov)
			if len(quiet) > 0 ||
				len(announced) != 1 ||
				math.Abs(float64(announced[0].Index-x.after)) > 8 ||
				announced[0].Points > 200 ||
				math.Abs(announced[0].After/announced[0].Before-1-x.size) > 0.015 {
				missed++
				t.Logf("%+.1f %% at %.1f %% after %d, seed %d: %v, %v",
					100*x.size, 100*x.cov, x.after, seed, quiet, announced)
			}
		}
		if missed > 1 {
			t.Errorf("%+.1f %% at %.1f %% after %d: %d of 20 missed", 100*x.size, 100*x.cov, x.after, missed)
		}
	}
}

func TestWhatIsOverBeforeTheNoiseIsKnown(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 10))
		w := New(Config{})
		feed(w, rng, 40, 100, 0.003)
		announced := feed(w, rng, 40, 105, 0.003)
		announced = append(announced, feed(w, rng, 600, 100, 0.003)...)
		if len(announced) > 0 {
			t.Errorf("seed %d: %v", seed, announced)
		}
	}
}

// Two steps before the noise is known are one change, from the level before the first.
func TestTwoStepsBeforeTheNoiseIsKnown(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 11))
	w := New(Config{})
	feed(w, rng, 40, 100, 0.002)
	announced := feed(w, rng, 40, 104, 0.002)
	announced = append(announced, feed(w, rng, 300, 108, 0.002)...)
	if len(announced) != 1 ||
		math.Abs(announced[0].Before-100) > 0.5 ||
		math.Abs(announced[0].After-108) > 0.5 {
		t.Errorf("%v", announced)
	}
}

// Noise alone is not reported for the sake of a level from before it was known.
func TestNoEarlyChangeInNoise(t *testing.T) {
	for _, cov := range []float64{0.003, 0.01, 0.03, 0.1} {
		announced := 0
		for seed := range uint64(300) {
			rng := rand.New(rand.NewPCG(seed, 12))
			w := New(Config{})
			announced += len(feed(w, rng, 400, 100, cov))
		}
		if announced > 3 { // 120,000 points at 2e-5 are 2.4
			t.Errorf("noise of %.1f %%: %d changes announced in 300 beginnings", 100*cov, announced)
		}
	}
}
