package peer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/jobtest"
)

// naive* is the second implementation: the rules as LAB-AND-HOOK.md words
// them, by scanning everything for everything.

func naiveMedian(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	sort.Float64s(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// naiveSlow are the ranks over 1.1 × the median of the ranks with the same
// stage and TP coordinate in other replicas, where at least three of them
// were measured, or over 1.1 × their own healthy time where more than half of
// them are; else over 1.1 × their own healthy time.
func naiveSlow(
	l falcon.Layout,
	profiles []falcon.RankProfile,
	healthy map[falcon.Rank]float64,
) []falcon.Rank {
	lowest := math.Inf(1)
	for _, p := range profiles {
		if h, ok := healthy[p.Rank]; ok {
			lowest = min(lowest, p.SelfMs/h)
		}
	}
	if lowest < 1 || math.IsInf(lowest, 1) {
		lowest = 1
	}
	var out []falcon.Rank
	for _, p := range profiles {
		var peers []float64
		for _, q := range profiles {
			a := l.Coord(p.Rank)
			b := l.Coord(q.Rank)
			if a.PP == b.PP && a.TP == b.TP && a.DP != b.DP {
				peers = append(peers, q.SelfMs)
			}
		}
		base := naiveMedian(peers)
		if h, ok := healthy[p.Rank]; len(peers) < 3 && ok {
			base = h * lowest
		} else if own := naiveCrowd(l, p.Rank, profiles, healthy); len(peers) >= 3 && own > 0 {
			base = min(base, own)
		}
		if base > 0 && p.SelfMs/base > 1.1 {
			out = append(out, p.Rank)
		}
	}
	slices.Sort(out)
	return out
}

// naiveCrowd is the healthy time of a rank, what its column shares put on top,
// where more than half of the column are over 1.1 × theirs; else 0.
func naiveCrowd(
	l falcon.Layout,
	rank falcon.Rank,
	profiles []falcon.RankProfile,
	healthy map[falcon.Rank]float64,
) float64 {
	var ratios, stage []float64
	for _, p := range profiles {
		a := l.Coord(rank)
		b := l.Coord(p.Rank)
		if a.PP != b.PP {
			continue
		}
		h, ok := healthy[p.Rank]
		if !ok {
			return 0
		}
		stage = append(stage, p.SelfMs/h)
		if a.TP == b.TP {
			ratios = append(ratios, p.SelfMs/h)
		}
	}
	sort.Float64s(stage)
	shared := max(1, stage[0])
	slow := 0
	for _, x := range ratios {
		if x/shared > 1.1 {
			slow++
		}
	}
	if slow <= len(ratios)-slow {
		return 0
	}
	return healthy[rank] * shared
}

// naiveTransfers is, per communicator and size, the lower quartile over its
// calls of the least duration of any member.
func naiveTransfers(l falcon.Layout, profiles []falcon.RankProfile) map[string]float64 {
	out := map[string]float64{}
	for _, p := range profiles {
		for _, c := range p.Calls {
			key := fmt.Sprint(c.Comm, c.Op, c.Bytes)
			if _, done := out[key]; done || c.Op != falcon.OpAllReduce {
				continue
			}
			var least []float64
			for ordinal := c.Ordinal; ; ordinal++ {
				m := math.Inf(1)
				found := false
				for _, q := range profiles {
					for _, d := range q.Calls {
						if d.Comm == c.Comm &&
							d.Ordinal == ordinal &&
							d.Op == c.Op &&
							d.Bytes == c.Bytes {
							m = min(m, d.DurationMs)
							found = true
						}
					}
				}
				if !found {
					break
				}
				least = append(least, m)
			}
			sort.Float64s(least)
			out[key] = least[(len(least)-1)/4]
		}
	}
	return out
}

func TestSlowRanksEqualTheNaiveRule(t *testing.T) {
	shapes := []falcon.Layout{
		{TP: 1, DP: 4, PP: 2},
		{TP: 2, DP: 2, PP: 2},
		{TP: 1, DP: 5, PP: 3},
		{TP: 1, DP: 3, PP: 1},
		{TP: 2, DP: 8, PP: 1},
	}
	cases := 20_000
	if testing.Short() {
		cases = 2_000
	}
	named := 0
	for seed := range cases {
		rng := rand.New(rand.NewPCG(uint64(seed), 9))
		l := shapes[rng.IntN(len(shapes))]
		var profiles []falcon.RankProfile
		healthy := map[falcon.Rank]float64{}
		var past Result
		for r := range falcon.Rank(l.World()) {
			own := 10 + float64(l.Coord(r).PP)
			past.Ranks = append(past.Ranks, Rank{
				Rank:     r,
				Measured: true,
				SelfMs:   own,
			})
			healthy[r] = own
			self := own * (1 + 0.02*rng.NormFloat64())
			if rng.IntN(6) == 0 {
				self *= 1 + rng.Float64()
			}
			if rng.IntN(10) > 0 {
				profiles = append(profiles, falcon.RankProfile{Rank: r, SelfMs: self, Iterations: 1})
			}
		}
		w := Window{Layout: l, Profiles: profiles}
		if rng.IntN(3) > 0 {
			w.Healthy = &Healthy{}
			w.Healthy.Learn(past)
		} else {
			healthy = nil
		}
		got := Judge(w)
		if got.AllSlow || len(got.SlowStages) > 0 {
			continue // judged by TestTogether
		}
		want := naiveSlow(l, profiles, healthy)
		named += len(want)
		if !slices.Equal(got.Slow, want) {
			t.Fatalf("seed %d %v: slow %v, naive %v", seed, l, got.Slow, want)
		}
	}
	if named < cases/4 {
		t.Errorf("only %d ranks named in %d cases: the cases test little", named, cases)
	}
}

func TestTransfersEqualTheNaiveJoin(t *testing.T) {
	for seed := range 20 {
		j := jobtest.New(
			falcon.Layout{
				TP: 1 + seed%2,
				DP: 2 + seed%3,
				PP: 1 + seed%3,
			},
			2,
			3,
			uint64(seed),
		)
		j.Link[falcon.NewLink("n0", "n1")] = 0.3
		_, profiles := j.Iteration(2, 1)
		want := naiveTransfers(j.Layout, profiles)
		res := Judge(Window{
			Layout:    j.Layout,
			Placement: j.Placement,
			Comms:     j.Comms,
			Profiles:  profiles,
		})
		for _, g := range res.Groups {
			key := fmt.Sprint(g.Comm, g.Op, g.Bytes)
			if w := want[key]; math.Abs(g.TransferMs-w) > 1e-12 {
				t.Errorf("seed %d, group %v: transfer %v, naive %v", seed, g.Ranks, g.TransferMs, w)
			}
			delete(want, key)
		}
		if len(want) > 0 {
			t.Errorf("seed %d: groups missed: %v", seed, want)
		}
	}
}
