package recovery

import (
	"slices"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// The ranks of two nodes have changed places just before a process dies, and the
// word of it comes when all are suspended already.
func TestAPlacementIsFollowedIntoARecovery(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	m := New(Config{})
	m.Step(at, SetPolicy{Policy: falcon.Policy{Mode: falcon.ModeAuto}})
	old := falcon.Placement{"n0.g0", "n0.g1", "n1.g0", "n1.g1"}
	job := Job{
		Epoch:      1,
		Layout:     falcon.Layout{TP: 1, DP: 4, PP: 1},
		Placement:  old,
		Parks:      true,
		Checkpoint: falcon.NoIteration,
		CanLaunch:  map[falcon.Node]bool{"n0": true, "n1": true},
	}
	m.Step(at, job)
	for r, d := range old {
		m.Step(at, Process{
			Rank:  falcon.Rank(r),
			Node:  d.Node(),
			Pid:   100 + r,
			Alive: true,
		})
	}
	m.Step(at, Process{
		Rank: 1,
		Node: "n0",
		Pid:  101,
		Exit: "killed by signal 9 (SIGKILL)",
	})
	c, ok := m.Current()
	if !ok ||
		c.State != falcon.RecoverySuspend ||
		!slices.Equal(c.Pending, []falcon.Rank{1}) {
		t.Fatalf("the recovery is %+v", c)
	}
	job.Placement = falcon.Placement{"n1.g0", "n1.g1", "n0.g0", "n0.g1"}
	m.Step(at, job)
	c, _ = m.Current()
	if !slices.Equal(c.Placement, job.Placement) ||
		!slices.Equal(c.Pending, []falcon.Rank{3}) ||
		!slices.Equal(c.Faults[0].Ranks, []falcon.Rank{3}) {
		t.Fatalf("placement %v, pending %v, ranks of the fault %v", c.Placement, c.Pending, c.Faults[0].Ranks)
	}
	for _, r := range []falcon.Rank{0, 1, 2} { // those that live park under their new numbers
		d := job.Placement[r]
		m.Step(at, Process{
			Rank:  r,
			Node:  d.Node(),
			Pid:   100 + int(r+2)%4,
			Alive: true,
			Park:  &Park{Generation: c.Generation, Tag: 7},
		})
	}
	m.Step(at, Suspended{Node: "n0", Generation: c.Generation})
	m.Step(at, Suspended{Node: "n1", Generation: c.Generation})
	m.Tick(at.Add(time.Second))
	c, _ = m.Current()
	if c.State != falcon.RecoveryReplace || c.Replaced[3] != "n0.g1" {
		t.Fatalf("after all have parked it is %s: %s, replaced %v", c.State, c.Reason, c.Replaced)
	}
}
