package detect

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/bocd"
)

// small is a world whose job is judged by its own noise.
func small(l falcon.Layout, nodes, micro int, noise float64, seed uint64) *world {
	w := newWorld(l, nodes, micro, seed)
	cfg := DefaultConfig()
	cfg.Tracker.Verification = bocd.VerifyAdaptive
	w.m = New(cfg)
	w.describe()
	w.job.Noise = noise
	return w
}

// One GPU of many a few percent slower: it is named, and relieved once it is back.
func TestASlightlySlowGPUIsNamed(t *testing.T) {
	for _, clock := range []float64{0.96, 0.93} {
		named := 0
		for seed := range uint64(10) {
			rng := rand.New(rand.NewPCG(seed, 90))
			w := small(falcon.Layout{TP: 1, DP: 8, PP: 2}, 4, 8, 0.005, seed)
			w.run(300)
			if len(w.all) > 0 {
				t.Fatalf("clock %g, seed %d: a healthy job has %+v\n%s", clock, seed, w.all, w.out.String())
			}
			d := w.job.Placement[rng.IntN(16)]
			w.job.Clock[d] = clock
			w.run(120)
			w.clearFaults()
			w.run(120)
			if len(w.all) == 1 &&
				w.all[0].Verdict.Cause == falcon.CauseGPU &&
				slices.Equal(w.all[0].Verdict.Devices, []falcon.Device{d}) &&
				w.all[0].State == falcon.IncidentClosed {
				named++
				continue
			}
			for _, inc := range w.all {
				if len(inc.Verdict.Devices)+len(inc.Verdict.Links) > 0 &&
					!slices.Equal(inc.Verdict.Devices, []falcon.Device{d}) {
					t.Errorf("clock %g, seed %d: %v is named, not %s\n%s",
						clock, seed, inc.Verdict, d, w.out.String())
				}
			}
			t.Logf("clock %g, seed %d: %d incidents\n%s",
				clock, seed, len(w.all), w.out.String())
		}
		t.Logf("clock %g: named and relieved in %d of 10", clock, named)
		if named < 9 {
			t.Errorf("clock %g: %s is named and relieved in %d of 10", clock, "the GPU", named)
		}
	}
}

// Work of the job that grows a little on all ranks blames no hardware.
func TestALittleMoreWorkIsNoHardware(t *testing.T) {
	for seed := range uint64(10) {
		w := small(falcon.Layout{TP: 1, DP: 4, PP: 4}, 4, 8, 0.005, seed)
		w.run(300)
		w.job.Load = []float64{1.06, 1.06, 1.06, 1.06}
		w.run(120)
		for _, inc := range w.all {
			if len(inc.Verdict.Devices)+len(inc.Verdict.Links) > 0 {
				t.Errorf("seed %d: %+v\n%s", seed, inc.Verdict, w.out.String())
			}
		}
	}
}

// A healthy job has no incident, whatever its noise.
func TestHealthyJobsStayQuiet(t *testing.T) {
	for seed := range uint64(12) {
		w := small(
			falcon.Layout{TP: 1, DP: 4, PP: 2},
			4,
			8,
			0.002+0.002*float64(seed),
			seed,
		)
		w.job.Hiccup = 0.02
		if seed%3 == 0 {
			w.job.Lengths = 0.1 // sequences of different length
		}
		w.run(1200)
		if len(w.all) > 0 {
			t.Errorf("seed %d: %+v\n%s", seed, w.all, w.out.String())
		}
	}
}

// A link that costs a little names no device.
func TestASlightlySlowLinkNamesNoDevice(t *testing.T) {
	named := 0
	for seed := range uint64(10) {
		w := small(falcon.Layout{TP: 1, DP: 4, PP: 2}, 8, 8, 0.004, seed)
		w.nics = true
		w.run(300)
		w.job.Link[falcon.NewLink("n0", "n2")] = 0.5
		w.run(150)
		for _, inc := range w.all {
			if len(inc.Verdict.Devices) > 0 {
				t.Errorf("seed %d: %+v\n%s", seed, inc.Verdict, w.out.String())
			}
			if slices.Contains(inc.Verdict.Links, falcon.NewLink("n0", "n2")) {
				named++
			}
		}
	}
	t.Logf("the link is named in %d of 10", named)
}

// A hidden incident, whose fault shows in no iteration, does not make everything
// suspicious.
func TestWhatCostsNothingIsNotSmall(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Tracker.Verification = bocd.VerifyAdaptive
	for ms, want := range map[float64]bool{
		100: false,
		101: false,
		102: true,
		109: true,
		111: false,
		99:  false,
	} {
		if cfg.isSmall(100, ms) != want {
			t.Errorf("%.0f after 100 ms: small is %t", ms, !want)
		}
	}
	cfg.Tracker.Verification = bocd.VerifyPaper
	if cfg.isSmall(100, 106) {
		t.Error("by the paper's rule nothing is small")
	}
}
