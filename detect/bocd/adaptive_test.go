package bocd

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func adaptive() TrackerConfig {
	cfg := DefaultTrackerConfig()
	cfg.Verification = VerifyAdaptive
	return cfg
}

func paper() TrackerConfig {
	cfg := DefaultTrackerConfig()
	cfg.Verification = VerifyPaper
	return cfg
}

// TestAdaptiveMissesNothingOfThePaper: of a calm job each change of 12 % that the
// paper's rule tells is reported at once, early in the job, right after another one and
// as a ladder's last step.
func TestAdaptiveMissesNothingOfThePaper(t *testing.T) {
	for name, spans := range map[string][]span{
		"early":   {{30, 200}, {60, 224}},
		"again":   {{60, 200}, {40, 224}, {60, 251}},
		"back":    {{60, 200}, {40, 224}, {60, 200}},
		"ladder":  {{150, 300}, {150, 321}, {150, 344}},
		"unalike": {{20, 250}, {20, 260}, {40, 291}},
	} {
		for seed := range uint64(30) {
			xs := noisy(rand.New(rand.NewPCG(seed, 84)), 0.01, spans...)
			announced := verified(track(t, NewTracker(adaptive()), xs))
			for _, want := range verified(track(t, NewTracker(paper()), xs)) {
				late := 2
				// The job is known to be slow.
				if len(announced) > 0 && announced[0].DetectedAt < want.DetectedAt {
					late = 24
				}
				if want.Kind == KindOnset && !slices.ContainsFunc(announced, func(c Change) bool {
					return c.Kind == KindOnset &&
						c.DetectedAt <= want.DetectedAt+late &&
						relative(c.AfterMs, want.AfterMs) < 0.03
				}) {
					t.Errorf("%s, seed %d: %+v is not among %+v", name, seed, want, announced)
				}
			}
		}
	}
}

// TestPaperLetsPass: what is small is let pass unless it is asked for.
func TestPaperLetsPass(t *testing.T) {
	xs := noisy(rand.New(rand.NewPCG(1, 80)), 0.003, span{300, 105}, span{200, 111})
	if got := verified(track(t, NewTracker(paper()), xs)); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

// TestSmallOnsetAndRelief: what the noise proves is an onset at its place, and its
// end a relief, with the baseline where it was.
func TestSmallOnsetAndRelief(t *testing.T) {
	for _, x := range []struct{ size, cov float64 }{
		{0.056, 0.003},
		{0.02, 0.003},
		{0.03, 0.01},
		{0.2, 0.02},
	} {
		missed := 0
		for seed := range uint64(15) {
			xs := noisy(
				rand.New(rand.NewPCG(seed, 81)),
				x.cov,
				span{400, 105},
				span{200, 105 * (1 + x.size)},
				span{200, 105},
			)
			tr := NewTracker(adaptive())
			got := verified(track(t, tr, xs))
			if len(got) != 2 ||
				got[0].Kind != KindOnset ||
				got[1].Kind != KindRelief ||
				tr.Slow() ||
				relative(tr.BaselineMs(), 105) > 0.025 ||
				max(got[0].Index-400, 400-got[0].Index) > 8 ||
				max(got[1].Index-600, 600-got[1].Index) > 24 {
				missed++
				t.Logf("+%.1f %% at %.1f %%, seed %d: %+v", 100*x.size, 100*x.cov, seed, got)
			}
		}
		if missed > 1 {
			t.Errorf("+%.1f %% at %.1f %%: %d of 15", 100*x.size, 100*x.cov, missed)
		}
	}
}

// TestNoNoiseTellsOfItself: what the job's noise does by itself is no change, be it
// above what the paper's rule verifies.
func TestNoNoiseTellsOfItself(t *testing.T) {
	announced, plain := 0, 0
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 82))
		xs := noisy(rng, 0.03, span{1500, 300})
		// congestion of the network, short and as rough as it is high
		for i := 60; i+20 < len(xs); i += 60 + rng.IntN(120) {
			for k := range 8 + rng.IntN(8) {
				xs[i+k] *= 1.11 + 0.04*rng.NormFloat64()
			}
		}
		announced += len(verified(track(t, NewTracker(adaptive()), xs)))
		plain += len(verified(track(t, NewTracker(paper()), xs)))
	}
	if 3*announced > plain {
		t.Errorf("%d changes announced, by the paper's rule %d", announced, plain)
	}
}

// TestSmallSurvivesHostileSeries as the paper's rule does.
func TestSmallSurvivesHostileSeries(t *testing.T) {
	for name, xs := range hostile() {
		tr := NewTracker(adaptive())
		for i, x := range xs {
			cs, err := tr.Observe(x)
			if err != nil {
				t.Fatal(err)
			}
			checkTracker(t, tr, cs, name, i)
		}
	}
}

// TestSmallReliefOnADriftedLevel: a job that the weather made 3 % slower than its
// best is healthy at that level after a small slowdown.
func TestSmallReliefOnADriftedLevel(t *testing.T) {
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 83))
		xs := noisy(rng, 0.003, span{400, 100})
		for i := range 3000 {
			xs = append(xs, (100+0.001*float64(i))*(1+0.003*rng.NormFloat64()))
		}
		xs = append(xs, noisy(rng, 0.003, span{400, 103}, span{200, 106}, span{200, 103})...)
		tr := NewTracker(adaptive())
		track(t, tr, xs[:3800])
		if tr.Slow() { // the drift itself was told
			tr.Rebase(0)
		}
		got := verified(track(t, tr, xs[3800:]))
		if len(got) != 2 ||
			got[0].Kind != KindOnset ||
			got[1].Kind != KindRelief ||
			tr.Slow() {
			t.Errorf("seed %d: %+v, slow %v", seed, got, tr.Slow())
		}
	}
}
