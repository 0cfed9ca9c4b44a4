package detect

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

// A second fault while an action holds for the first is an incident of its
// own, and the first one's relief is still seen.
func TestSecondFaultUnderAnAction(t *testing.T) {
	for seed := range 20 {
		rng := rand.New(rand.NewPCG(uint64(seed), 4))
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, uint64(seed))
		w.run(30)
		a := w.job.Placement[rng.IntN(8)]
		w.job.Clock[a] = 0.55
		w.run(14)
		micro := []int{9, 9, 9, 9}
		micro[w.job.Layout.Replica(rankOf(w, a))] = 5
		w.act("INC-0001", false, micro)
		w.run(rng.IntN(30)) // the second onset may hide in the settle window
		b := a
		for w.job.Layout.Replica(rankOf(w, b)) == w.job.Layout.Replica(rankOf(w, a)) {
			b = w.job.Placement[rng.IntN(8)]
		}
		w.job.Clock[b] = 0.5
		w.run(60)
		open := w.m.Open()
		if len(open) != 2 ||
			!slices.Equal(open[0].Verdict.Devices, []falcon.Device{a}) ||
			!slices.Equal(open[1].Verdict.Devices, []falcon.Device{b}) {
			t.Fatalf("seed %d: %d open, want %s and %s\n%s",
				seed, len(open), a, b, w.out.String())
		}
		delete(w.job.Clock, a)
		w.run(70)
		if open := w.m.Open(); len(open) != 1 || open[0].ID != "INC-0002" {
			t.Errorf("seed %d: after the first cleared %d are open\n%s", seed, len(open), w.out.String())
		}
	}
}

// A slowdown that comes and goes while an action holds, with no rank to blame,
// is no incident: the job is back where it was before anybody was named.
func TestAPassingSlowdownUnderAnActionIsNotTold(t *testing.T) {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, 3)
	w.run(30)
	w.job.Clock["n1.g0"] = 0.5
	w.run(14)
	w.act("INC-0001", false, []int{9, 9, 5, 9})
	w.run(30)
	w.clearFaults()
	w.job.Load = []float64{1.4, 1.4}
	w.refuse = 4
	w.run(6)
	w.job.Load = nil
	w.run(60)
	if len(w.all) != 1 || w.all[0].State != falcon.IncidentRelieved {
		t.Errorf("%d incidents, want the first alone and relieved\n%s", len(w.all), w.out.String())
	}
}

// Hosts that stop a rank for a moment now and then make no second incident:
// not while an action holds, when its windows are short, and not after it is
// undone.
func TestHiccupsAroundAnActionAccuseNobody(t *testing.T) {
	for seed := 40; seed < 56; seed++ {
		rng := rand.New(rand.NewPCG(uint64(seed), 3))
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, uint64(seed))
		w.job.Noise, w.job.Hiccup = 0.03, 0.10
		w.run(60)
		d := w.job.Placement[rng.IntN(8)]
		w.job.Clock[d] = 0.5
		w.run(14)
		micro := []int{9, 9, 9, 9}
		micro[w.job.Layout.Replica(rankOf(w, d))] = 5
		w.act("INC-0001", false, micro)
		w.run(80 + rng.IntN(20))
		w.clearFaults()
		for i := 0; i < 120 && len(w.m.Open()) > 0; i++ {
			w.run(1)
		}
		w.run(rng.IntN(6))
		w.act("INC-0001", true, []int{8, 8, 8, 8})
		w.run(80)
		if len(w.all) != 1 ||
			w.all[0].State != falcon.IncidentClosed ||
			!slices.Equal(w.all[0].Verdict.Devices, []falcon.Device{d}) {
			t.Errorf("seed %d: %+v\n%s", seed, w.all, w.out.String())
		}
	}
}

// Two replicas only: no three peers, so the own healthy profile judges, under
// the action too.
func TestReliefWithTwoReplicas(t *testing.T) {
	for seed := range 10 {
		l := []falcon.Layout{{TP: 1, DP: 2, PP: 4}, {TP: 2, DP: 2, PP: 2}}[seed%2]
		rng := rand.New(rand.NewPCG(uint64(seed), 5))
		w := newWorld(l, 4, 8, uint64(seed))
		w.run(30)
		d := w.job.Placement[rng.IntN(8)]
		w.job.Clock[d] = 0.5
		w.run(14)
		micro := []int{11, 11}
		micro[l.Replica(rankOf(w, d))] = 5
		w.act("INC-0001", false, micro)
		w.run(50)
		open := w.m.Open()
		if len(open) != 1 || !slices.Equal(open[0].Verdict.Devices, []falcon.Device{d}) {
			t.Fatalf("seed %d: %+v\n%s", seed, open, w.out.String())
		}
		cleared := w.job.Next()
		w.clearFaults()
		w.run(70)
		if len(w.m.Open()) > 0 ||
			len(w.all) != 1 ||
			w.all[0].RelievedIteration < cleared-3 {
			t.Errorf("seed %d: cleared at %d: %+v\n%s", seed, cleared, w.all, w.out.String())
		}
	}
}

