package detect

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/failslow/falcon"
)

// naiveProfile is the second implementation: per group and iteration of the
// window, the sum over its calls of the least duration over the members, by
// scanning all calls of all ranks; per pair, the receives of one size.
func naiveProfile(w *world, profiles []falcon.RankProfile) map[string]falcon.GroupTransfer {
	out := map[string]falcon.GroupTransfer{}
	for _, d := range []falcon.Dimension{falcon.DimTP, falcon.DimDP, falcon.DimWorld} {
		for _, g := range w.job.Layout.Groups(d) {
			n := profiles[0].Iterations
			sums := make([]float64, n)
			calls := 0
			bytes := int64(0)
			for i, c := range collectivesOf(w, profiles[g.Ranks[0]], d) {
				least := math.Inf(1)
				for _, r := range g.Ranks {
					least = min(least, collectivesOf(w, profiles[r], d)[i].DurationMs)
				}
				calls++
				bytes += c.Bytes
				sums[i*n/len(collectivesOf(w, profiles[g.Ranks[0]], d))] += least
			}
			if calls > 0 {
				slices.Sort(sums)
				out[key(d, g.Ranks)] = falcon.GroupTransfer{
					Dimension:  d,
					Ranks:      g.Ranks,
					Op:         falcon.OpAllReduce,
					Calls:      calls / n,
					Bytes:      bytes / int64(n),
					TransferMs: (sums[(n-1)/2] + sums[n/2]) / 2,
				}
			}
		}
	}
	return out
}

func key(d falcon.Dimension, ranks []falcon.Rank) string {
	return string(d) + string(rune(ranks[0]))
}

// collectivesOf are a rank's calls on its communicator of a dimension, in order.
func collectivesOf(w *world, p falcon.RankProfile, d falcon.Dimension) []falcon.CallTiming {
	return slices.DeleteFunc(slices.Clone(p.Calls), func(c falcon.CallTiming) bool {
		return !slices.ContainsFunc(w.job.Comms[p.Rank], func(q falcon.Comm) bool {
			return q.ID == c.Comm && q.Dimension == d && d != falcon.DimPP
		})
	})
}

// The profile of a job with uneven micro-batches, before and after a placement,
// is what its generator put in and what the naive scan finds.
func TestProfileIsWhatTheJobDoes(t *testing.T) {
	for seed := range uint64(6) {
		w := newWorld(falcon.Layout{TP: 2, DP: 4, PP: 2}, 8, 8, seed)
		w.m = New(Config{
			Relief: ReliefConfig{Every: 1 << 30},
			Watch:  WatchConfig{Every: -1},
		})
		w.describe()
		if got := w.m.Profile(); len(got.SelfMs)+len(got.Groups)+len(got.Links) > 0 || windowOf(w) != 0 {
			t.Fatalf("before any window: %+v", got)
		}
		w.job.Clock["n2.g1"] = 0.5
		w.job.MicroBatches = []int{10, 6, 9, 7}
		w.describe()
		if seed%2 == 1 {
			w.run(30)
			w.place("INC-0009", false, swap(8, 2, 5))
			if got := w.m.Profile(); len(got.SelfMs)+len(got.Groups) > 0 {
				t.Fatalf("seed %d: a profile of the old placement is reported: %+v", seed, got)
			}
		}
		var profiles []falcon.RankProfile
		for i := 0; i < 80 && windowOf(w) == 0; i++ {
			if req := w.request; req != nil {
				var samples []falcon.Sample
				w.request = nil
				samples, profiles = w.job.Iteration(req.Iterations, req.Window)
				w.deliver(samples)
				w.answer(req.Window, profiles)
				continue
			}
			w.run(1)
		}
		got := w.m.Profile()
		checkSelf(t, w, got)
		checkPairs(t, w, got)
		want := naiveProfile(w, profiles)
		for _, g := range got.Groups {
			if g.Dimension == falcon.DimPP {
				continue
			}
			n, known := want[key(g.Dimension, g.Ranks)]
			if !known || math.Abs(g.TransferMs-n.TransferMs) > 1e-9 {
				t.Errorf("seed %d: %+v, naive %+v", seed, g, n)
			}
			n.TransferMs = g.TransferMs
			if diff := cmp.Diff(n, g); diff != "" {
				t.Errorf("seed %d: %s", seed, diff)
			}
			delete(want, key(g.Dimension, g.Ranks))
		}
		if len(want) > 0 {
			t.Errorf("seed %d: groups left out: %v", seed, want)
		}
	}
}

