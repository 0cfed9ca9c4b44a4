package engine

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/failslow/falcon"
)

// inRecovery plays a job until it has stood up again from what happens to it at
// iteration 20, and on to iteration 60.
func inRecovery(t *testing.T, fault func(b *bench)) *bench {
	b := newBench(t)
	recoverBench(b)
	b.start()
	for range 400 {
		if b.turn(); b.job.iteration == 20 && !b.job.stalled && len(b.job.resumed) == 0 {
			fault(b)
		}
		if b.job.iteration >= 60 {
			break
		}
	}
	return b
}

func (b *bench) recoveries() (out []falcon.Recovery) {
	b.inLoop(func() { out = slices.Clone(b.engine.mem.recoveries) })
	return out
}

func TestRankThatDiesIsMadeAnewInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inRecovery(t, func(b *bench) { b.job.agents[1].crash(2, b.job, "killed by signal 9") })
		for _, l := range b.engine.mem.events {
			t.Log(l.GetText())
		}
		r := b.recoveries()
		if len(r) != 1 || r[0].State != falcon.RecoveryResumed || r[0].Resume != 20 {
			t.Fatalf("recoveries %+v", r)
		}
		if err := b.halt(); err != nil {
			t.Error(err)
		}
	})
}