// The engine may die at any iteration of an incident: the same incident goes on,
// no other is opened.
func TestRestartAtAnyPoint(t *testing.T) {
	for seed := range 25 {
		rng := rand.New(rand.NewPCG(uint64(seed), 6))
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, uint64(seed))
		w.run(30)
		d := w.job.Placement[rng.IntN(8)]
		w.job.Clock[d] = 0.5
		at := 3 + rng.IntN(20)
		w.run(at)
		w.restart()
		w.run(45)
		open := w.m.Open()
		if len(w.all) != 1 ||
			len(open) != 1 ||
			!slices.Equal(open[0].Verdict.Devices, []falcon.Device{d}) {
			t.Fatalf("seed %d, restart %d after the onset: %d incidents, open %+v\n%s",
				seed, at, len(w.all), open, w.out.String())
		}
		w.clearFaults()
		w.run(70)
		if len(w.m.Open()) > 0 || len(w.all) != 1 {
			t.Errorf("seed %d: still open after the clearing\n%s", seed, w.out.String())
		}
	}
}

// A link fault names the link where only one is left, and never a device.
func TestLinkStories(t *testing.T) {
	for seed := range 20 {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		sh := []shape{
			{falcon.Layout{TP: 1, DP: 4, PP: 4}, 8},
			{falcon.Layout{TP: 1, DP: 4, PP: 2}, 8},
			{falcon.Layout{TP: 1, DP: 4, PP: 2}, 4},
		}[seed%3]
		w := newWorld(sh.layout, sh.nodes, 8, uint64(seed))
		w.run(30)
		r := falcon.Rank(rng.IntN(sh.layout.World() - 1))
		for w.job.Placement[r].Node() == w.job.Placement[r+1].Node() ||
			sh.layout.Coord(r).PP != sh.layout.Coord(r+1).PP {
			r = falcon.Rank(rng.IntN(sh.layout.World() - 1))
		}
		l := falcon.NewLink(w.job.Placement[r].Node(), w.job.Placement[r+1].Node())
		w.job.Link[l] = 0.02 + 0.02*rng.Float64()
		w.run(40)
		open := w.m.Open()
		if len(open) != 1 ||
			open[0].Verdict.Cause != falcon.CauseNetwork ||
			len(open[0].Verdict.Devices) > 0 {
			t.Fatalf("seed %d, link %s: %+v\n%s", seed, l, open, w.out.String())
		}
		if !slices.Contains(open[0].Verdict.Ranks, r) {
			t.Errorf("seed %d: link %s, but the group is %v", seed, l, open[0].Verdict.Ranks)
		}
		for _, named := range open[0].Verdict.Links {
			if named != l {
				t.Errorf("seed %d: named %s, want %s\n%s", seed, named, l, w.out.String())
			}
		}
		w.clearFaults()
		w.run(30)
		if len(w.m.Open()) > 0 || len(w.all) != 1 {
			t.Errorf("seed %d: %+v", seed, w.all)
		}
	}
}

// A rank a little over the rule beside a slowdown many times as large is not
// accused, unless its counters accuse it.
func TestACulpritMustExplainTheSlowdown(t *testing.T) {
	tell := func(counters bool) *world {
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, 3)
		w.counters = counters
		w.run(30)
		w.job.Load = []float64{2, 2}
		w.job.Clock["n1.g0"] = 0.87
		w.run(60)
		return w
	}
	if w := tell(false); len(w.all) != 1 || len(w.all[0].Verdict.Devices) > 0 {
		t.Errorf("accused without counters: %+v\n%s", w.all, w.out.String())
	}
	if w := tell(true); len(w.all) != 1 || !slices.Equal(w.all[0].Verdict.Devices, []falcon.Device{"n1.g0"}) {
		t.Errorf("not accused by counters: %+v\n%s", w.all, w.out.String())
	}
}
