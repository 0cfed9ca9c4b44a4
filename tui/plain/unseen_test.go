package plain

import (
	"slices"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// A job whose processes can't be followed is more than "waiting for agents".
func TestProcessesThatAreNotFollowedAreNamed(t *testing.T) {
	s := &falconv1.SnapshotReply{
		Job: &falconv1.Job{State: "waiting for agents"},
		Nodes: []*falconv1.NodeView{{
			Node:   "n1",
			Unseen: []string{"rank 3 is hidden", "rank 4 is hidden"},
		}},
	}
	want := []string{"not watched on n1: rank 3 is hidden", "not watched on n1: rank 4 is hidden"}
	d := newDiff()
	got := d.jobLines(s)
	if !slices.Equal(got[len(got)-2:], want) {
		t.Errorf("%q", got)
	}
	if again := d.jobLines(s); len(again) > 0 {
		t.Errorf("said twice: %q", again)
	}
}
