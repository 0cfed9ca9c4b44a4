package bocd

import (
	"math"
	"slices"
	"testing"
)

// again computes the state that decided from scratch: a new filter that is fed what the decision
// says, as it says.
func again(cfg Config, ms []float64, c Change) State {
	f := New(cfg)
	for i := c.Why.From; i <= c.DetectedAt; i++ {
		x := ms[i]
		for _, r := range c.Why.Removed {
			if r.Index == i {
				x = r.As
			}
		}
		_, _ = f.Observe(min(max(x/c.Why.ScaleMs-c.Why.CentreMs/c.Why.ScaleMs, -Limit), Limit))
	}
	s := State{Step: f.Last(), Seen: f.Seen()}
	for r, p := range f.Runs {
		s.Runs = append(s.Runs, Run{r, p})
	}
	return s
}

func sameBits(a, b State) bool {
	return math.Float64bits(a.PRecent) == math.Float64bits(b.PRecent) && a.MAP == b.MAP && a.Seen == b.Seen &&
		slices.EqualFunc(a.Runs, b.Runs, func(x, y Run) bool {
			return x.Length == y.Length && math.Float64bits(x.P) == math.Float64bits(y.P)
		})
}

// checkDecisions plays a series and computes each decision again.
func checkDecisions(
	t *testing.T,
	name string,
	cfg TrackerConfig,
	ms []float64,
	count map[By]int,
	removed *int,
) {
	tr := NewTracker(cfg)
	for i, x := range ms {
		changes, _ := tr.Observe(x)
		for _, c := range changes {
			if c.Why == nil {
				t.Fatalf("%s: %+v at %d does not say what decided it", name, c, i)
			}
			count[c.Why.By]++
			*removed += len(c.Why.Removed)
			for _, r := range c.Why.Removed {
				if ms[r.Index] != r.Ms {
					t.Errorf("%s: %+v was %v", name, r, ms[r.Index])
				}
			}
			if want := again(tr.cfg.Filter, ms, c); !sameBits(c.Why.State, want) {
				t.Errorf("%s: change at %d by %s: P %v, longest %v of %d runs; again P %v, %v of %d",
					name, c.Index, c.Why.By,
					c.Why.State.PRecent, c.Why.State.MAP, len(c.Why.State.Runs),
					want.PRecent, want.MAP, len(want.Runs))
			}
			kept, ok := tr.StateAt(c.DetectedAt)
			if cfg.Keep > 0 && (!ok || !sameBits(kept, c.Why.State)) {
				t.Errorf("%s: the state kept for %d is not what decided", name, c.DetectedAt)
			}
		}
	}
}

// What decided each change can be computed again to the last bit from what the decision says and
// the observations: jobs' trackers, ranks' and ranks' that rest.
func TestDecisionsComputedAgain(t *testing.T) {
	job := DefaultTrackerConfig()
	job.Keep = 64
	rank := DefaultTrackerConfig()
	rank.Verification = VerifyPaper
	resting := rank
	resting.Rest = true
	for name, cfg := range map[string]TrackerConfig{"job": job, "rank": rank, "resting": resting} {
		count := map[By]int{}
		removed := 0
		for seed := range uint64(60) {
			checkDecisions(t, name, cfg, generated(seed), count, &removed)
		}
		t.Logf("%s: %v, %d observations removed", name, count, removed)
		if count[ByPosterior] == 0 ||
			count[ByReference] == 0 ||
			removed == 0 ||
			name == "job" && count[ByShift] == 0 {
			t.Errorf("%s: not all kinds came: %v, %d removed", name, count, removed)
		}
	}
}

func TestStatesAreBounded(t *testing.T) {
	cfg := DefaultTrackerConfig()
	cfg.Keep = 32
	tr := NewTracker(cfg)
	for i := range 500 {
		_, _ = tr.Observe(100 + float64(i%5))
	}
	if _, ok := tr.StateAt(499 - 32); ok {
		t.Error("an old state is kept")
	}
	if s, ok := tr.StateAt(499); !ok || s.PRecent != tr.filter.Last().PRecent {
		t.Errorf("newest state %+v, %v", s.Step, ok)
	}
	if n := testing.AllocsPerRun(200, func() {
		_, _ = tr.Observe(101)
	}); n > 1 {
		t.Errorf("%.1f allocations an observation", n)
	}
}
