package peer

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/jobtest"
)

func look(j *jobtest.Job, n int, h *Healthy) Result {
	_, profiles := j.Iteration(n, 1)
	return Judge(Window{
		Layout:    j.Layout,
		Placement: j.Placement,
		Comms:     j.Comms,
		Profiles:  profiles,
		Healthy:   h,
	})
}

// The distinguished iterations add up to what the hook reports for the whole window,
// and waits to those of the whole.
func TestStepsAddUp(t *testing.T) {
	for seed := range uint64(10) {
		j := jobtest.New(falcon.Layout{TP: 2, DP: 4, PP: 2}, 4, 6, seed)
		j.Clock["n1.g1"] = 0.6
		res := look(j, 4, nil)
		for _, r := range res.Ranks {
			if len(r.Steps) != 4 || len(r.StepWaits) != 4 {
				t.Fatalf("rank %d: %d steps and %d waits, want 4", r.Rank, len(r.Steps), len(r.StepWaits))
			}
			got := falcon.Median(slices.Clone(r.Steps))
			if math.Abs(got/r.SelfMs-1) > 0.03 {
				t.Errorf("rank %d: steps %v, self time %.2f", r.Rank, r.Steps, r.SelfMs)
			}
			waits := 0.0
			for _, w := range r.StepWaits {
				waits += w
			}
			if math.Abs(waits/4-r.WaitMs) > 1e-6*(1+r.WaitMs) {
				t.Errorf("rank %d: waits of steps %v, per iteration %.3f", r.Rank, r.StepWaits, r.WaitMs)
			}
		}
	}
}

// Calls that do not repeat are not distinguished, whatever they hold.
func TestStepsOfStrangeCalls(t *testing.T) {
	call := func(op falcon.Op, start, ms float64) falcon.CallTiming {
		return falcon.CallTiming{Op: op, StartMs: start, DurationMs: ms}
	}
	for name, p := range map[string]falcon.RankProfile{
		"none": {Iterations: 4},
		"odd number": {
			Iterations: 2,
			Calls:      []falcon.CallTiming{call(1, 0, 1), call(1, 2, 1), call(1, 4, 1)},
		},
		"other order": {
			Iterations: 2,
			Calls:      []falcon.CallTiming{call(1, 0, 1), call(9, 2, 1), call(9, 4, 1), call(1, 6, 1)},
		},
		"no numbers": {
			Iterations: 2,
			Calls:      []falcon.CallTiming{call(1, math.NaN(), math.NaN()), call(1, 1, 1)},
		},
		"infinite": {
			Iterations: 2,
			Calls:      []falcon.CallTiming{call(1, 0, math.Inf(1)), call(1, 1, 1)},
		},
		"no iterations": {Calls: []falcon.CallTiming{call(1, 0, 1)}},
	} {
		if g := computeGaps(&p); g != nil {
			t.Errorf("%s: %v", name, g)
		}
	}
}

// Uneven work is seen as such, a slow GPU or host is not, and a GPU that is
// slow in every iteration stays accused beside it.
func TestUnevenWork(t *testing.T) {
	for seed := range uint64(20) {
		j := jobtest.New(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, seed)
		h := &Healthy{}
		h.Learn(look(j, 4, h))
		switch seed % 4 {
		case 0:
			j.Lengths = 0.4
		case 1:
			j.Clock["n1.g0"] = 0.5
		case 2:
			j.Share["n1"] = 0.06
		case 3:
			j.Lengths, j.Clock["n1.g0"] = 0.3, 0.3
		}
		res := look(j, 4, h)
		if want := seed%4 == 0 || seed%4 == 3; res.Uneven != want {
			t.Errorf("seed %d: uneven %v, spread %.2f", seed, res.Uneven, res.Spread)
		}
		if seed%4 == 3 && !slices.Contains(res.Slow, 2) {
			t.Errorf("seed %d: slow are %v, want rank 2 among them", seed, res.Slow)
		}
		if seed%4 == 0 && len(res.Slow) > 1 {
			t.Errorf("seed %d: %v accused", seed, res.Slow)
		}
	}
}

// The watch against the rule written down plainly: a run of C ratios above the
// threshold is reported once, when it is reached, and once more when it ends.
func TestWatchAgainstThePlainRule(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		need := 1 + rng.IntN(4)
		w := NewWatch(1, 1.5, need)
		ratios := make([]float64, 40)
		for i := range ratios {
			ratios[i] = 1 + rng.Float64()
		}
		for i := range ratios {
			run := 0
			for run <= i && ratios[i-run] > 1.5 {
				run++
			}
			ended := 0
			for run == 0 && ended < i && ratios[i-1-ended] > 1.5 {
				ended++
			}
			s, announced := w.countStep(0, ratios[i])
			if n, failing := w.Steps(0); n != run || failing != (run >= need) {
				t.Fatalf("%v at %d: run %d, failing %v; want %d", ratios, i, n, failing, run)
			}
			if want := run == need || ended > 0; announced != want {
				t.Fatalf("%v at %d: announced %v, want %v", ratios, i, announced, want)
			}
			if announced && (s.Failing != (run == need) || s.Steps != max(run, ended)) {
				t.Fatalf("%v at %d: %+v", ratios, i, s)
			}
		}
	}
}

// A job without peers is watched by its own past.
func TestWatchWithoutPeers(t *testing.T) {
	j := jobtest.New(falcon.Layout{TP: 1, DP: 1, PP: 4}, 4, 8, 3)
	h := &Healthy{}
	h.Learn(look(j, 4, h))
	j.Clock["n2.g0"] = 0.5
	w := NewWatch(4, 1.5, 3)
	res := look(j, 4, h)
	got := w.Look(j.Layout, &res, 10)
	if len(got) != 1 || got[0].Rank != 2 || !got[0].Failing || got[0].Ratio < 1.8 {
		t.Errorf("%+v, want rank 2 failing", got)
	}
	if _, twice := w.Since(2); twice {
		t.Error("one window counts as two")
	}
	res = look(j, 2, h)
	w.Look(j.Layout, &res, 20)
	if at, twice := w.Since(2); at != 10 || !twice {
		t.Errorf("slow since %d, %v", at, twice)
	}
}
