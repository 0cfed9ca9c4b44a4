package detect

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/jobtest"
)

// swap exchanges two blocks of n and leaves the others.
func swap(n, a, b int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	out[a], out[b] = out[b], out[a]
	return out
}

// ring is the ring of a stage as links between nodes.
func ringOn(w *world, stage int) []falcon.Link {
	ring := w.job.Layout.Groups(falcon.DimDP)[stage].Ranks
	var out []falcon.Link
	for i := range ring {
		out = append(out, falcon.NewLink(
			w.job.Placement[ring[i]].Node(),
			w.job.Placement[ring[(i+1)%len(ring)]].Node(),
		))
	}
	return out
}

// A swap's own long iteration is no onset, a healthy job stays without
// incidents after it and back, and everything learnt of devices goes with them.
func TestAPlacementIsNoOnset(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 31))
		w := rings(seed)
		for range 4 {
			a := rng.IntN(8)
			w.place("INC-0001", false, swap(8, a, (a+1+rng.IntN(7))%8))
			w.run(20 + rng.IntN(40))
		}
		if len(w.all) > 0 || strings.Contains(w.out.String(), "New baseline") {
			t.Errorf("seed %d: %+v\n%s", seed, w.all, w.out.String())
		}
	}
}

// A slow GPU keeps its incident under its new rank, its relief is seen there,
// and no other rank is blamed for it.
func TestASlowGPUGoesOnUnderItsNewRank(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 32))
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 4}, 8, 8, seed)
		w.job.Noise = 0.02
		w.counters = seed%2 == 0
		w.run(35)
		d := w.job.Placement[rng.IntN(16)]
		w.job.Clock[d] = 0.5
		w.run(25)
		wantOpen(t, w, gpu(d))
		a := int(rankOf(w, d)) / 2
		w.place("INC-0001", false, swap(8, a, (a+1+rng.IntN(7))%8))
		w.run(60 + rng.IntN(40))
		wantOpen(t, w, gpu(d))
		got := w.m.Open()[0].Verdict.Ranks
		if !slices.Equal(got, []falcon.Rank{rankOf(w, d)}) {
			t.Errorf("seed %d: ranks %v, want %d", seed, got, rankOf(w, d))
		}
		cleared := w.job.Next()
		w.clearFaults()
		for w.job.Next() < cleared+70 && len(w.m.Open()) > 0 {
			w.run(1)
		}
		inc := w.all[0]
		if len(w.all) != 1 ||
			inc.State != falcon.IncidentRelieved ||
			inc.RelievedIteration < cleared-3 {
			t.Errorf("seed %d: %d incidents, %s at %d, cleared at %d\n%s",
				seed, len(w.all), inc.State, inc.RelievedIteration, cleared, w.out.String())
		}
		w.place("INC-0001", true, swap(8, a, (a+1)%8))
		w.run(40)
		if len(w.all) != 1 || w.all[0].State != falcon.IncidentClosed {
			t.Errorf("seed %d: %+v\n%s", seed, w.all, w.out.String())
		}
	}
}

// The word of a swap may come some iterations after it, before or after the
// job's new description, while a window is on its way, and while a fault makes
// the new placement slower: only the culprit is blamed.
func TestTheWordOfASwapComesLate(t *testing.T) {
	for seed := range uint64(28) {
		late := int(seed) % 7
		slower := seed%2 == 0
		first := seed%3 == 0
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 8, 8, seed)
		w.job.Noise = 0.01
		w.counters = seed%4 < 2
		w.run(35)
		w.job.Clock["n1.g0"] = 0.5
		w.run(25 + int(seed)%20) // the last window may be in flight
		wantOpen(t, w, gpu("n1.g0"))
		w.spike = 5
		w.run(1)
		at := w.job.Next()
		w.job.Place(swap(8, w.block("n1"), 6))
		if slower {
			w.job.Load = []float64{1.5, 1.5}
		}
		w.run(late)
		if first {
			w.describe()
		}
		w.step(Acted{
			Incident:  "INC-0001",
			Rung:      falcon.RungS3,
			Iteration: at,
			Placement: w.job.Placement,
		})
		w.describe()
		w.job.Load = nil
		w.run(70)
		wantOpen(t, w, gpu("n1.g0"))
		if len(w.all) != 1 {
			t.Errorf("seed %d: %d incidents\n%s", seed, len(w.all), w.out.String())
		}
		if q, _ := w.m.Rank(6); !q.Suspect || q.SelfRatio < 1.9 {
			t.Errorf("seed %d: rank 6 %+v", seed, q)
		}
	}
}

