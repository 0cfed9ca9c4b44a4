package detect

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

var (
	largeRanks = flag.Int("large-ranks", 2000, "ranks of the job in TestOneSlowRankOfMany, a multiple of 40")
	largeSeeds = flag.Int("large-seeds", 1, "places and moments in TestOneSlowRankOfMany")
)

// found is how a slow rank was found, in iterations after its onset.
type found struct {
	onset             int64 // as told, less the true one
	verified, located int64
	calls             int // timings of calls in the windows from the onset on
	verdict           falcon.Verdict
}

// findOne slows one rank of a job by 30 %, some iterations after its start, and plays until
// somebody is named. The rank follows from the seed.
func findOne(t *testing.T, ranks, after int, seed uint64) (found, falcon.Device) {
	t.Helper()
	const tp, pp = 8, 5
	rng := rand.New(rand.NewPCG(seed, 17))
	w := newWorld(
		falcon.Layout{TP: tp, DP: ranks / tp / pp, PP: pp},
		ranks/tp,
		4,
		seed,
	)
	w.run(after)
	if len(w.all) > 0 {
		t.Fatalf("%d ranks, seed %d: an incident before the fault: %s", ranks, seed, w.out.String())
	}
	bad := w.job.Placement[rng.IntN(ranks)]
	w.job.Clock[bad] = 1 / 1.3
	onset := w.job.Next()
	out := found{}
	for w.job.Next() < onset+250 {
		w.onProfile = func(p []falcon.RankProfile) {
			for i := range p {
				out.calls += len(p[i].Calls)
			}
		}
		w.run(1)
		if len(w.all) > 0 && w.all[0].State == falcon.IncidentLocated {
			out.onset = w.all[0].OnsetIteration - onset
			out.verified = w.all[0].DetectedIteration - onset
			out.located = w.job.Next() - onset
			out.verdict = w.all[0].Verdict
			return out, bad
		}
	}
	t.Fatalf("%d ranks, seed %d: nobody is named: %s", ranks, seed, w.out.String())
	return out, bad
}

// One slow rank of a very large job is verified and named within three iterations of what the
// same fault takes in a job of 1,000, and nobody else is named.
func TestOneSlowRankOfMany(t *testing.T) {
	for seed := range uint64(*largeSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			after := 120 + int(seed)
			small, one := findOne(t, 1000, after, seed)
			large, other := findOne(t, *largeRanks, after, seed)
			for _, x := range []struct {
				found
				bad falcon.Device
			}{{small, one}, {large, other}} {
				v := x.verdict
				if v.Cause != falcon.CauseGPU ||
					!slices.Equal(v.Devices, []falcon.Device{x.bad}) {
					t.Errorf("%s is slow, the verdict is %s on %v", x.bad, v.Cause, v.Devices)
				}
			}
			t.Logf(
				"1,000 ranks: verified %d, located %d iterations after the onset, %d calls; %d ranks: %d, %d, %d calls",
				small.verified, small.located, small.calls, *largeRanks, large.verified,
				large.located, large.calls,
			)
			if large.verified > small.verified+3 || large.located > small.located+3 {
				t.Errorf("later than in the job of 1,000 by more than 3 iterations: %+v, %+v", large, small)
			}
		})
	}
}

// A slow rank costs a job of many stages a few percent. It is found also where that begins
// before the job's noise is known.
func TestSmallSlownessEarly(t *testing.T) {
	for seed := range uint64(5) {
		got, bad := findOne(t, 400, 40+4*int(seed), seed)
		v := got.verdict
		if v.Cause != falcon.CauseGPU ||
			!slices.Equal(v.Devices, []falcon.Device{bad}) ||
			got.located > 200 ||
			max(got.onset, -got.onset) > 8 {
			t.Errorf(
				"seed %d: %s is slow, after %d iterations the verdict is %s on %v, with an onset %d iterations off",
				seed, bad, got.located, v.Cause, v.Devices, got.onset,
			)
		}
	}
}
