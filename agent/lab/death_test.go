package lab

import (
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

// What happens at a point is the trainer's to do; of a node that dies there, the
// rank that comes to it stops, and the lab does the rest.
func TestFaultArgs(t *testing.T) {
	sc := scenarioWith(t, `  - {at_iteration: 3, kill: 5, point: mid-update}
  - {at_iteration: 4, kill: n3, point: forward}
  - {at_iteration: 4, freeze: rank 2, point: gather}
  - {at_iteration: 5, kill: rank 6, point: restore, generation: 2}
  - {at_iteration: 5, kill: rank 7, point: park}
  - {at_iteration: 9, kill: rank 1}
`)
	want := []string{
		"--fault", "mid-update@3:5:kill", "--fault", "forward@4:3:freeze", "--fault", "gather@4:2:freeze",
		"--fault", "restore@5:6:kill/2", "--fault", "park@5:7:kill",
	}
	if got := sc.faultArgs(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A death at a point is dealt when its rank says so, once; one without a point
// when its iteration comes; a freeze ends when it is to end.
func TestDeathsAtPoints(t *testing.T) {
	sc := scenarioWith(t, `  - {at_iteration: 3, kill: n5, point: backward}
  - {at_iteration: 3, freeze: 2, until_iteration: 8}
`)
	f := newFaults(sc, testSilicon(t, sc))
	if got := f.deathsBefore(3, "", -1); len(got) != 1 || got[0].Freeze != "2" {
		t.Fatalf("dealt at iteration 3: %+v", got)
	}
	for _, c := range []struct {
		rank  int32
		point string
		want  bool
	}{{4, "backward", false}, {5, "forward", false}, {5, "backward", true}, {5, "backward", false}} {
		if _, got := f.eventAtPoint(falcon.Rank(c.rank), c.point); got != c.want {
			t.Errorf("rank %d at %s: %v", c.rank, c.point, got)
		}
	}
	if f.thawsBefore(7) != nil ||
		len(f.thawsBefore(8)) != 1 ||
		f.thawsBefore(9) != nil {
		t.Error("the freeze does not end once, at its iteration")
	}
	if f.applyBefore(4); len(f.injected) != 0 {
		t.Errorf("deaths are no faults of hardware: %+v", f.injected)
	}
}
