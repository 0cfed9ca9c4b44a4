package plain

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// snapshots is an engine with one picture.
type snapshots struct {
	falconv1.ConsoleClient
	snap *falconv1.SnapshotReply
}

func (c snapshots) Snapshot(
	context.Context,
	*falconv1.SnapshotRequest,
	...grpc.CallOption,
) (*falconv1.SnapshotReply, error) {
	return c.snap, nil
}

// Programs and lines get what the screen says first: whom a recovery waits for, since when, and at
// what cost; a closed incident is last.
func TestWhatIsSaidFirstForPrograms(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	snap := &falconv1.SnapshotReply{
		AtUnixNs: at.UnixNano(),
		Job: &falconv1.Job{
			State:           "recovering",
			World:           8,
			IterationMs:     140,
			IterationUnixNs: at.Add(-50 * time.Second).UnixNano(),
		},
		Incidents: []*falconv1.Incident{{Id: "INC-0001", State: "closed"}},
		Recovery: &falconv1.Recovery{
			Id:             "REC-0001",
			State:          "suspend",
			StartedUnixNs:  at.Add(-40 * time.Second).UnixNano(),
			DeadlineUnixNs: at.Add(594 * time.Second).UnixNano(),
			Wait:           &falconv1.RecoveryWait{Spare: true, Then: "fail"},
			LostGpuHours:   0.09,
			Faults: []*falconv1.Fault{
				{Kind: "hang", Node: "n0"},
				{Kind: "node", Node: "n2", Ranks: []int32{4, 5}},
			},
		},
	}
	lines := Present(snap)
	joined := strings.Join(lines, "\n")
	if !strings.Contains(
		joined,
		"REC-0001 WAITS for a spare node, 40 s so far: node n2 lost; in 9 min 54 s the recovery fails; 0.09 GPU-h lost",
	) ||
		strings.Contains(joined, "more") {
		t.Error(joined)
	}
	var out bytes.Buffer
	if err := Once(context.Background(), snapshots{snap: snap}, &out, true, nil); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Statements []struct {
			Kind, Who, Text, Recovery string
			Until                     string `json:"until_unix_ns"`
		}
	}
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil || len(doc.Statements) != 3 {
		t.Fatalf("%v: %s", err, out.String())
	}
	first, last := doc.Statements[0], doc.Statements[2]
	if first.Kind != "recovery" ||
		first.Who != "approver" ||
		first.Recovery != "REC-0001" ||
		first.Until == "0" ||
		last.Kind != "last" {
		t.Errorf("%+v", doc.Statements)
	}
}
