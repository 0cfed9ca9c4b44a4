package recovery

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// Ranks 0 and 1 have ended in order while they were parked for generation 5: a recovery that the journal
// has lost ordered it. The others wait for them.
func TestAnOrderedEndIsNoEndOfTheJob(t *testing.T) {
	for name, c := range map[string]struct {
		rejoined uint64 // by the processes that have ended
		most     bool   // of the ranks end with success
		parked   bool   // the others are
		lost     bool
	}{
		"they were ordered to end":                     {4, false, false, true},
		"they had rejoined it":                         {5, false, false, false},
		"most of the ranks have come to the job's end": {4, true, false, false},
		"all are ordered to end":                       {4, false, true, false},
	} {
		at := time.Unix(1_700_000_000, 0)
		m := New(Config{})
		m.Step(at, SetPolicy{Policy: falcon.Policy{Mode: falcon.ModeAuto}})
		p := falcon.Placement{"n0.g0", "n0.g1", "n1.g0", "n1.g1", "n2.g0", "n2.g1"}
		m.Step(at, Job{
			Epoch:      1,
			Layout:     falcon.Layout{TP: 1, DP: 6, PP: 1},
			Placement:  p,
			Generation: 5,
			Parks:      true,
			Checkpoint: falcon.NoIteration,
		})
		ended := []falcon.Rank{0, 1}
		for r, d := range p {
			m.Step(at, Process{
				Rank:       falcon.Rank(r),
				Node:       d.Node(),
				Pid:        100 + r,
				Generation: 4,
				Rejoined:   4,
				Alive:      true,
			})
		}
		if c.parked {
			ended = []falcon.Rank{0, 1, 2, 3, 4, 5}
		}
		for r, d := range p {
			end := Process{
				Rank:       falcon.Rank(r),
				Node:       d.Node(),
				Pid:        100 + r,
				Generation: 4,
				Rejoined:   4,
				Normal:     true,
				Finished:   true,
				Exit:       "exited normally",
			}
			switch {
			case slices.Contains(ended, falcon.Rank(r)):
				end.Rejoined = c.rejoined
				end.Park = &Park{Generation: 5}
			case !c.most:
				continue
			}
			m.Step(at, end)
			m.Step(at, end) // its agent says it again on the next stream
		}
		for range 10 {
			at = at.Add(time.Second)
			for _, d := range p {
				m.Step(at, Node{Node: d.Node(), Alive: true})
			}
			m.Tick(at)
		}
		rec, open := m.Current()
		if open != c.lost ||
			open &&
				!strings.Contains(rec.Faults[0].Evidence[0],
					"rank 0 (process 100 on n0.g0) ended: exited normally") {
			t.Errorf("%s: a recovery %t: %v", name, open, rec.Faults)
		}
	}
}