// A node whose CPUs are contended is named with its devices wherever its ranks
// go.
func TestASlowHostGoesOnUnderItsNewRanks(t *testing.T) {
	for seed := range uint64(6) {
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 4}, 8, 8, seed)
		w.run(35)
		w.job.Share["n3"] = 0.05
		w.run(25)
		want := fmt.Sprint(
			falcon.CauseCPU,
			[]falcon.Device{"n3.g0", "n3.g1"},
			[]falcon.Link(nil),
		)
		wantOpen(t, w, want)
		w.place("INC-0001", false, swap(8, 3, int(seed+4)%8))
		w.run(80)
		wantOpen(t, w, want)
		w.clearFaults()
		w.run(70)
		wantOpen(t, w)
	}
}

// After a restart on other nodes (S4) iterations go on from the checkpoint. A
// culprit that is in the job still is looked for again; one in a node that came
// in its place is found though it is slow from the start.
func TestARestartGoesOnFromItsCheckpoint(t *testing.T) {
	for seed := range uint64(6) {
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 8, 8, seed)
		w.job.Noise = 0.02
		w.run(300)
		w.job.Clock["n1.g0"], w.job.Clock["n6.g0"] = 0.5, 0.6
		w.run(30)
		wantOpen(t, w, gpus("n1.g0", "n6.g0"))
		at := w.job.Next() - 9
		w.exchange("n6", "s6")
		w.relaunch(9)
		if seed%2 == 1 {
			w.job.Clock["s6.g0"] = 0.6
		}
		w.step(Acted{
			Incident:  "INC-0001",
			Rung:      falcon.RungS4,
			Iteration: at,
			Placement: w.job.Placement,
		})
		w.run(70)
		if seed%2 == 1 {
			wantOpen(t, w, gpus("n1.g0", "n6.g0"), gpu("s6.g0"))
			if inc := w.all[1]; inc.OnsetIteration < at || inc.OnsetIteration > at+60 {
				t.Errorf("seed %d: onset %d, the epoch began with %d\n%s",
					seed, inc.OnsetIteration, at, w.out.String())
			}
		} else {
			wantOpen(t, w, gpus("n1.g0", "n6.g0"))
		}
		cleared := w.job.Next()
		w.clearFaults()
		w.run(60)
		wantOpen(t, w)
		if inc := w.all[0]; inc.RelievedIteration < cleared-1 || inc.State != falcon.IncidentClosed {
			t.Errorf("seed %d: %+v, cleared at %d\n%s", seed, inc, cleared, w.out.String())
		}
		if r := w.m.culprits.recurring(); len(r) > 0 {
			t.Errorf("seed %d: recurring %+v", seed, r)
		}
	}
}

// An incident that names no rank ends with a restart that runs as fast as the job
// did before it.
func TestARestartEndsAnIncidentWithoutCulprit(t *testing.T) {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 8, 8, 3)
	w.run(35)
	for range 40 {
		w.spike = 1.5
		w.run(1)
	}
	open := w.m.Open()
	if len(open) != 1 || open[0].Verdict.Cause != falcon.CauseUnknown {
		t.Fatalf("open %+v", open)
	}
	w.relaunch(5)
	w.run(40)
	wantOpen(t, w)
}

