package detect

import (
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// Without run lengths a series is the times alone, the newest ones of the rank itself.
func TestSeriesOfTimesAlone(t *testing.T) {
	m := New(Config{})
	at := time.Unix(1000, 0)
	m.Step(at, Job{Epoch: 1, Layout: falcon.Layout{TP: 1, DP: 2, PP: 1}})
	m.Advance()
	for i := int64(0); i < 40; i++ {
		at = at.Add(time.Second)
		m.Step(at, Samples{
			Samples: []falcon.Sample{{Rank: 0, Iteration: i, Ms: 100}, {
				Rank:      1,
				Iteration: i,
				Ms:        101,
			}},
		})
		m.Advance()
	}
	times := m.Series(1, 20, 0)
	if len(times) != 20 ||
		times[0].Iteration != 20 ||
		times[19].Iteration != 39 ||
		times[19].Ms != 101 ||
		times[19].Posterior != nil {
		t.Errorf("the times of rank 1: %v", times)
	}
	for _, bad := range []int{-1, 1} {
		if m.Series(1, 20, bad) != nil {
			t.Errorf("%d run lengths draw something", bad)
		}
	}
}
