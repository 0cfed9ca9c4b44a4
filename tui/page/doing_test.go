package page

import (
	"strings"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
)

// While nothing is done about an incident it is said what comes next, and when.
func TestWhatComesNextIsSaid(t *testing.T) {
	snap := &falconv1.SnapshotReply{
		Job:       &falconv1.Job{State: "slow"},
		Incidents: []*falconv1.Incident{{Id: "INC-0001", State: "located"}},
		Ladder: &falconv1.Ladder{
			Incident: "INC-0001",
			Rungs: []*falconv1.RungView{
				{Rung: "S1"},
				{Rung: "S4", Variant: "restart", Applicable: true, Next: true, DueInMs: 180_000},
			},
		},
	}
	s := NewState(&feed.State{Snap: snap})
	got := Doing(s)
	if !strings.Contains(got, "S1 (ignore) for now") ||
		!strings.Contains(got, "S4 (checkpoint, restart) is due in about 3 min") {
		t.Error(got)
	}
}
