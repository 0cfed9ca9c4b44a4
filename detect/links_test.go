package detect

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

// rings is DP 4 × PP 2 on eight nodes: every neighbour of a ring is on another.
func rings(seed uint64) *world {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 8, 8, seed)
	w.job.Noise = 0.02
	w.job.Hiccup = 0.02
	w.run(35)
	return w
}

// ringLink is a random link of the data-parallel ring of a stage.
func ringLink(w *world, rng *rand.Rand, stage int) falcon.Link {
	ring := w.job.Layout.Groups(falcon.DimDP)[stage].Ranks
	i := rng.IntN(len(ring))
	return falcon.NewLink(w.job.Placement[ring[i]].Node(), w.job.Placement[ring[(i+1)%len(ring)]].Node())
}

// wantOpen compares the open incidents with causes and culprits, in order.
func wantOpen(t *testing.T, w *world, want ...string) {
	t.Helper()
	var got []string
	for _, inc := range w.m.Open() {
		got = append(got, fmt.Sprint(inc.Verdict.Cause, inc.Verdict.Devices, inc.Verdict.Links))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("open are %v, want %v\n%s", got, want, w.out.String())
	}
}

func network(links ...falcon.Link) string {
	slices.SortFunc(links, func(a, b falcon.Link) int {
		return slices.Compare([]falcon.Node{a.A, a.B}, []falcon.Node{b.A, b.B})
	})
	return fmt.Sprint(falcon.CauseNetwork, []falcon.Device(nil), links)
}

func gpu(d falcon.Device) string {
	return fmt.Sprint(falcon.CauseGPU, []falcon.Device{d}, []falcon.Link(nil))
}

// Timing alone names the ring; the validation its link, or two of them in the
// rings of two stages.
func TestValidationNamesTheLinks(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 8))
		w := rings(seed)
		w.nics = seed%3 == 0
		links := []falcon.Link{ringLink(w, rng, 0)}
		if seed%2 == 0 {
			links = append(links, ringLink(w, rng, 1))
		}
		for _, l := range links {
			w.job.Link[l] = 0.04 + 0.03*rng.Float64()
		}
		w.run(30)
		wantOpen(t, w, network(links...))
		if c := w.m.Open()[0].Verdict.Confidence; c < 0.9 {
			t.Errorf("seed %d: confidence %.2f\n%s", seed, c, w.out.String())
		}
		w.clearFaults()
		w.run(30)
		wantOpen(t, w)
		if len(w.all) != 1 {
			t.Errorf("seed %d: %d incidents\n%s", seed, len(w.all), w.out.String())
		}
	}
}

// A second fault during a first is an incident of its own, whichever kind
// comes first and wherever it sits.
func TestCompoundFaults(t *testing.T) {
	for seed := range uint64(24) {
		rng := rand.New(rand.NewPCG(seed, 9))
		w := rings(seed)
		l, other := ringLink(w, rng, 0), ringLink(w, rng, 1)
		d := w.job.Placement[rng.IntN(8)]
		first := func() { w.job.Link[l] = 0.04 }
		second := func() { w.job.Clock[d] = 0.5 }
		want := []string{network(l), gpu(d)}
		switch seed % 4 {
		case 1:
			first, second = second, first
			slices.Reverse(want)
		case 2:
			second = func() { w.job.Link[other] = 0.02 }
			want[1] = network(other)
		case 3: // the GPU at an end of the slow link
			d = w.job.Placement[slices.IndexFunc(w.job.Placement, func(d falcon.Device) bool {
				return d.Node() == l.A
			})]
			want[1] = gpu(d)
		}
		first()
		w.run(30 + rng.IntN(20))
		second()
		w.run(35)
		wantOpen(t, w, want...)
		w.clearFaults()
		w.run(60)
		wantOpen(t, w)
		if len(w.all) != 2 {
			t.Errorf("seed %d: %d incidents\n%s", seed, len(w.all), w.out.String())
		}
	}
}

// A second link of the same ring shows in timing only as "worse": another
// validation tells them apart.
func TestSecondLinkOfTheSameRing(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 10))
		w := rings(seed)
		a := ringLink(w, rng, 0)
		b := a
		for b == a {
			b = ringLink(w, rng, 0)
		}
		w.job.Link[a] = 0.06
		w.run(35)
		w.job.Link[b] = 0.03
		w.run(40)
		wantOpen(t, w, network(a), network(b))
	}
}

// One device that gets slower step by step is one incident that grows.
func TestLadderOfOneDevice(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 11))
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, seed)
		w.run(35)
		d := w.job.Placement[rng.IntN(8)]
		for _, slower := range []float64{1.15, 1.30, 1.90} {
			w.job.Clock[d] = 1 / slower
			w.run(40)
			wantOpen(t, w, gpu(d))
		}
		s := w.m.Open()[0]
		if len(w.all) != 1 ||
			s.Verdict.Severity != 4 ||
			s.SlowMs < 1.5*s.HealthyMs {
			t.Errorf("seed %d: %d incidents, severity %d, %.0f ms\n%s",
				seed, len(w.all), s.Verdict.Severity, s.SlowMs, w.out.String())
		}
		w.clearFaults()
		w.run(40)
		wantOpen(t, w)
	}
}

