package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/recovery"
	"github.com/failslow/falcon/recovery/restart"
)

// killing has the engine die once, at the nth point of its kind from the fault
// on; struck says whether there was one.
type killing struct {
	point  string
	nth    int
	seen   int
	struck bool
}

func (k *killing) on(b *bench) {
	b.fault = func(at string) error {
		if at != k.point || k.struck || b.job.begun.Load() < struckAt {
			return nil
		}
		if k.seen++; k.seen == k.nth {
			k.struck = true
			return errors.New("killed")
		}
		return nil
	}
}

// atEveryPoint plays a story once for every point at which the engine writes or
// sends, until there is no further one.
func atEveryPoint(t *testing.T, play func(t *testing.T, k *killing)) {
	for _, point := range []string{PointBeforeWrite, PointAfterWrite, PointAfterSend} {
		for nth, struck := 1, true; struck; nth++ {
			struck = false
			t.Run(fmt.Sprint(point, " ", nth), func(t *testing.T) {
				k := &killing{point: point, nth: nth}
				synctest.Test(t, func(t *testing.T) { play(t, k) })
				struck = k.struck
			})
		}
	}
}

// outlive runs turns, starts the engine again when it dies, and has a person
// approve what is proposed.
func (b *bench) outlive(turns int) {
	for !b.start() {
	}
	for range turns {
		b.turn()
		if !b.dead() {
			b.each(b)
		}
		if !b.dead() {
			b.approveRecovery()
		}
		if b.dead() {
			_ = b.halt()
			for !b.start() {
			}
		}
	}
}

// approveRecovery approves what waits for a person; an engine that dies
// meanwhile is asked again.
func (b *bench) approveRecovery() {
	b.t.Helper()
	list, err := b.engine.Recoveries(context.Background(), "", false)
	if err != nil ||
		len(list.GetRecoveries()) == 0 ||
		list.GetRecoveries()[0].GetState() != string(falcon.RecoveryProposed) {
		return
	}
	v := list.GetRecoveries()[0]
	_, err = b.engine.Recover(context.Background(), tester, &falconv1.RecoverRequest{
		Recovery: v.GetId(),
		Verb:     string(recovery.Approve),
		PlanHash: v.GetPlanHash(),
	})
	if err != nil &&
		!errors.Is(err, ErrStopped) &&
		!errors.Is(err, ErrStale) &&
		!errors.Is(err, ErrRefused) {
		b.t.Errorf("approve: %v", err)
	}
}

// The engine is killed while a recovery waits for a person, and at all that
// the approval leads to.
func TestKilledWhileARecoveryIsProposed(t *testing.T) {
	atEveryPoint(t, func(t *testing.T, k *killing) {
		o := outages()[0]
		b := suffer(t, o)
		b.policy.Recovery.Approval = falcon.ApprovalPerson
		k.on(b)
		b.outlive(60)
		checkRecovered(b, o)
		if v := b.recoveries()[0]; v.DecidedBy != "tester" {
			t.Errorf("decided by %q", v.DecidedBy)
		}
		b.onceEach()
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

// The engine is killed at all that comes of a recovery that fails: processes that parked
// for it is ended, and holds no device for nothing.
func TestKilledWhereARecoveryFails(t *testing.T) {
	atEveryPoint(t, func(t *testing.T, k *killing) {
		b := suffer(t, outages()[1])
		b.recovery = recovery.Config{SpareWait: 2 * time.Second}
		b.job.agents[2].crew.refuse = map[string]string{launchKind: "no container"}
		k.on(b)
		b.outlive(400)
		list := b.recoveries()
		if len(list) != 1 || list[0].State != falcon.RecoveryFailed {
			t.Fatalf("recoveries %+v", list)
		}
		for _, a := range b.job.agents {
			if len(a.crew.parked) > 0 {
				t.Errorf("ranks still wait on %s: %v", a.node, a.crew.parked)
			}
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

// The same where no survivor can be kept and the whole job is restarted.
func TestKilledInAWholeRestart(t *testing.T) {
	atEveryPoint(t, func(t *testing.T, k *killing) {
		b := suffer(t, outages()[0])
		for _, a := range b.job.agents {
			a.crew.refuse = map[string]string{suspendKind: "rank 0 has no adapter"}
			a.crew.blunt = true
		}
		k.on(b)
		b.outlive(300)
		list := b.recoveries()
		if len(list) != 1 ||
			list[0].State != falcon.RecoveryResumed ||
			!list[0].Whole {
			t.Fatalf("recoveries %+v", list)
		}
		b.inLoop(func() {
			e := b.engine
			if e.state.job.Epoch != 2 ||
				e.state.job.Generation != list[0].Generation ||
				e.state.restart.Phase != restart.Over {
				t.Errorf("job epoch %d of launch %d, restart %s",
					e.state.job.Epoch, e.state.job.Generation, e.state.restart.Phase)
			}
		})
		b.onceEach()
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}

// A device's fatal report is known to the next engine too: its agent reports it
// once, and the process may end any time after.
func TestDeviceReportOutlivesTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := outages()[2]
		b := suffer(t, outage{strike: func(b *bench) {
			b.job.agents[1].deviceFails()
		}})
		b.start()
		b.playTurns(60)
		if len(b.recoveries()) > 0 {
			t.Fatalf("a report alone is no fault: %+v", b.recoveries())
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
		b.start()
		b.playTurns(20)
		b.job.agents[1].crash(2, b.job, "killed by signal 7")
		b.playTurns(60)
		list := b.recoveries()
		if len(list) != 1 ||
			!maps.Equal(list[0].Replaced, o.replaced) ||
			!slices.Equal(list[0].Fenced, o.fenced) {
			t.Errorf("recoveries %+v, want %v replaced and %v fenced", list, o.replaced, o.fenced)
		}
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}

// deviceFails has the agent report that a GPU is gone.
func (a *fakeAgent) deviceFails() {
	a.crew.blunt = true // it ends what it still runs when it is ordered to
	a.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Device{Device: &falconv1.DeviceEvent{
		Device: "n1.g0",
		Fatal:  true,
		Code:   79,
		Text:   "GPU has fallen off the bus",
	}}})
}

func (b *bench) playTurns(turns int) {
	for range turns {
		b.turn()
		b.each(b)
	}
}