// checkSelf wants three forward passes' time per micro-batch, twice that where
// the clock is half.
func checkSelf(t *testing.T, w *world, got falcon.JobProfile) {
	t.Helper()
	for r, ms := range got.SelfMs {
		want := 3 * w.job.ForwardMs
		if w.job.Placement[r] == "n2.g1" {
			want *= 2
		}
		if math.Abs(ms/want-1) > 0.05 {
			t.Errorf("rank %d on %s: %.2f ms per micro-batch, want %.2f", r, w.job.Placement[r], ms, want)
		}
	}
}

// checkPairs wants a message each way per micro-batch of the replica.
func checkPairs(t *testing.T, w *world, got falcon.JobProfile) {
	t.Helper()
	n := 0
	for _, g := range got.Groups {
		if g.Dimension != falcon.DimPP {
			continue
		}
		n++
		micro := w.job.MicroBatches[w.job.Layout.Replica(g.Ranks[0])]
		if g.Calls != 2*micro ||
			g.Bytes != int64(2*micro)<<18 ||
			g.Op != falcon.OpRecv {
			t.Errorf("pair %+v, want %d messages of 256 KiB", g, 2*micro)
		}
		each := g.TransferMs / float64(g.Calls)
		if each < 0.95*w.job.PPMs || each > 1.3*w.job.PPMs {
			t.Errorf("pair %v: %.3f ms a message, want %.3f", g.Ranks, each, w.job.PPMs)
		}
	}
	if n != w.job.Layout.TP*w.job.Layout.DP*(w.job.Layout.PP-1) {
		t.Errorf("%d pairs", n)
	}
}

// Links are listed with the ratio of their newest test, healthy ones with 1, for
// half an hour; what an open incident names stays, what it is relieved of is 1.
func TestProfileOfLinks(t *testing.T) {
	w := rings(4)
	l := ringOn(w, 0)[1]
	w.job.Link[l] = 0.1
	w.run(30)
	wantOpen(t, w, network(l))
	speeds := func() map[string]float64 {
		out := map[string]float64{}
		for _, s := range w.m.Profile().Links {
			out[s.Link.String()] = s.Ratio
		}
		return out
	}
	got := w.m.Profile().Links
	if len(got) < 4 ||
		got[0].Link != l ||
		math.Abs(got[0].Ratio/10-1) > 0.1 ||
		got[1].Ratio != 1 {
		t.Fatalf("links %+v, want %s at 10 and the others at 1", got, l)
	}
	w.now = w.now.Add(linkFor + time.Second)
	w.step(Readings{})
	if s := speeds(); math.Abs(s[l.String()]/10-1) > 0.1 || len(s) != 1 {
		t.Errorf("half an hour later %v", s)
	}
	w.clearFaults()
	w.run(30)
	wantOpen(t, w)
	if s := speeds(); s[l.String()] != 1 {
		t.Errorf("relieved: %v", s)
	}
}

// Without a test the link that timing names has its ring's ratio, and one that
// carries a pipeline's messages theirs.
func TestProfileOfUntestedLinks(t *testing.T) {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 8, 8, 3)
	w.m = New(Config{Validate: ValidateConfig{Tries: -1}})
	w.describe()
	w.nics = true
	w.run(35)
	l := ringOn(w, 0)[0]
	// healthy yet
	w.step(Validated{
		Validation: w.job.Validate(falcon.ValidationAsk{
			By:    "alice",
			Rings: [][]falcon.Rank{{0, 1, 2, 3}},
		}),
	})
	w.job.Link[l] = 0.1
	w.run(40)
	wantOpen(t, w, network(l))
	if got := w.m.Profile().Links; len(got) == 0 || got[0].Link != l || math.Abs(got[0].Ratio/10-1) > 0.1 {
		t.Errorf("links %+v, want %s at 10", got, l)
	}
	w = newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 8, 8, 3)
	w.m = New(Config{Validate: ValidateConfig{Tries: -1}})
	w.describe()
	w.run(35)
	l = falcon.NewLink(w.job.Placement[1].Node(), w.job.Placement[5].Node())
	w.job.Link[l] = 0.02
	w.run(40)
	if got := w.m.Profile().Links; len(got) < 4 ||
		got[0].Link != l ||
		math.Abs(got[0].Ratio/50-1) > 0.15 ||
		got[1].Ratio != 1 {
		t.Errorf("links %+v, want %s at 50", got, l)
	}
}

func TestLinksAreBounded(t *testing.T) {
	m := New(Config{})
	for i := range 2 * linkMost {
		m.clock.now = time.Unix(int64(i), 0)
		m.links.addJudgement(
			falcon.NewLink(falcon.Node("a"), falcon.Node(m.clock.now.String())),
			linkSeen{ratio: 1, at: m.clock.now},
		)
	}
	if len(m.links.seen) != linkMost {
		t.Errorf("%d links, want %d", len(m.links.seen), linkMost)
	}
}

func windowOf(w *world) uint64 {
	id, _ := w.m.Profiled()
	return id
}
