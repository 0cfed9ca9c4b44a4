package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/recovery"
	"github.com/failslow/falcon/recovery/restart"
)

// dwindle begins a job without a spare that loses half of its replicas.
func dwindle(t *testing.T) *bench {
	b := suffer(t, outages()[1])
	b.job.agents = b.job.agents[:2]
	b.job.saved = struckAt/2 + 1
	b.policy.Recovery.AllowShrink = true
	b.recovery = recovery.Config{SpareWait: 5 * time.Second}
	return b
}

// checkFewer compares the engine's picture with the two replicas that are left.
func checkFewer(b *bench) {
	b.t.Helper()
	list := b.recoveries()
	if len(list) != 1 ||
		list[0].State != falcon.RecoveryResumed ||
		!list[0].Whole ||
		list[0].Shrink == nil {
		b.t.Fatalf("recoveries %+v", list)
	}
	v := list[0]
	if v.Reason != "it goes on with 2 of 4 replicas: no spare came" ||
		!slices.Equal(v.Splits, []int32{16, 16}) {
		b.t.Errorf("reason %q, splits %v", v.Reason, v.Splits)
	}
	w := convert.RecoveryToProto(v)
	if !w.GetWhole() ||
		w.GetShrink().GetOf() != 4 ||
		!slices.Equal(w.GetShrink().GetKept(), []int32{0, 1}) {
		b.t.Errorf("on the wire: whole %v, %v", w.GetWhole(), w.GetShrink())
	}
	checkPicture(b)
	b.inLoop(func() {
		e := b.engine
		want := falcon.Placement{"n0.g0", "n0.g1"}
		rec := e.state.job
		if rec.Epoch != 2 ||
			rec.Layout != (falcon.Layout{TP: 1, DP: 2, PP: 1}) ||
			!slices.Equal(rec.Placement, want) ||
			!slices.Equal(rec.MicroBatches, []int32{16, 16}) {
			b.t.Errorf("job %+v", rec)
		}
		if !slices.Equal(v.Placement, want) ||
			e.state.restart.Phase != restart.Over ||
			!e.state.fences.nodeFenced("n1") {
			b.t.Errorf("recovered on %v, restart %s, fences %v",
				v.Placement, e.state.restart.Phase, e.state.fences.nodes)
		}
		in := e.cluster.recoveryJob()
		if in.Layout != rec.Layout || !slices.Equal(in.Splits, rec.MicroBatches) {
			b.t.Errorf("the next recovery begins with %+v", in)
		}
	})
	if n := b.job.agents[0].place.started; n != 1 {
		b.t.Errorf("node n0 started processes %d times", n)
	}
}

// checkFewerHeard: the detector sees the smaller job as any other job epoch.
func checkFewerHeard(b *bench) {
	b.t.Helper()
	b.inLoop(func() {
		var job detect.Job
		newest := int64(-1)
		for _, in := range b.det.log {
			switch in := in.(type) {
			case detect.Job:
				job, newest = in, -1
			case detect.Samples:
				for _, s := range in.Samples {
					newest = max(newest, s.Iteration)
					if int(s.Rank) >= job.Layout.World() {
						b.t.Errorf("a sample of rank %d in a world of %d", s.Rank, job.Layout.World())
					}
				}
			}
		}
		if job.Epoch != 2 ||
			job.Layout.DP != 2 ||
			len(job.Comms) != 2 ||
			newest < struckAt+5 {
			b.t.Errorf("the detector knows %+v, with samples to iteration %d", job, newest)
		}
	})
}

func TestFewerReplicasGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := dwindle(t)
		b.start()
		for range 300 {
			b.turn()
			b.each(b)
		}
		checkFewer(b)
		checkFewerHeard(b)
		b.onceEach()
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}

// Policy decides: without it the job stops, as it did.
func TestReplicasAreNotGivenUpUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := dwindle(t)
		b.policy.Recovery.AllowShrink = false
		b.start()
		for range 300 {
			b.turn()
			b.each(b)
		}
		v := b.recoveries()[0]
		if v.State != falcon.RecoveryFailed ||
			v.Shrink != nil ||
			b.job.agents[0].place.started != 0 {
			t.Errorf("recovery %+v", v)
		}
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}

// The engine is killed at every point from the loss to the smaller job.
func TestKilledWhileReplicasAreGivenUp(t *testing.T) {
	atEveryPoint(t, func(t *testing.T, k *killing) {
		b := dwindle(t)
		k.on(b)
		b.outlive(500)
		checkFewer(b)
		b.onceEach()
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
	})
}
