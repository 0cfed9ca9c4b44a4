package phrase

import (
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestWaitsForNamesWhomUntilWhenAndWhatFollows(t *testing.T) {
	for _, x := range []struct {
		in   *falconv1.RecoveryWait
		want string
	}{
		{
			&falconv1.RecoveryWait{Nodes: []string{"n1"}, Spare: true, Then: "fail"},
			"waits 90 s more for n1 to come back or a spare, then the recovery fails",
		},
		{
			&falconv1.RecoveryWait{
				Nodes:    []string{"n1", "n2"},
				Spare:    true,
				Then:     "fewer",
				RedoMs:   120e3,
				LaunchMs: 60e3,
			},
			"waits 90 s more for n1, n2 to come back or a spare, then the job goes on from its checkpoint with fewer replicas (that costs 2 min of training again and 60 s to start)",
		},
		{
			&falconv1.RecoveryWait{
				Nodes:    []string{"n1"},
				Then:     "checkpoint",
				RedoMs:   9500,
				LaunchMs: 65e3,
			},
			"waits 90 s more for n1 to come back, then a spare takes its place and all ranks load the checkpoint (that costs 10 s of training again and 65 s to start)",
		},
	} {
		if got := WaitsFor(x.in, 90*time.Second); got != x.want {
			t.Errorf("got  %s\nwant %s", got, x.want)
		}
	}
}