// Whatever the fault, where it sits and however often ranks move under it, it
// alone is named, and it is over when it has cleared.
func TestRandomPlacementsUnderAFault(t *testing.T) {
	n := 24
	if testing.Short() {
		n = 6
	}
	for seed := range uint64(n) {
		rng := rand.New(rand.NewPCG(seed, 33))
		sh := []shape{
			{falcon.Layout{TP: 1, DP: 4, PP: 4}, 8},
			{falcon.Layout{TP: 2, DP: 4, PP: 2}, 8},
			{falcon.Layout{TP: 1, DP: 2, PP: 4}, 4},
			{falcon.Layout{TP: 2, DP: 2, PP: 4}, 4},
			{falcon.Layout{TP: 1, DP: 8, PP: 2}, 8},
			{falcon.Layout{TP: 1, DP: 4, PP: 1}, 4},
		}[rng.IntN(6)]
		w := newWorld(sh.layout, sh.nodes, 8, seed)
		w.job.Noise, w.job.Hiccup = 0.005+0.01*rng.Float64(), 0.02*rng.Float64()
		w.run(35)
		kind := []string{"gpu", "blind", "cpu"}[rng.IntN(3)]
		w.counters = kind != "blind"
		want, cause := inject(w, kind, rng)
		w.run(30)
		if st := w.m.Steady(); st.CurrentMs < 1.12*st.BaselineMs {
			continue // hardly slower
		}
		announced := fmt.Sprint(cause, want, []falcon.Link(nil))
		wantOpen(t, w, announced)
		for range 1 + rng.IntN(3) {
			blocks := make([]int32, sh.nodes)
			for i, b := range rng.Perm(sh.nodes) {
				blocks[i] = int32(b)
			}
			w.place("INC-0001", false, blocks)
			w.run(30 + rng.IntN(40))
			wantOpen(t, w, announced)
		}
		w.clearFaults()
		w.run(70)
		wantOpen(t, w)
		if len(w.all) != 1 {
			t.Errorf("seed %d: %d incidents\n%s", seed, len(w.all), w.out.String())
		}
	}
}

// A job that somebody starts again has the pace of before only if it goes on where it was: one of the
// same layout that begins from the start is another job, or may be. Until its first iteration tells,
// an incident is charged nothing.
func TestAJobOfTheSameLayoutMayBeAnother(t *testing.T) {
	for _, c := range []struct {
		what    string
		outside bool
		first   int64
		known   bool
	}{
		{"goes on from a checkpoint", true, 60, true},
		{"begins again", true, 0, false},
		{"is heard a little late", true, 7, false},
		{"is Falcon's own restart", false, 0, true},
	} {
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 8, 8, 3)
		w.run(35)
		w.job.Clock["n1.g0"] = 0.5
		w.run(40)
		open := w.m.Open()
		if len(open) != 1 || !(open[0].HealthyMs > 0) {
			t.Fatalf("open %+v", open)
		}
		healthy := open[0].HealthyMs
		w.outside = c.outside
		w.relaunch(w.job.Next() - c.first)
		open = w.m.Open()
		if len(open) != 1 || c.outside == (open[0].HealthyMs > 0) {
			t.Errorf("%s: before its first iteration %+v", c.what, open)
		}
		w.run(1)
		open = w.m.Open()
		if len(open) != 1 ||
			c.known != (open[0].HealthyMs == healthy) ||
			!c.known && (open[0].HealthyMs != 0 || open[0].BeforeMs != 0) {
			t.Errorf("%s: %+v", c.what, open)
		}
		w.run(59)
		w.clearFaults()
		w.run(120)
		if open = w.m.Open(); len(open) != 0 {
			t.Errorf("%s: it does not end: %+v\n%s", c.what, open, w.out.String())
		}
	}
}

// Another job on the same GPUs has another pace: what an incident that lasts costs there is not given by
// the pace of the job before.
func TestAnotherJobHasAnotherPace(t *testing.T) {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 8, 8, 3)
	w.run(35)
	w.job.Clock["n1.g0"] = 0.5
	w.run(40)
	open := w.m.Open()
	if len(open) != 1 || !(open[0].HealthyMs > 0) {
		t.Fatalf("open %+v", open)
	}
	w.relaunch(5)
	if open = w.m.Open(); len(open) != 1 || !(open[0].HealthyMs > 0) {
		t.Fatalf("the same job again: %+v", open)
	}
	other := jobtest.New(falcon.Layout{TP: 1, DP: 2, PP: 4}, 8, 8, 4)
	other.Clock["n1.g0"] = 0.5
	w.job = other
	w.epoch++
	w.request, w.ask = nil, nil
	w.describe()
	open = w.m.Open()
	if len(open) != 1 || open[0].HealthyMs != 0 || open[0].BeforeMs != 0 {
		t.Errorf("another job: %+v", open)
	}
	w.run(60)
	w.clearFaults()
	w.run(120)
	if open = w.m.Open(); len(open) != 0 {
		t.Errorf("it does not end: %+v\n%s", open, w.out.String())
	}
}
