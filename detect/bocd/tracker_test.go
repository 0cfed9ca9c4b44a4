package bocd

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// noisy is n points around each level in turn, with the given coefficient of
// variation.
func noisy(rng *rand.Rand, cov float64, spans ...span) []float64 {
	var out []float64
	for _, s := range spans {
		for range s.n {
			out = append(out, s.ms*(1+cov*rng.NormFloat64()))
		}
	}
	return out
}

type span struct {
	n  int
	ms float64
}

func verified(cs []Change) []Change {
	var out []Change
	for _, c := range cs {
		if c.Kind != KindJitter {
			out = append(out, c)
		}
	}
	return out
}

// TestOnsetWithinFive: +80 % at iteration 40 and 2 % noise, two hundred seeds.
func TestOnsetWithinFive(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		xs := noisy(rng, 0.02, span{40, 210}, span{120, 378}, span{60, 210})
		got := verified(track(t, NewTracker(DefaultTrackerConfig()), xs))
		if len(got) != 2 || got[0].Kind != KindOnset || got[1].Kind != KindRelief {
			t.Fatalf("seed %d: %+v", seed, got)
		}
		on, off := got[0], got[1]
		if on.Index != 40 ||
			on.DetectedAt > 45 ||
			off.Index != 160 ||
			off.DetectedAt > 165 {
			t.Fatalf("seed %d: %+v", seed, got)
		}
		if math.Abs(on.Change-0.8) > 0.1 || on.Probability <= 0.9 {
			t.Fatalf("seed %d: %+v", seed, on)
		}
	}
}

// TestSmallOnsets: changes from 15 % up are found at their place.
func TestSmallOnsets(t *testing.T) {
	for _, size := range []float64{0.15, 0.2, 0.3, 0.5} {
		missed := 0
		for seed := range uint64(100) {
			rng := rand.New(rand.NewPCG(seed, 2))
			xs := noisy(rng, 0.02, span{60, 500}, span{60, 500 * (1 + size)})
			got := verified(track(t, NewTracker(DefaultTrackerConfig()), xs))
			if len(got) != 1 || got[0].Index < 59 || got[0].Index > 61 {
				missed++
			}
		}
		t.Logf("+%.0f %%: %d of 100 missed", 100*size, missed)
		if missed > 2 {
			t.Errorf("+%.0f %%: %d of 100 missed", 100*size, missed)
		}
	}
}

func TestQuietOnSpikesAndStalls(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 3))
		xs := noisy(rng, 0.02, span{1000, 300})
		for i := 25; i+1 < len(xs); i += 20 + rng.IntN(60) {
			switch rng.IntN(3) {
			case 0:
				xs[i] *= 2.3
			case 1:
				xs[i] *= 400 // a stall of minutes
			default:
				xs[i], xs[i+1] = xs[i]*2, xs[i+1]*2.3
			}
		}
		if got := verified(track(t, NewTracker(DefaultTrackerConfig()), xs)); len(got) != 0 {
			t.Fatalf("seed %d: %+v", seed, got)
		}
	}
}

func TestTrackerSurvivesHostileSeries(t *testing.T) {
	for name, xs := range hostile() {
		tr := NewTracker(DefaultTrackerConfig())
		for i, x := range xs {
			cs, err := tr.Observe(x)
			if err != nil {
				t.Fatal(err)
			}
			checkTracker(t, tr, cs, name, i)
			if name == "constant" && len(cs) > 0 {
				t.Fatalf("%s[%d]: %+v", name, i, cs)
			}
		}
	}
}

func checkTracker(t testing.TB, tr *Tracker, cs []Change, name string, i int) {
	t.Helper()
	for _, v := range []float64{tr.BaselineMs(), tr.LevelMs(), tr.PRecent()} {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Fatalf("%s[%d]: %v", name, i, v)
		}
	}
	for _, c := range cs {
		for _, v := range []float64{c.BeforeMs, c.AfterMs, c.Change, c.Probability} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("%s[%d]: %+v", name, i, c)
			}
		}
		if c.Index < 0 || c.Index > c.DetectedAt || c.DetectedAt != tr.Seen()-1 {
			t.Fatalf("%s[%d]: %+v", name, i, c)
		}
	}
	checkPosterior(t, tr.filter, name, i)
}

func TestTrackerRefusesWhatIsNotFinite(t *testing.T) {
	tr := NewTracker(DefaultTrackerConfig())
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		_, err := tr.Observe(x)
		if !errors.Is(err, ErrNotFinite) || tr.Seen() != 0 {
			t.Errorf("%v: %v, %d seen", x, err, tr.Seen())
		}
	}
}

// TestSettleKeepsActionsApart: a change inside the settle window becomes the
// level without opening or ending an incident.
func TestSettleKeepsActionsApart(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	xs := noisy(
		rng,
		0.01,
		span{40, 200},
		span{30, 380},
		span{40, 250},
		span{40, 200},
	)
	tr := NewTracker(DefaultTrackerConfig())
	tr.Settle(68, 6, math.Inf(1))
	got := verified(track(t, tr, xs))
	if len(got) != 3 ||
		got[0].Kind != KindOnset ||
		got[1].Kind != KindSettled ||
		got[2].Kind != KindRelief {
		t.Fatalf("%+v", got)
	}
	if tr.Slow() || math.Abs(tr.BaselineMs()-200) > 4 {
		t.Errorf("slow %v, baseline %.1f", tr.Slow(), tr.BaselineMs())
	}
}

// TestCreepingRelief: the incident ends although no single step reaches 10 %.
func TestCreepingRelief(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	xs := noisy(rng, 0.005, span{40, 200}, span{40, 260})
	for ms := 260.0; ms > 200; ms -= 0.5 {
		xs = append(xs, ms)
	}
	xs = append(xs, noisy(rng, 0.005, span{40, 200})...)
	tr := NewTracker(DefaultTrackerConfig())
	got := verified(track(t, tr, xs))
	if len(got) < 2 ||
		got[0].Kind != KindOnset ||
		got[len(got)-1].Kind != KindRelief ||
		tr.Slow() {
		t.Fatalf("slow %v: %+v", tr.Slow(), got)
	}
}

func TestRebase(t *testing.T) {
	tr := NewTracker(DefaultTrackerConfig())
	track(
		t,
		tr,
		noisy(rand.New(rand.NewPCG(1, 1)), 0.01, span{40, 200}, span{40, 400}),
	)
	if !tr.Slow() {
		t.Fatal("no onset")
	}
	tr.Rebase(0)
	if tr.Slow() || math.Abs(tr.BaselineMs()-400) > 10 {
		t.Errorf("slow %v, baseline %.1f", tr.Slow(), tr.BaselineMs())
	}
}

func FuzzObserve(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, data []byte) {
		tr := NewTracker(DefaultTrackerConfig())
		for i := 0; i+8 <= len(data) && i < 8*400; i += 8 {
			bits := uint64(0)
			for _, b := range data[i : i+8] {
				bits = bits<<8 | uint64(b)
			}
			x := math.Float64frombits(bits)
			cs, err := tr.Observe(x)
			if (err != nil) != (math.IsNaN(x) || math.IsInf(x, 0)) {
				t.Fatalf("%v: %v", x, err)
			}
			if err == nil {
				checkTracker(t, tr, cs, "fuzz", i/8)
			}
		}
	})
}
