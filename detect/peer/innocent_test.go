package peer

import (
	"fmt"
	"slices"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/jobtest"
)

// accusedOf is everybody that a result points at.
func accusedOf(res Result) []string {
	var out []string
	for _, r := range res.Slow {
		out = append(out, fmt.Sprint("rank ", r))
	}
	for _, g := range res.Groups {
		if g.Suspect {
			out = append(out, fmt.Sprint("group ", g.Dimension, g.Ranks))
		}
	}
	for _, p := range res.Pairs {
		if p.Suspect {
			out = append(out, fmt.Sprint("pair ", p.From, "-", p.To))
		}
	}
	return out
}

// Stages whose work differs by nature (embeddings, logits), with and without a
// healthy profile, accuse no rank, however few replicas there are.
func TestUnequalStagesAccuseNobody(t *testing.T) {
	for _, l := range []falcon.Layout{
		{TP: 1, DP: 4, PP: 4},
		{TP: 1, DP: 2, PP: 4},
		{TP: 1, DP: 1, PP: 4},
		{TP: 2, DP: 2, PP: 2},
		{TP: 4, DP: 1, PP: 2},
		{TP: 8, DP: 1, PP: 1},
	} {
		for seed := range uint64(5) {
			j := jobtest.New(l, 4, 8, seed)
			j.StepMs = 20
			for s := range l.PP {
				j.Load = append(j.Load, 1+0.1*float64(s))
			}
			j.Load[l.PP-1] = 1.6
			h := &Healthy{}
			first := look(j, 4, nil)
			h.Learn(first)
			for name, res := range map[string]Result{"first": first, "own past": look(j, 4, h)} {
				if who := accusedOf(res); len(who) > 0 {
					t.Errorf("%v, seed %d, %s: %v", l, seed, name, who)
				}
			}
		}
	}
}

// A stage whose own work grows is the stage's, with one replica too where its
// tensor-parallel ranks show it.
func TestAStageThatGrewIsNoRank(t *testing.T) {
	for _, l := range []falcon.Layout{{TP: 1, DP: 4, PP: 2}, {TP: 2, DP: 2, PP: 2}, {TP: 4, DP: 1, PP: 2}} {
		j := jobtest.New(l, 2, 8, 4)
		h := &Healthy{}
		h.Learn(look(j, 4, nil))
		j.Load = []float64{1, 1.5}
		res := look(j, 4, h)
		if len(res.Slow) > 0 || !slices.Equal(res.SlowStages, []int{1}) {
			t.Errorf("%v: slow %v, stages %v", l, res.Slow, res.SlowStages)
		}
	}
}

// The rank that is slow sent no profile, as its host is starved: those who
// wait for it are not to blame for it, nor are the links to it.
func TestAMissingCulpritAccusesNobodyElse(t *testing.T) {
	for seed := range uint64(10) {
		l := falcon.Layout{TP: 1, DP: 4, PP: 4}
		j := jobtest.New(l, 16, 8, seed)
		h := &Healthy{}
		h.Learn(look(j, 4, nil))
		slow := falcon.Rank(seed % 16)
		j.Clock[j.Placement[slow]] = 0.5
		_, profiles := j.Iteration(4, 1)
		profiles = slices.DeleteFunc(profiles, func(p falcon.RankProfile) bool { return p.Rank == slow })
		res := Judge(Window{
			Layout:    l,
			Placement: j.Placement,
			Comms:     j.Comms,
			Profiles:  profiles,
			Healthy:   h,
		})
		if who := accusedOf(res); len(who) > 0 {
			t.Errorf("rank %d missing: %v", slow, who)
		}
	}
}

// Work that is done once an iteration weighs more on a rank with fewer
// micro-batches: it is not slower for that, and a healthy culprit is healthy.
func TestUnevenMicroBatchesAccuseNobody(t *testing.T) {
	for _, l := range []falcon.Layout{{TP: 1, DP: 4, PP: 2}, {TP: 1, DP: 2, PP: 2}, {TP: 1, DP: 8, PP: 1}} {
		for _, step := range []float64{0, 10, 30} {
			j := jobtest.New(l, 4, 8, 3)
			j.StepMs = step
			h := &Healthy{}
			h.Learn(look(j, 4, nil))
			for d := range j.MicroBatches {
				j.MicroBatches[d] = 9
			}
			j.MicroBatches[1] = 5
			res := look(j, 4, h)
			if who := accusedOf(res); len(who) > 0 || res.AllSlow {
				t.Errorf("%v, step of %.0f ms: %v, ratio %.2f",
					l, step, who, res.Ranks[l.RankOf(falcon.Coord{DP: 1})].Ratio)
			}
			j.Clock[j.Placement[l.RankOf(falcon.Coord{DP: 1})]] = 0.6
			if res := look(j, 4, h); !slices.Equal(res.Slow, []falcon.Rank{l.RankOf(falcon.Coord{DP: 1})}) {
				t.Errorf("%v, step of %.0f ms: slow are %v, want the rank at 60 %%", l, step, res.Slow)
			}
		}
	}
}
