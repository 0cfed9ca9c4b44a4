package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/journal"
)

// points are those at which an engine, or its journal, writes or sends.
func points() []string {
	return []string{PointBeforeWrite, PointAfterWrite, PointAfterSend, journal.PointCommitted}
}

// The engine is killed at every point at which it writes or sends, one kill a
// run, and started again on its journal. The story must end as without a kill:
// nothing lost, nothing executed twice.
func TestKilledAtEveryPoint(t *testing.T) {
	for _, point := range points() {
		t.Run(point, func(t *testing.T) {
			for nth := 1; ; nth++ {
				if !killedAt(t, point, nth) {
					if nth < 8 {
						t.Errorf("the point was reached only %d times", nth-1)
					}
					return
				}
			}
		})
	}
}

func killedAt(t *testing.T, point string, nth int) (struck bool) {
	t.Run(fmt.Sprint(nth), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			seen := 0
			b.fault = func(at string) error {
				if at != point || struck {
					return nil
				}
				if seen++; seen == nth {
					struck = true
					return errors.New("killed")
				}
				return nil
			}
			playThrough(b)
			if err := b.halt(); err != nil {
				t.Fatal(err)
			}
			checkStory(b)
		})
	})
	return struck
}

// playThrough runs the job to its end and restarts the engine when it dies.
func playThrough(b *bench) {
	for !b.start() {
	}
	for b.job.iteration < 130 {
		b.turn()
		if !b.dead() {
			approveIfProposed(b)
		}
		if b.dead() {
			_ = b.halt()
			for !b.start() {
			}
		}
	}
}

func checkStory(b *bench) {
	b.t.Helper()
	b.onceEach()
	if !slices.Equal(b.job.micro, []int32{8, 8, 8, 8}) || len(b.job.commits) != 2 {
		b.t.Errorf("micro-batches %v after commits %v", b.job.micro, b.job.commits)
	}
	m := newJournalState()
	rec := b.records()
	for _, kind := range []journal.Kind{kindIncident, kindAction, kindOrder, kindOutcome, kindDecision} {
		for _, r := range rec[kind] {
			if err := m.apply(r); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	if len(m.incidents) != 1 || m.incidents[0].State != falcon.IncidentClosed {
		b.t.Errorf("incidents in the journal: %+v", m.incidents)
	}
	if len(m.actions) != 1 ||
		m.actions[0].State != falcon.ActionReverted ||
		m.actions[0].DecidedBy != "tester" {
		b.t.Errorf("actions in the journal: %+v", m.actions)
	}
	if len(m.orders) != 0 ||
		len(rec[kindOrder]) != 2 ||
		len(rec[kindDecision]) != 1 {
		b.t.Errorf("%d orders open, %d in all, %d decisions",
			len(m.orders), len(rec[kindOrder]), len(rec[kindDecision]))
	}
}
