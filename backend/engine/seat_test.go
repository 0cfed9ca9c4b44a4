package engine

import (
	"testing"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// A process that a recovery has started after a placement has carried none out:
// an engine that starts later must not take its reports for those of before.
func TestAProcessStartedAfterAPlacementIsHeard(t *testing.T) {
	j := newJob()
	j.remember(jobRecord{
		Epoch:          3,
		Processes:      []string{"n0/100", "n1/200/g6"},
		Layout:         falcon.Layout{TP: 1, DP: 2, PP: 1},
		Placement:      falcon.Placement{"n0.g0", "n1.g0"},
		PlacementOrder: 3,
		Rejoined:       6,
	})
	made := &falconv1.RankState{
		Rank:       1,
		Pid:        200,
		Generation: 6,
		Alive:      true,
		World:      2,
		Device:     "n1.g0",
	}
	if !j.setState("n1", made) {
		t.Fatal("the state of the process made after the placement was not taken")
	}
	made = &falconv1.RankState{
		Rank:       1,
		Pid:        200,
		Generation: 6,
		Alive:      true,
		World:      2,
		Device:     "n1.g0",
		Park:       &falconv1.Park{Generation: 7},
	}
	if !j.setState("n1", made) || j.ranks[1].state.GetPark().GetGeneration() != 7 {
		t.Fatalf("it parks, and the engine has %v", j.ranks[1].state)
	}
	old := (&falconv1.RankState{
		Rank:   1,
		Pid:    100,
		Alive:  true,
		World:  2,
		Device: "n0.g0",
	})
	if j.setState("n0", old) && j.ranks[1].node == "n0" {
		t.Fatal("a report from before the placement has moved a process back")
	}
}