// A long iteration every so many (a checkpoint, an evaluation) is never an
// onset, however regular.
func TestRecurringPausesAreNoOnset(t *testing.T) {
	for _, every := range []int{5, 10, 25, 50} {
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, uint64(every))
		for i := range 400 {
			if i%every == every-1 {
				w.spike = []float64{1.4, 3, 12}[i%3]
			}
			w.run(1)
		}
		if len(w.all) > 0 {
			t.Errorf("every %d: %+v\n%s", every, w.all, w.out.String())
		}
	}
}

// A validation in the middle of an onset, asked for by a person, neither hides
// the onset nor counts as slow.
func TestValidationDuringAnOnset(t *testing.T) {
	for held := range 6 {
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, uint64(held))
		w.run(35)
		w.job.Clock["n2.g1"] = 0.5
		w.run(held)
		w.ask = &falcon.ValidationAsk{By: "alice", GEMM: []falcon.Rank{0, 1, 2, 3}}
		w.run(30)
		wantOpen(t, w, gpu("n2.g1"))
		inc := w.m.Open()[0]
		if inc.OnsetIteration < 34 || inc.OnsetIteration > 36 || inc.SlowMs > 300 {
			t.Errorf("held after %d: onset %d, %.0f ms\n%s",
				held, inc.OnsetIteration, inc.SlowMs, w.out.String())
		}
	}
}

// Iterations in which the job was held are in no series.
func TestHeldIterationsAreLeftOut(t *testing.T) {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, 3)
	w.run(30)
	for range 10 {
		w.ask = &falcon.ValidationAsk{By: "alice", GEMM: []falcon.Rank{0, 1, 2, 3}}
		w.run(1)
	}
	for r := range falcon.Rank(8) {
		for _, c := range w.m.Series(r, 100, 4) {
			if c.Iteration >= 30 && c.Iteration < 40 {
				t.Fatalf("rank %d has iteration %d", r, c.Iteration)
			}
		}
	}
	if s := w.m.Steady(); s.Iteration != 29 || len(w.all) > 0 {
		t.Errorf("job's newest unheld iteration %d, incidents %v", s.Iteration, w.all)
	}
}

// A link that a test found slow and that no incident names is planned around until all rings over
// it are as fast as usual again.
func TestRingsClearASlowTest(t *testing.T) {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 8, 8, 3)
	w.run(30)
	slow := falcon.NewLink("n1", "n2")
	ratio := func() float64 {
		for _, l := range w.m.links.linkSpeeds() {
			if l.Link == slow {
				return l.Ratio
			}
		}
		return 0
	}
	w.m.links.addJudgement(slow, linkSeen{6, w.now, true})
	if got := ratio(); got != 6 {
		t.Fatalf("ratio %v", got)
	}
	w.step(Look{Why: "how fast are the rings?"})
	w.run(8)
	if got := ratio(); got != 1 {
		t.Errorf("ratio %v after a window in which every ring was as fast as usual", got)
	}
}

// A rank that is slow, nobody knows why, does not explain a link that becomes slow after it: the
// ring's messages were as fast as ever while only the rank was slow.
func TestAnUnknownCauseExplainsNoLink(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 10))
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 8, 8, seed)
		w.job.Noise = 0.02
		w.run(35)
		d := w.job.Placement[w.job.Layout.Groups(falcon.DimDP)[0].Ranks[rng.IntN(4)]]
		w.tests = "off"
		w.mute = true
		w.job.Clock[d] = 0.6
		w.run(40)
		unknown := fmt.Sprint(falcon.CauseUnknown, []falcon.Device{d}, []falcon.Link(nil))
		wantOpen(t, w, unknown)
		w.tests = "on"
		l := ringLink(w, rng, 0)
		w.job.Link[l] = 0.04
		w.run(40)
		found := false
		for _, inc := range w.m.Open() {
			found = found || slices.Contains(inc.Verdict.Links, l)
		}
		if !found {
			t.Fatalf("seed %d: %s is slow, and open are %v\n%s", seed, l, w.m.Open(), w.out.String())
		}
	}
}

// Where hosts wait for each call, those of all ranks pause for a slow one: that is no garbage
// collection, and the tests that could tell are asked for.
func TestHostsThatWaitForASlowRankDoNotCollectGarbage(t *testing.T) {
	for seed := range uint64(8) {
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 8, 8, seed)
		w.job.Noise = 0.02
		w.job.Blocking = true
		w.run(35)
		d := w.job.Placement[seed]
		w.mute = true
		w.job.Clock[d] = 0.6
		w.run(40)
		wantOpen(t, w, gpu(d))
	}
}

// A link becomes slow while the job is slow by its own work, and noisy: whether or not its onset can be
// told from the noise, it is named.
func TestALinkBehindTheJobsOwnWork(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 11))
		w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 1}, 4, 4, seed)
		w.job.Noise = 0.05
		w.run(35)
		w.job.Garbage = 0.7
		w.job.GarbageMs = 40
		w.run(12 + rng.IntN(10))
		l := ringLink(w, rng, 0)
		w.job.Link[l] = 0.06
		w.run(250)
		if !slices.ContainsFunc(w.m.Open(), func(in falcon.Incident) bool {
			return slices.Contains(in.Verdict.Links, l)
		}) {
			t.Errorf("seed %d: %s is slow, and open are %v\n%s", seed, l, w.m.Open(), w.out.String())
		}
	}
}
