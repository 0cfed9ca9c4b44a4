package detect

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// backlog is what an agent sends at once of iterations that ran before the engine knew the
// job: one rank's whole series after the other's.
func backlog(iterations, slowFrom int) []falcon.Sample {
	rng := rand.New(rand.NewPCG(5, 5))
	var out []falcon.Sample
	for r := range 2 {
		for i := range iterations {
			ms := 70.0
			if i >= slowFrom {
				ms = 230
			}
			out = append(out, falcon.Sample{
				Rank:      falcon.Rank(r),
				Iteration: int64(i),
				Ms:        ms * (1 + 0.01*rng.NormFloat64()),
			})
		}
	}
	return out
}

func describedPair() *Machine {
	m := New(DefaultConfig())
	m.Step(time.Unix(1, 0), Job{
		Epoch:     1,
		Layout:    falcon.Layout{TP: 1, DP: 2, PP: 1},
		Placement: falcon.Placement{"n0.g0", "n0.g1"},
	})
	return m
}

// A job that is slow before the engine has taken in its first iterations is measured
// against them, and none of them is lost.
func TestSlowWithinABacklog(t *testing.T) {
	for _, iterations := range []int{30, 70, 90, 300} {
		m := describedPair()
		m.Step(time.Unix(60, 0), Samples{Samples: backlog(iterations, iterations-8)})
		for range 3 { // the burst lasts: it is published
			m.Tick(time.Unix(90, 0))
		}
		if seen := m.samples.slowest.seen; seen != iterations {
			t.Errorf("%d iterations at once: the job's series has %d", iterations, seen)
		}
		open := m.incidents.openIncidents()
		if len(open) != 1 ||
			math.Abs(open[0].HealthyMs-70) > 3 ||
			open[0].OnsetIteration != int64(iterations-8) {
			t.Errorf("%d iterations at once: %+v", iterations, open)
		}
	}
}

// Where ranks show an onset before the job's own series has a level, the level right
// before it is what the job is measured against: never 0.
func TestOnsetWhileTheJobIsLearning(t *testing.T) {
	m := describedPair()
	m.onsets.addAlarm(alarm{0, 5, 70, 230, 0.99, nil})
	m.onsets.addAlarm(alarm{1, 5, 70, 230, 0.99, nil})
	m.checkQuorum()
	open := m.incidents.openIncidents()
	if len(open) != 1 || open[0].HealthyMs != 70 {
		t.Errorf("%+v", open)
	}
}
