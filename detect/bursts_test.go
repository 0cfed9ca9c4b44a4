package detect

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

// play runs n iterations one at a time, so that a window costs no more of them
// than it covers; every one is slower by a factor.
func play(w *world, n int, factor float64) {
	for range n {
		w.job.Load = []float64{factor, factor}
		if w.request != nil {
			w.request.Iterations = 1 // the others of the window fall into the next
		}
		w.run(1)
	}
	w.job.Load = nil
}

// What is over before it has lasted is a line in the log, whatever its length
// and depth, and takes no id.
func TestShortBurstsAreNoIncident(t *testing.T) {
	passed := 0
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 21))
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, seed)
		w.counters = false
		w.job.Noise = 0.02
		play(w, 40, 1)
		for range 3 {
			w.refuse = 5 // no profile answers in time
			play(w, 3+rng.IntN(4), 1.6+0.6*rng.Float64())
			w.refuse = 0
			play(w, 110, 1)
		}
		if len(w.all) > 0 {
			t.Errorf("seed %d: %+v\n%s", seed, w.all[0], w.out.String())
		}
		passed += strings.Count(w.out.String(), "no incident")
	}
	if passed < 18 {
		t.Errorf("%d of 36 bursts were verified at all: the case does not test the rule", passed)
	}
}

// One that lasts is reported after eight iterations at the latest, with the
// iteration at which it was verified, though no window can be had.
func TestALastingSlowdownIsToldInTime(t *testing.T) {
	for seed := range uint64(12) {
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, seed)
		play(w, 40, 1)
		w.refuse = 100
		for w.job.Next() < 80 && len(w.all) == 0 {
			play(w, 1, 1.3+0.1*float64(seed))
		}
		if len(w.all) != 1 {
			t.Fatalf("seed %d: nothing announced\n%s", seed, w.out.String())
		}
		inc := w.all[0]
		announced := w.job.Next() - 1
		if inc.State != falcon.IncidentVerified ||
			announced > max(inc.DetectedIteration, 47) ||
			inc.DetectedIteration > 47 {
			t.Errorf("seed %d: announced at %d: %+v", seed, announced, inc)
		}
	}
}

// Bursts of different levels, or far apart, are not one fault.
func TestWhatMakesBurstsIntermittent(t *testing.T) {
	for _, tt := range []struct {
		factors []float64
		gap     int
		longer  int // each gap than the one before
		want    int
	}{
		{[]float64{2, 2, 2}, 25, 7, 1},
		{[]float64{2, 2.2, 1.9, 2, 2}, 20, 9, 1},
		{[]float64{2, 2}, 30, 7, 0},
		{[]float64{2, 2, 2}, 60, 7, 0},
		{[]float64{1.3, 2.6, 1.8}, 25, 7, 0},
		{[]float64{2, 2, 2, 2, 2, 2, 2, 2}, 30, 0, 0}, // a checkpoint every 35 iterations
	} {
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, 3)
		w.counters = false
		play(w, 40, 1)
		for i, f := range tt.factors {
			w.refuse = 5
			play(w, 5, f)
			w.refuse = 0
			play(w, tt.gap+i*tt.longer, 1)
		}
		play(w, 120, 1)
		if len(w.all) != tt.want || len(w.m.Open()) > 0 {
			t.Errorf("%v every %d: %d incidents, want %d\n%s",
				tt.factors, tt.gap, len(w.all), tt.want, w.out.String())
		}
	}
}
