package detect

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
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
		out = append(out, falcon.NewLink(w.job.Placement[ring[i]].Node(), w.job.Placement[ring[(i+1)%len(ring)]].Node()))
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
		if got := w.m.Open()[0].Verdict.Ranks; !slices.Equal(got, []falcon.Rank{rankOf(w, d)}) {
			t.Errorf("seed %d: ranks %v, want %d", seed, got, rankOf(w, d))
		}
		cleared := w.job.Next()
		w.clearFaults()
		for w.job.Next() < cleared+70 && len(w.m.Open()) > 0 {
			w.run(1)
		}
		if inc := w.all[0]; len(w.all) != 1 || inc.State != falcon.IncidentRelieved || inc.RelievedIteration < cleared-3 {
			t.Errorf("seed %d: %d incidents, %s at %d, cleared at %d\n%s", seed, len(w.all), inc.State, inc.RelievedIteration, cleared, w.out.String())
		}
		w.place("INC-0001", true, swap(8, a, (a+1)%8))
		w.run(40)
		if len(w.all) != 1 || w.all[0].State != falcon.IncidentClosed {
			t.Errorf("seed %d: %+v\n%s", seed, w.all, w.out.String())
		}
	}
}
