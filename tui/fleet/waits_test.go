package fleet

import (
	"strings"
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// A recovery that waits for a spare is a job that stands and waits for a person, at a cost.
func TestARecoveryThatWaitsForASpareWaitsForAPerson(t *testing.T) {
	snap := &falconv1.SnapshotReply{
		AtUnixNs: start.UnixNano(),
		Role:     "viewer",
		Job:      jobOf("recovering", 8),
		Brief:    &falconv1.Brief{Revision: 1},
		Recovery: &falconv1.Recovery{
			Id:             "REC-0001",
			State:          "suspend",
			StartedUnixNs:  start.Add(-time.Minute).UnixNano(),
			DeadlineUnixNs: start.Add(9 * time.Minute).UnixNano(),
			Wait:           &falconv1.RecoveryWait{Spare: true, Then: "fail"},
			LostGpuHours:   0.13,
			Faults:         []*falconv1.Fault{{Kind: "node", Node: "n2"}},
		},
	}
	r := RowOf(made("a", snap), start)
	if r.Class != Stopped ||
		len(r.Waits) != 1 ||
		r.Waits[0].Text() != "REC-0001 waits for an approver" ||
		r.Lost != 0.13 {
		t.Errorf("%v, %+v, lost %v", r.Class, r.Waits, r.Lost)
	}
	if !strings.Contains(r.What(), "REC-0001 WAITS for a spare node, 60 s so far: node n2 lost") &&
		!strings.Contains(r.What(), "1 min so far: node n2 lost; in 9 min the recovery fails") {
		t.Error(r.What())
	}
}
