package roster

import (
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Ranks that an incident names for their link alone are its ends; one that another incident
// names for itself is a culprit.
func TestLinkEndsAreNoCulprits(t *testing.T) {
	culprit := falconv1.RankHealth_RANK_HEALTH_CULPRIT
	snap := &falconv1.SnapshotReply{Job: &falconv1.Job{World: 5, Dp: 5}}
	for r := range int32(5) {
		v := &falconv1.RankView{Rank: r, Device: "n.g", Health: culprit}
		if r == 4 {
			v.Health = falconv1.RankHealth_RANK_HEALTH_OK
		}
		snap.Ranks = append(snap.Ranks, v)
	}
	link := &falconv1.Verdict{
		Cause: "network_congestion",
		Links: []string{"n0-n1"},
		Ranks: []int32{0, 1, 4},
	}
	gpu := &falconv1.Verdict{
		Cause:   "gpu_degradation",
		Devices: []string{"n1.g0"},
		Ranks:   []int32{1, 2},
	}
	old := &falconv1.Verdict{Links: []string{"n2-n3"}, Ranks: []int32{3}}
	snap.Incidents = []*falconv1.Incident{
		{State: "located", Verdict: link},
		{State: "verified", Verdict: gpu},
		{State: "closed", Verdict: old},
	}
	r := Make(snap, nil)
	for rank, want := range []Standing{LinkEnd, Culprit, Culprit, Culprit, OK} {
		if got := r.Standing(int32(rank)); got != want {
			t.Errorf("rank %d: %v instead of %v", rank, got, want)
		}
	}
	if r.Count[LinkEnd] != 1 ||
		len(r.Critical) != 4 ||
		r.Code(Self, snap.Ranks[0]) != CulpritCode {
		t.Errorf("counts %v, critical %v", r.Count, r.Critical)
	}
}
