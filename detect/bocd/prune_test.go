package bocd

import (
	"math"
	"testing"
)

// TestPruningIsClose holds the production filter against the exact one: on a
// stationary series P(r ≤ w) stays within 0.01 everywhere; on the real records,
// fed without the tracker's restarts, on all but one point in 500.
func TestPruningIsClose(t *testing.T) {
	if worst, _ := compare(t, stationary(4000)); worst > 0.01 {
		t.Errorf("stationary: P(r ≤ w) off by %.4f", worst)
	} else {
		t.Logf("stationary: P(r ≤ w) off by at most %.4f", worst)
	}
	points, off, most := 0, 0, 0.0
	for _, r := range readRecords(t) {
		for _, ms := range durations(t, r) {
			ms = ms[:min(len(ms), 500)]
			head := append([]float64(nil), ms[:beforeMost]...)
			centre := median(head)
			scale := spreadOf(head, centre)
			xs := make([]float64, len(ms))
			for i := range ms {
				xs[i] = (ms[i] - centre) / scale
			}
			worst, beyond := compare(t, xs)
			points, off, most = points+len(xs), off+beyond, max(most, worst)
		}
	}
	t.Logf("records: %d of %d points off by more than 0.01, at most %.4f", off, points, most)
	if 500*off > points {
		t.Errorf("too many")
	}
}

// compare returns the largest difference of P(r ≤ w) and how many are beyond
// 0.01, and checks the bound on run lengths kept.
func compare(t *testing.T, xs []float64) (worst float64, beyond int) {
	exact, pruned := New(Config{}), New(DefaultConfig())
	for i, x := range xs {
		a, err := exact.Observe(x)
		if err != nil {
			t.Fatal(err)
		}
		b, err := pruned.Observe(x)
		if err != nil {
			t.Fatal(err)
		}
		if b.Runs > DefaultMaxRuns+1 {
			t.Fatalf("%d run lengths kept", b.Runs)
		}
		checkPosterior(t, pruned, "pruned", i)
		d := math.Abs(a.PRecent - b.PRecent)
		worst = max(worst, d)
		if d > 0.01 {
			beyond++
		}
	}
	return worst, beyond
}

// TestPruningChangesNoDecision runs the tracker with and without pruning over
// every record: the same changes, at the same points, known at the same time.
func TestPruningChangesNoDecision(t *testing.T) {
	points, off, most := 0, 0, 0.0
	for _, r := range readRecords(t) {
		for name, ms := range durations(t, r) {
			exact := DefaultTrackerConfig()
			exact.Filter.Prune = 0
			a, b := NewTracker(exact), NewTracker(DefaultTrackerConfig())
			var want, got []Change
			for _, x := range ms {
				want = append(want, decisions(t, a, x)...)
				got = append(got, decisions(t, b, x)...)
				d := math.Abs(a.PRecent() - b.PRecent())
				points, most = points+1, max(most, d)
				if d > 0.01 {
					off++
				}
			}
			if len(want) != len(got) {
				t.Errorf("%s %s: %d decisions exact, %d pruned", short(r.File), name, len(want), len(got))
				continue
			}
			for i := range want {
				if want[i].Index != got[i].Index || want[i].Kind != got[i].Kind || want[i].DetectedAt != got[i].DetectedAt {
					t.Errorf("%s %s: exact %+v, pruned %+v", short(r.File), name, want[i], got[i])
				}
			}
		}
	}
	t.Logf("%d points, %d with P(r ≤ w) off by more than 0.01, at most %.4f", points, off, most)
}

func decisions(t *testing.T, tr *Tracker, ms float64) []Change {
	cs, err := tr.Observe(ms)
	if err != nil {
		t.Fatal(err)
	}
	var out []Change
	for _, c := range cs {
		if c.Kind != KindJitter {
			out = append(out, c)
		}
	}
	return out
}
