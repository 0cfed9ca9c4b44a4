package bocd

import (
	"path/filepath"
	"strings"
	"testing"
)

// durations are the series that a record gives: MLPerf logs have the framework's
// iteration times and, as differences of the log's own times, iterations with
// the validation pauses and stalls between them.
func durations(t testing.TB, r record) map[string][]float64 {
	if r.Column == "ms" {
		return map[string][]float64{"ms": r.ms}
	}
	gaps := make([]float64, 0, len(r.ms))
	for i := 1; i < len(r.ms); i++ {
		gaps = append(gaps, r.ms[i]-r.ms[i-1])
	}
	return map[string][]float64{
		"value": readColumn(t, filepath.Join(dataDir(t), r.File), "value"),
		"gaps":  gaps,
	}
}

func track(t testing.TB, tr *Tracker, ms []float64) []Change {
	var out []Change
	for _, x := range ms {
		cs, err := tr.Observe(x)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, cs...)
	}
	return out
}

func near(index int, labels []int) bool {
	for _, l := range labels {
		if index-l <= 5 && l-index <= 5 {
			return true
		}
	}
	return false
}

// TestQuality prints what the tracker finds in the real records and holds it
// to at least 95 % of the labelled changes, placed within 5 points, and at
// most one false onset in 10,000 iterations.
func TestQuality(t *testing.T) {
	points := 0
	labels := 0
	found := 0
	onsets := 0
	reliefs := 0
	for _, r := range readRecords(t) {
		for name, ms := range durations(t, r) {
			changes := track(t, NewTracker(DefaultTrackerConfig()), ms)
			var at []int
			for _, c := range changes {
				switch {
				case c.Kind == KindJitter:
				case near(c.Index, r.Changes):
					at = append(at, c.Index)
				case near(c.Index, r.Small):
				case c.Kind == KindOnset:
					onsets++
					t.Logf("%s %s: onset %+v", short(r.File), name, c)
				default:
					reliefs++
					t.Logf("%s %s: relief %+v", short(r.File), name, c)
				}
			}
			labels += len(r.Changes)
			for _, l := range r.Changes {
				if near(l, at) {
					found++
				} else {
					t.Logf("%s: change at %d not found", short(r.File), l)
				}
			}
			points += len(ms)
		}
	}
	if 100*found < 95*labels || 10000*onsets > points {
		t.Error("not good enough")
	}
	t.Logf("%d points, %d of %d labelled changes, %d other onsets, %d other reliefs",
		points, found, labels, onsets, reliefs)
}

func short(file string) string {
	s := strings.TrimSuffix(filepath.Base(file), ".csv")
	return strings.TrimPrefix(s, "track_1_short-")
}
