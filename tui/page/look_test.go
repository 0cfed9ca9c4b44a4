package page

import (
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
)

// Whatever an event says, what it leads to exists: a rank of the job, or a
// page that shows things by their id.
func FuzzTargetOf(f *testing.F) {
	for _, text := range []string{
		"INC-0001", "INC-0001/S2/1", "rank 3", "rank 9999999", "REC-0002", "n1.g1", "n1",
		"VAL-00 n.g", "rank -1", "\x1b[31mINC-9999", "VAL-123456789012",
	} {
		f.Add("rank", text, text)
	}
	snap := &falconv1.SnapshotReply{
		Job:       &falconv1.Job{World: 4},
		Incidents: []*falconv1.Incident{{Id: "INC-0007"}},
	}
	for r := range int32(4) {
		snap.Ranks = append(snap.Ranks, &falconv1.RankView{
			Rank:   r,
			Device: []string{"n0.g0", "n0.g1", "n1.g0", "n1.g1"}[r],
		})
	}
	s := NewState(&feed.State{Snap: snap})
	f.Fuzz(func(t *testing.T, kind, text, about string) {
		for _, e := range []*falconv1.EventLine{
			{Kind: kind, Text: text, About: about},
			{Kind: kind, Text: text, Audit: &falconv1.Audit{About: about}},
		} {
			to, ok := s.TargetOf(e)
			switch {
			case !ok:
			case to.ID == "" && (to.Page != key.Ranks || to.Rank < 0 || to.Rank > 3):
				t.Fatalf("%q leads to rank %d on %q", text, to.Rank, to.Page)
			case to.ID != "" && homes[to.ID[:3]] != to.Page:
				t.Fatalf("%q leads to %s on %q", text, to.ID, to.Page)
			}
		}
	})
}
