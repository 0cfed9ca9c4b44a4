package engine

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/mitigate"
)

// The planner's bounds are those of each replica's tightest rank, and state
// counts only when every rank has reported its own.
func TestPlannerHearsWhatAdaptersDeclare(t *testing.T) {
	said := []*falconv1.RankState{ // dp0/pp0, dp1/pp0, dp0/pp1, dp1/pp1
		{StateBytes: 4e6, CopyMbs: 900, MicroMin: 2, MicroMax: 12},
		{StateBytes: 4e6, CopyMbs: 700, MicroMultiple: 2},
		{StateBytes: 5e6, MicroMax: 9},
		{StateBytes: 6e6},
	}
	want := mitigate.Job{
		Layout:        falcon.Layout{TP: 1, DP: 2, PP: 2},
		StateMB:       []float64{4, 4, 5, 6},
		CopyMBs:       700,
		MicroMin:      []int32{2, 1},
		MicroMax:      []int32{9, 0},
		MicroMultiple: []int32{1, 2},
	}
	got := func() mitigate.Job {
		j := newJob()
		for r, s := range said {
			s.Rank = int32(r)
			s.Pid = int32(10 + r)
			s.Alive = true
			s.World = 4
			j.setState("n0", s)
		}
		in := mitigate.Job{Layout: want.Layout}
		j.declare(&in)
		return in
	}
	if d := cmp.Diff(want, got(), cmpopts.EquateComparable(falcon.Mesh{})); d != "" {
		t.Error(d)
	}
	said[3].StateBytes = 0
	want.StateMB = nil
	if d := cmp.Diff(want, got(), cmpopts.EquateComparable(falcon.Mesh{})); d != "" {
		t.Errorf("one rank reports nothing of its state: %s", d)
	}
}

// What a process has not declared it can't, but one that is parked, or has rejoined, has shown it.
func TestWhoParks(t *testing.T) {
	declared := &falconv1.Capabilities{Park: true}
	for _, c := range []struct {
		what   string
		state  *falconv1.RankState
		parks  bool
		inform bool // the journal's job has declared it
	}{
		{"nothing was declared", &falconv1.RankState{}, false, true},
		{"declared", &falconv1.RankState{Can: declared}, true, true},
		{"it can do nothing", &falconv1.RankState{Can: &falconv1.Capabilities{}}, false, true},
		{"it is parked", &falconv1.RankState{Park: &falconv1.Park{Generation: 1}}, true, false},
		{"it has rejoined", &falconv1.RankState{RejoinedGeneration: 1}, true, false},
	} {
		e := jobOfSix()
		e.state.job.Can = falcon.Can{Declared: c.inform, Park: c.inform}
		for r := range 2 {
			s := proto.CloneOf(c.state)
			s.Rank = int32(r)
			s.Pid = int32(100 + r)
			s.World = 2
			s.Alive = true
			e.job.setState(falcon.Node(fmt.Sprint("n", r)), s)
		}
		if got := e.cluster.recoveryJob().Parks; got != c.parks {
			t.Errorf("%s: parks %t", c.what, got)
		}
	}
}
