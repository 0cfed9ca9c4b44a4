package engine

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/mitigate"
)

// outage is something that happens to the fake job at iteration 20, and what
// its recovery must have come to.
type outage struct {
	name     string
	strike   func(b *bench)
	replaced map[falcon.Rank]falcon.Device
	fenced   []falcon.Node
}

const struckAt = 20

func outages() []outage {
	return []outage{
		{
			name:     "rank",
			replaced: map[falcon.Rank]falcon.Device{2: "n1.g0"},
			strike: func(b *bench) {
				b.job.agents[1].crash(2, b.job, "killed by signal 9")
			},
		},
		{
			name:     "node",
			replaced: map[falcon.Rank]falcon.Device{2: "n2.g0", 3: "n2.g1"},
			fenced:   []falcon.Node{"n1"},
			strike:   func(b *bench) { b.job.agents[1].lose(b.job) },
		},
		{
			name:     "device",
			replaced: map[falcon.Rank]falcon.Device{2: "n2.g0", 3: "n2.g1"},
			fenced:   []falcon.Node{"n1"},
			strike: func(b *bench) {
				b.job.agents[1].deviceFails()
				b.job.agents[1].crash(2, b.job, "killed by signal 7")
			},
		},
		{
			name:     "second fault at rank 0",
			replaced: map[falcon.Rank]falcon.Device{0: "n0.g0", 2: "n1.g0"},
			strike: func(b *bench) {
				n0 := b.job.agents[0]
				n0.crew.onPark = func() { n0.crash(0, b.job, "killed by signal 11") }
				b.job.agents[1].crash(2, b.job, "killed by signal 9")
			},
		},
	}
}

// suffer begins a bench that an outage strikes.
func suffer(t *testing.T, o outage) *bench {
	b := newBench(t)
	recoverBench(b)
	struck := false
	b.each = func(b *bench) {
		if !struck && b.job.iteration >= struckAt {
			struck = true
			o.strike(b)
		}
	}
	return b
}

func (b *bench) recoveries() (out []falcon.Recovery) {
	b.inLoop(func() { out = slices.Clone(b.engine.state.recoveries) })
	return out
}

// checkRecovered compares the engine's picture with the processes, and what
// became of the recovery with what was to.
func checkRecovered(b *bench, o outage) {
	b.t.Helper()
	list := b.recoveries()
	if len(list) != 1 ||
		list[0].State != falcon.RecoveryResumed ||
		list[0].Checkpoint {
		b.t.Fatalf("recoveries %+v", list)
	}
	v := list[0]
	if !maps.Equal(v.Replaced, o.replaced) ||
		!slices.Equal(v.Fenced, o.fenced) ||
		v.Resume != struckAt {
		b.t.Errorf("replaced %v, fenced %v, resumed at %d; want %v, %v, %d",
			v.Replaced, v.Fenced, v.Resume, o.replaced, o.fenced, struckAt)
	}
	b.inLoop(func() {
		rec := b.engine.state.job
		if rec.Epoch != 2 ||
			rec.Rejoined != v.Generation ||
			!slices.Equal(rec.MicroBatches, b.job.micro) {
			b.t.Errorf("job epoch %d of recovery %d, splits %v; want epoch 2 of %d, %v",
				rec.Epoch, rec.Rejoined, rec.MicroBatches, v.Generation, b.job.micro)
		}
		for _, a := range b.job.holders() {
			for _, r := range a.ranks {
				want := fmt.Sprintf("%s/%d", a.node, b.job.pidOf(a.node, r))
				if g := a.crew.made[r]; g != 0 {
					want += fmt.Sprintf("/g%d", g)
				}
				if rec.Processes[r] != want {
					b.t.Errorf("rank %d is %s; the engine says %s", r, want, rec.Processes[r])
				}
			}
		}
		checkSamples(b)
	})
	for _, a := range b.job.agents {
		for r := range a.crew.made {
			if o.replaced[falcon.Rank(r)] == "" {
				b.t.Errorf("rank %d on %s was replaced", r, a.node)
			}
		}
	}
}

func TestRecoveries(t *testing.T) {
	for _, o := range outages() {
		t.Run(o.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := suffer(t, o)
				b.playTo(60)
				checkRecovered(b, o)
				b.onceEach()
				sent := b.sentJobs()
				if !sent.kept || sent.epoch != 2 || !sent.recovered {
					t.Errorf(
						"the detector was sent epoch %d, baseline kept: %v; the planner that it is recovered: %v",
						sent.epoch, sent.kept, sent.recovered,
					)
				}
				if err := b.halt(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// heard is what the other machines were sent of the job after a recovery.
type heard struct {
	epoch     uint64
	kept      bool // the baseline
	recovered bool
}

func (b *bench) sentJobs() (out heard) {
	b.inLoop(func() {
		for _, in := range b.det.log {
			switch in := in.(type) {
			case detect.Job:
				out.epoch = in.Epoch
			case detect.Restored:
				out.kept = out.kept || out.epoch == 2 && in.Baseline == healthyMs
			}
		}
		_, isPlanner := b.engine.plan.(*mitigate.Planner)
		out.recovered = isPlanner && b.engine.state.job.Rejoined != 0
	})
	return out
}

// The engine is killed once at every point at which it writes or sends, in every
// state of a recovery, and goes on where it was.
func TestKilledInARecovery(t *testing.T) {
	for _, o := range outages() {
		t.Run(o.name, func(t *testing.T) {
			atEveryPoint(t, func(t *testing.T, k *killing) {
				killedRecovering(t, o, k)
			})
		})
	}
}

func killedRecovering(t *testing.T, o outage, k *killing) {
	b := suffer(t, o)
	k.on(b)
	b.playTo(40)
	checkRecovered(b, o)
	b.onceEach()
	if err := b.halt(); err != nil {
		t.Fatal(err)
	}
	if n := len(b.records()[kindFence]); n < 1 {
		t.Errorf("%d fences in the journal", n)
	}
}

// Under plain ZeRO no rank has what a dead rank had: all go back to the
// checkpoint, in the processes that live, and no further than that.
func TestCheckpointInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := suffer(t, outages()[0])
		for _, a := range b.job.agents {
			a.crew.declares = func(s *falconv1.RankState) {
				// 0 would be none
				s.ZeroStage = 1
				s.ZeroInstances = 1
				s.CheckpointIteration = 16 + 1
			}
		}
		b.playTo(60)
		list := b.recoveries()
		if len(list) != 1 ||
			list[0].State != falcon.RecoveryResumed ||
			!list[0].Checkpoint ||
			list[0].Whole ||
			list[0].Resume != 16 {
			t.Fatalf("recoveries %+v", list)
		}
		if !slices.Equal(b.job.resumed, []int64{16}) {
			t.Errorf("the job went on at %v", b.job.resumed)
		}
		for _, a := range b.job.agents {
			if len(a.crew.loaded) != len(a.ranks) || slices.Contains(a.crew.loaded, false) {
				t.Errorf("ranks of %s rejoined from the checkpoint: %v", a.node, a.crew.loaded)
			}
		}
		b.onceEach()
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}
