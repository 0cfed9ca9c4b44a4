package detect

import (
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// An incident that ranks reported first keeps the baseline where noise hides the
// change from the job's own series: else a slow level would pass for the
// healthy one, and the incident for relieved. Without one the first level's
// median is the baseline, as ever.
func TestOpenIncidentHoldsTheBaseline(t *testing.T) {
	for _, c := range []struct {
		open bool
		want float64
	}{{true, 130}, {false, 160}} {
		m := New(DefaultConfig())
		m.Step(
			time.Unix(1, 0),
			Job{Epoch: 1, Layout: falcon.Layout{TP: 1, DP: 2, PP: 1}},
		)
		for i := range int64(80) {
			ms := 100 + 60*float64(i%2) // noise that no change of this size stands out of
			if i >= 12 {
				ms += 4 * float64(min(i-12, 10)*(i%3))
			}
			if i == 12 && c.open {
				m.incidents.list = append(m.incidents.list, &incidentState{Incident: falcon.Incident{
					ID:             "INC-0001",
					State:          falcon.IncidentVerified,
					OnsetIteration: i,
				}})
			}
			m.onIteration(cell{iteration: i, ms: ms})
		}
		if got := m.Steady().BaselineMs; got != c.want {
			t.Errorf("incident open %v: baseline %.0f ms, want %.0f", c.open, got, c.want)
		}
	}
}
