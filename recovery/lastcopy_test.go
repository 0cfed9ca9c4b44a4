package recovery

import (
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// One node is lost and the only other one with its shard is out of reach for a
// while: it is waited for, and given up in the end.
func TestTheLastCopyIsWaitedFor(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	m := New(Config{})
	m.Step(at, SetPolicy{Policy: falcon.Policy{Mode: falcon.ModeAuto}})
	on := falcon.Placement{"n0.g0", "n1.g0", "n2.g0", "n3.g0"}
	m.Step(at, Job{
		Epoch:      1,
		Layout:     falcon.Layout{TP: 1, DP: 2, PP: 2},
		Placement:  on,
		Parks:      true,
		Checkpoint: falcon.NoIteration,
		CanLaunch: map[falcon.Node]bool{
			"n0": true,
			"n1": true,
			"n2": true,
			"n3": true,
		},
		Spares: []falcon.Node{"n4", "n5"},
	})
	heard := func(now time.Time, nodes ...falcon.Node) {
		for _, n := range nodes {
			m.Step(now, Node{Node: n, Alive: true})
		}
		m.Tick(now)
	}
	heard(at, "n0", "n1", "n2", "n3")
	for r, d := range on {
		m.Step(at, Process{
			Rank:  falcon.Rank(r),
			Node:  d.Node(),
			Pid:   100 + r,
			Alive: true,
		})
	}
	for s := range 15 {
		heard(at.Add(time.Duration(s)*time.Second), "n0", "n1", "n2", "n3")
	}
	at = at.Add(15 * time.Second)
	// rank 1 on n1 has its shard
	m.Step(at, Process{
		Rank: 0,
		Node: "n0",
		Pid:  100,
		Exit: "killed by signal 9 (SIGKILL)",
	})
	c, _ := m.Current()
	for _, r := range []falcon.Rank{2, 3} {
		m.Step(at, Process{
			Rank:  r,
			Node:  on[r].Node(),
			Pid:   100 + int(r),
			Alive: true,
			Park:  &Park{Generation: c.Generation, Tag: 7},
		})
	}
	for _, n := range []falcon.Node{"n0", "n2", "n3"} {
		m.Step(at, Suspended{Node: n, Generation: c.Generation})
	}
	for s := range 50 {
		heard(at.Add(time.Duration(s)*time.Second), "n0", "n2", "n3")
	}
	c, _ = m.Current()
	if c.State != falcon.RecoverySuspend || len(c.Fenced) != 0 {
		t.Fatalf("after 50 s it is %s, fenced %v: %s", c.State, c.Fenced, c.Reason)
	}
	for s := range 60 {
		heard(at.Add(time.Duration(50+s)*time.Second), "n0", "n2", "n3")
	}
	if c = m.Recoveries()[0]; len(c.Fenced) != 1 || c.Fenced[0] != "n1" {
		t.Fatalf("after 110 s it is %s, fenced %v: %s", c.State, c.Fenced, c.Reason)
	}
}
