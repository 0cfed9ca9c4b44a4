package peer

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/jobtest"
)

func judgeRig(j *jobtest.Job, h *Healthy) Result {
	_, profiles := j.Iteration(4, 1)
	return Judge(Window{
		Layout:    j.Layout,
		Placement: j.Placement,
		Comms:     j.Comms,
		Profiles:  profiles,
		Healthy:   h,
	})
}

func TestHealthyJobNamesNobody(t *testing.T) {
	for seed := range uint64(30) {
		j := jobtest.New(falcon.Layout{TP: 2, DP: 4, PP: 2}, 4, 6, seed)
		res := judgeRig(j, nil)
		if len(res.Slow) > 0 || slices.ContainsFunc(res.Groups, func(g Group) bool { return g.Suspect }) ||
			slices.ContainsFunc(res.Pairs, func(p Pair) bool { return p.Suspect }) {
			t.Errorf("seed %d: slow %v, groups or pairs suspect", seed, res.Slow)
		}
	}
}

// Under a pipeline "who waits least" points at the slow replica's other stages
// too; self time must not.
func TestOnlyTheSlowRankOfTheReplicaIsNamed(t *testing.T) {
	j := jobtest.New(falcon.Layout{TP: 1, DP: 4, PP: 4}, 4, 8, 3)
	slow := falcon.Layout{TP: 1, DP: 4, PP: 4}.RankOf(falcon.Coord{DP: 2, PP: 1})
	j.Clock[j.Placement[slow]] = 0.5
	res := judgeRig(j, nil)
	if !slices.Equal(res.Slow, []falcon.Rank{slow}) || !res.Clear {
		t.Fatalf("slow %v (clear %v), want [%d]", res.Slow, res.Clear, slow)
	}
	if !res.Ranks[slow].Awaited {
		t.Error("nobody waits for the slow rank")
	}
	late := 0
	for _, r := range res.Ranks {
		if r.Awaited && r.Rank != slow {
			late++
		}
	}
	if late == 0 {
		t.Error("no innocent rank is waited for: the case does not test the rule")
	}
	if r := res.Ranks[slow].Ratio; math.Abs(r-2) > 0.05 {
		t.Errorf("ratio %.3f, want 2", r)
	}
}

func TestTogether(t *testing.T) {
	j := jobtest.New(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, 3)
	h := &Healthy{}
	h.Learn(judgeRig(j, nil))
	j.Load = []float64{1.5, 1.5}
	if res := judgeRig(j, h); !res.AllSlow || math.Abs(res.AllRatio-1.5) > 0.03 || len(res.Slow) > 0 {
		t.Errorf("all slow %v by %.2f, slow %v", res.AllSlow, res.AllRatio, res.Slow)
	}
	j.Load = []float64{1, 1.5}
	if res := judgeRig(j, h); res.AllSlow || !slices.Equal(res.SlowStages, []int{1}) || len(res.Slow) > 0 {
		t.Errorf("slow stages %v, slow %v, want stage 1 alone", res.SlowStages, res.Slow)
	}
	if res := judgeRig(j, nil); res.AllSlow || len(res.SlowStages) > 0 {
		t.Error("without a healthy profile nothing can be said about all together")
	}
}

// A link fault shows in the group's transfer and in no rank's self time.
func TestSlowLinkAccusesNoRank(t *testing.T) {
	j := jobtest.New(falcon.Layout{TP: 1, DP: 4, PP: 4}, 8, 8, 3)
	h := &Healthy{}
	h.Learn(judgeRig(j, nil))
	j.Link[falcon.NewLink("n2", "n3")] = 0.1
	res := judgeRig(j, h)
	var suspects [][]falcon.Rank
	for _, g := range res.Groups {
		if g.Suspect {
			suspects = append(suspects, g.Ranks)
		}
	}
	diff := cmp.Diff([][]falcon.Rank{{4, 5, 6, 7}}, suspects)
	if diff != "" || len(res.Slow) > 0 {
		t.Errorf("slow %v, suspect groups (-want +got):\n%s", res.Slow, diff)
	}
}

func TestOrderOfProfilesDoesNotMatter(t *testing.T) {
	j := jobtest.New(falcon.Layout{TP: 2, DP: 4, PP: 2}, 4, 4, 8)
	j.Clock["n1.g2"] = 0.7
	_, profiles := j.Iteration(3, 1)
	w := Window{
		Layout:    j.Layout,
		Placement: j.Placement,
		Comms:     j.Comms,
		Profiles:  profiles,
	}
	want := Judge(w)
	w.Profiles = slices.Clone(profiles)
	slices.Reverse(w.Profiles)
	if diff := cmp.Diff(want, Judge(w)); diff != "" {
		t.Error(diff)
	}
}

// Hostile numbers and ranks are left out, and panic nowhere.
func TestNonsenseIsNotMeasured(t *testing.T) {
	l := falcon.Layout{TP: 1, DP: 5, PP: 1}
	bad := []falcon.RankProfile{
		{Rank: -1, SelfMs: 9},
		{Rank: 4, SelfMs: 1e-7}, // less than a device's clock resolves
		{Rank: 99, SelfMs: 9},
		{Rank: 0, SelfMs: math.NaN()},
		{Rank: 1, SelfMs: math.Inf(1)},
		{Rank: 2, SelfMs: -4},
		{
			Rank:   3,
			SelfMs: 5,
			Calls: []falcon.CallTiming{
				{Comm: 1, Op: falcon.OpRecv, Peer: 77, DurationMs: 1},
				{Comm: 1, Op: falcon.OpRecv, Peer: -1, DurationMs: 1},
				{Comm: 2, Op: falcon.OpAllReduce, DurationMs: math.NaN()},
				{Comm: 2, Op: falcon.OpAllReduce, DurationMs: math.Inf(1)},
			},
		},
	}
	res := Judge(Window{Layout: l, Profiles: bad})
	if res.Missing != 4 ||
		len(res.Slow) > 0 ||
		len(res.Groups) > 0 ||
		len(res.Pairs) > 0 {
		t.Errorf("missing %d, slow %v, %d groups, %d pairs",
			res.Missing, res.Slow, len(res.Groups), len(res.Pairs))
	}
}

// A group of which a member sent nothing has no transfer: the least duration
// of the others includes the wait for it.
func TestIncompleteGroupsAreNotJudged(t *testing.T) {
	j := jobtest.New(falcon.Layout{TP: 1, DP: 4, PP: 1}, 4, 4, 8)
	j.Clock["n2.g0"] = 0.5
	_, profiles := j.Iteration(2, 1)
	profiles = slices.Delete(profiles, 2, 3)
	res := Judge(Window{
		Layout:    j.Layout,
		Placement: j.Placement,
		Comms:     j.Comms,
		Profiles:  profiles,
	})
	if len(res.Groups) != 0 || res.Missing != 1 {
		t.Errorf("%d groups judged, %d missing", len(res.Groups), res.Missing)
	}
}

func BenchmarkJudge(b *testing.B) {
	j := jobtest.New(falcon.Layout{TP: 1, DP: 128, PP: 8}, 128, 8, 8)
	_, profiles := j.Iteration(2, 1)
	w := Window{
		Layout:    j.Layout,
		Placement: j.Placement,
		Comms:     j.Comms,
		Profiles:  profiles,
	}
	for b.Loop() {
		Judge(w)
	}
}
