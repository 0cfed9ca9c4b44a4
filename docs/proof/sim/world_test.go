package sim

import (
	"reflect"
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

// One GPU at half its speed for ten minutes: the production detector names it
// and the planner moves its work.
func TestFalconHelps(t *testing.T) {
	sc := Figure20(Brief())
	tr := Trace{{Device: "n3.g5", FromS: 200, ForS: 600, Times: 2}}
	const runS = 1000
	play := func(t Trace, on bool) Result {
		return Run(sc.Shape, t, sc.Costs, 3, runS, on)
	}
	healthy, slow, with := play(nil, false), play(tr, false), play(tr, true)
	removed := (with.PerMinute() - slow.PerMinute()) / (healthy.PerMinute() - slow.PerMinute())
	if removed < 0.75 || removed > 1 {
		t.Errorf(
			"%.2f of the slowdown removed: healthy %.2f, slow %.2f, with Falcon %.2f iterations a minute",
			removed, healthy.PerMinute(), slow.PerMinute(), with.PerMinute(),
		)
	}
	if len(with.Incidents) != 1 ||
		!slices.Equal(with.Incidents[0].Verdict.Devices, []falcon.Device{"n3.g5"}) {
		t.Errorf("incidents: %+v", with.Incidents)
	}
	if len(with.Actions) == 0 ||
		with.Actions[0].Rung != falcon.RungS2 ||
		with.Actions[0].State != falcon.ActionReverted {
		t.Errorf("actions: %+v", with.Actions)
	}
	if !reflect.DeepEqual(with, play(tr, true)) {
		t.Error("the same scenario and seed gave another run")
	}
	calm := play(nil, true)
	if len(calm.Incidents) != 0 || calm.Iterations != healthy.Iterations {
		t.Errorf("a healthy job: %d incidents, %d iterations with Falcon, %d without",
			len(calm.Incidents), calm.Iterations, healthy.Iterations)
	}
}

// Blocks move whole blocks, each rank keeping its place.
func TestMove(t *testing.T) {
	w := &world{
		job: NewJob(
			Shape{
				Layout:      falcon.Layout{TP: 2, DP: 3, PP: 1},
				GPUsPerNode: 2,
				Micro:       1,
				StageMs:     1,
				NICMBs:      1,
				NVLinkMBs:   1,
			},
			nil,
		),
	}
	moved := w.move([]int32{2, 1, 0})
	want := falcon.Placement{"n2.g0", "n2.g1", "n1.g0", "n1.g1", "n0.g0", "n0.g1"}
	if moved != 4 || !slices.Equal(w.job.Placement, want) {
		t.Errorf("%d moved: %v", moved, w.job.Placement)
	}
	w.move([]int32{1, 2, 0}) // the processes of block 0 take block 1 over, …
	if want = (falcon.Placement{
		"n0.g0", "n0.g1", "n2.g0", "n2.g1", "n1.g0", "n1.g1",
	}); !slices.Equal(w.job.Placement, want) {
		t.Errorf("%v", w.job.Placement)
	}
}
