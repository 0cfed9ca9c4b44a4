package page_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/colorprofile"
	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/overview"
)

// meshJob is a healthy job of a mesh.
func meshJob(t interface{ Fatal(args ...any) }, text string) (*falconv1.SnapshotReply, falcon.Layout) {
	m, err := falcon.ParseMesh(text)
	if err != nil {
		t.Fatal(err)
	}
	l := falcon.LayoutOf(m)
	snap := job(l.TP, l.DP, l.PP)
	snap.Job.Mesh = l.Mesh.String()
	return snap, l
}

// Pages place ranks as the engine's layout does, whatever dimension varies fastest.
func TestRanksOfMesh(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		snap, l := meshJob(t, rapid.SampledFrom([]string{
			"tp=2,pp=4,dp=2", "dp=4,tp=2,pp=2", "tp=2,cp=2,pp=2,dp=4", "tp=2,etp=1,ep=4,dp=8,pp=2",
			"fsdp=4,dp=2",
		}).Draw(t, "mesh"))
		s := state(snap)
		for r := range falcon.Rank(l.World()) {
			at := l.Coord(r)
			tp, dp, pp := s.Coord(int32(r))
			if tp != at.TP ||
				dp != at.DP ||
				pp != at.PP ||
				s.At(tp, dp, pp) != int32(r) {
				t.Fatalf("%v: rank %d is shown at %d, %d, %d, and is at %v", l, r, tp, dp, pp, at)
			}
			for i, q := range s.Pipeline(int32(r)) {
				if c := l.Coord(falcon.Rank(q)); c.PP != i || c.TP != at.TP || c.DP != at.DP {
					t.Fatalf("%v: rank %d's pipeline is %v", l, r, s.Pipeline(int32(r)))
				}
			}
			if !slices.Contains(s.Replicas(int32(r)), int32(r)) {
				t.Fatalf("%v: rank %d's replicas are %v", l, r, s.Replicas(int32(r)))
			}
		}
	})
}

// The console shows the dimensions, where they are from, and why they are not known.
func TestLayoutIsExplained(t *testing.T) {
	show := func(snap *falconv1.SnapshotReply) string {
		snap.Job.State = string(falcon.JobSteady)
		return draw(overview.New(), state(snap), 140, 40, colorprofile.NoTTY)
	}
	snap, _ := meshJob(t, "tp=2,cp=2,dp=2,pp=2")
	snap.Job.LayoutFrom = "inferred from communicators"
	if got := show(
		snap,
	); !strings.Contains(got,
		"tp 2 × cp 2 × dp 2 × pp 2 (replicas: 2), layout: inferred from communicators") {
		t.Error(got)
	}
	unknown := job(1, 8, 1)
	unknown.Job.LayoutDoubt = "the job declares no layout (ranks 0 and 1 say little)"
	if got := show(unknown); !strings.Contains(got, "layout unknown") ||
		!strings.Contains(got, "▲ the job declares no layout (ranks 0 and 1 say little)") {
		t.Error(got)
	}
	hostile := job(2, 2, 2)
	hostile.Job.Mesh = "tp=4,cp=2,dp=2,pp=2"
	if got := show(hostile); !strings.Contains(got, "tp 2 × dp 2 × pp 2") {
		t.Error(got)
	}
}

// Where nothing can be done about a slow rank, the free rung's refusal is there at once.
func TestNothingAppliesSaysWhy(t *testing.T) {
	snap := job(1, 8, 1)
	inc := &falconv1.Incident{Id: "INC-0001", State: string(falcon.IncidentLocated)}
	snap.Incidents = []*falconv1.Incident{inc}
	snap.Ladder = &falconv1.Ladder{Rungs: []*falconv1.RungView{
		{Rung: string(falcon.RungS1), Applicable: true, Reason: "ignore"},
		{Rung: string(falcon.RungS2), Reason: "which ranks are replicas is not known"},
		{Rung: string(falcon.RungS4), Reason: "no spare node is connected"},
	}}
	if got := page.Doing(state(snap)); got != "no action applies; S2: which ranks are replicas is not known" {
		t.Error(got)
	}
}
