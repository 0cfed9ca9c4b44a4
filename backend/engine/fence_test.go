package engine

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery"
)

// fenceBench is a job whose node n1 is slow: an action has it replaced by the spare
// n2 from iteration 20 on. All processes live.
func fenceBench(t *testing.T, spares int) *bench {
	b := newBench(t)
	recoverBench(b)
	for range spares - 1 {
		b.job.spare()
	}
	b.script = &fakePlanner{
		at: struckAt,
		fence: &mitigate.Fence{
			Action:   "INC-0001/S4/1",
			Incident: "INC-0001",
			Node:     "n1",
			Spare:    "n2",
			JobEpoch: 1,
			By:       "ann",
			From:     "unix:7",
			Reason:   "slow",
		},
	}
	for _, a := range b.job.agents {
		a.crew.blunt = true // it ends what it runs where it is ordered to
	}
	b.each = func(*bench) {}
	return b
}

// ends has the bench play until the action has ended.
func (b *bench) actionEnds(turns int) {
	b.outlive(turns)
	if a := b.script.action; a == nil || a.State == falcon.ActionDispatched {
		b.t.Fatalf("action %+v, recoveries %+v", a, b.recoveries())
	}
}

func checkFenced(b *bench, spare falcon.Node) {
	b.t.Helper()
	list := b.recoveries()
	if len(list) != 1 ||
		list[0].State != falcon.RecoveryResumed ||
		list[0].Checkpoint ||
		list[0].Whole {
		b.t.Fatalf("recoveries %+v of action %+v", list, b.script.action)
	}
	v := list[0]
	a := b.script.action
	to := falcon.Placement{"n0.g0", "n0.g1", falcon.NewDevice(spare, 0), falcon.NewDevice(spare, 1)}
	if !slices.Contains(v.Fenced, "n1") ||
		v.DecidedBy != "ann" ||
		v.Before-v.Resume > 0 ||
		v.Faults[0].Action != a.ID {
		b.t.Errorf("recovery %+v", v)
	}
	if a.State != falcon.ActionKept ||
		a.Recovery != v.ID ||
		a.Resume != v.Resume ||
		!slices.Equal(b.script.to, to) {
		b.t.Errorf("action %+v on %v", a, b.script.to)
	}
	if n0 := b.job.agents[0]; len(n0.crew.made) > 0 || len(n0.ranks) != 2 {
		b.t.Errorf("node n0 holds %v, %v of them replaced: it was healthy", n0.ranks, n0.crew.made)
	}
	b.inLoop(func() {
		e := b.engine
		if e.state.job.Epoch != 2 ||
			!slices.Equal(e.state.job.Placement, to) ||
			!e.state.fences.nodeFenced("n1") {
			b.t.Errorf("job epoch %d on %v", e.state.job.Epoch, e.state.job.Placement)
		}
	})
	b.onceEach()
}

// The engine is killed at every point at which it writes or sends, from the
// action's record on: one recovery follows, and its outcome is the action's.
func TestKilledInAFence(t *testing.T) {
	atEveryPoint(t, func(t *testing.T, k *killing) {
		b := fenceBench(t, 1)
		k.on(b)
		b.actionEnds(80)
		checkFenced(b, "n2")
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

// The spare dies while it takes the ranks over: another one does.
func TestSpareDiesInAFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fenceBench(t, 2)
		dead := false
		b.job.agents[2].crew.mute = map[string]int{rejoinKind: 1 << 20} // it gets no further before it dies
		b.each = func(b *bench) {
			if n2 := b.job.agents[2]; !dead && len(n2.ranks) > 0 {
				dead = true
				n2.lose(b.job)
			}
		}
		b.actionEnds(300)
		checkFenced(b, "n3")
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

// The planned spare is taken whatever its place among the others.
func TestFenceTakesTheSpareOfThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fenceBench(t, 2)
		b.script.fence.Spare = "n3"
		b.actionEnds(80)
		checkFenced(b, "n3")
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

// A recovery is in progress when the action is carried out: there is one at a time,
// and the action fails with that reason.
func TestFenceWhileARecoveryIsInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fenceBench(t, 2)
		b.policy.Recovery.Approval = falcon.ApprovalPerson
		b.script.at = 1 << 40
		b.start()
		b.playTurns(30)
		b.inLoop(func() {
			b.engine.rec.Step(time.Now(), recovery.Process{
				Rank: 0,
				Node: "n0",
				Pid:  int(b.job.pidOf("n0", 0)),
				Exit: "killed by signal 9",
			})
			b.engine.fencer.demand(time.Now(), *b.script.fence)
		})
		var said string
		for _, in := range b.script.heard {
			if f, is := in.(mitigate.Fenced); is {
				said = f.Failed
			}
		}
		if list := b.recoveries(); len(list) != 1 || !strings.Contains(said, "REC-0001 is in progress") {
			t.Errorf("recoveries %+v, the planner heard %q", list, said)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOnlyCopies(t *testing.T) {
	job := recovery.Job{
		Layout:    falcon.Layout{TP: 1, DP: 2, PP: 2},
		Placement: falcon.Placement{"n0.g0", "n1.g0", "n2.g0", "n2.g1"},
	}
	if got := onlyCopies(job); !slices.Equal(got, []falcon.Node{"n2"}) {
		t.Errorf("%v: both replicas of the second stage are on n2", got)
	}
	job.ZeRO = falcon.ZeRO{Stage: 1, Instances: 1}
	if got := onlyCopies(job); !slices.Equal(got, []falcon.Node{"n0", "n1", "n2"}) {
		t.Errorf("%v: plain ZeRO has no replica", got)
	}
	if got := onlyCopies(recovery.Job{}); got != nil {
		t.Errorf("%v without a job", got)
	}
}
