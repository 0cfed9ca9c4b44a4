package bocd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/failslow/falcon"
)

// closeEnough is how far P(r ≤ w) may be from the exact filter's.
const closeEnough = 0.01

// TestPruningIsClose holds the production filter against the exact one on
// stationary series and on every record in full, fed without the tracker's
// restarts: P(r ≤ w) stays within 0.01 at every point.
func TestPruningIsClose(t *testing.T) {
	most := compare(t, stationary(6000))
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(100+seed, 2))
		xs := make([]float64, 3000)
		for i := range xs {
			xs[i] = rng.NormFloat64()
		}
		most = max(most, compare(t, xs))
	}
	t.Logf("stationary: P(r ≤ w) off by at most %.4f", most)
	if most > closeEnough {
		t.Error("too far")
	}
	points, most := 0, 0.0
	for _, r := range readRecords(t) {
		for _, ms := range durations(t, r) {
			head := append([]float64(nil), ms[:beforeMost]...)
			centre := falcon.Median(head)
			scale := spreadOf(head, centre)
			xs := make([]float64, len(ms))
			for i := range ms {
				xs[i] = (ms[i] - centre) / scale
			}
			points += len(xs)
			most = max(most, compare(t, xs))
		}
	}
	t.Logf("records: %d points, P(r ≤ w) off by at most %.4f", points, most)
	if most > closeEnough {
		t.Error("too far")
	}
}

// TestPruningOnLongNoise is the same on a longer series, where a chance excursion
// now and then meets run lengths that were merged long before.
func TestPruningOnLongNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(904, 3))
	xs := make([]float64, 12_000)
	for i := range xs {
		xs[i] = rng.NormFloat64()
	}
	if most := compare(t, xs); most > 0.025 {
		t.Errorf("P(r ≤ w) off by %.4f", most)
	}
}

// TestPruningIsCloseInTheTracker does the same for the filter as the tracker
// feeds it: the exact filter gets the same scaled values and is started over
// when the tracker's is.
func TestPruningIsCloseInTheTracker(t *testing.T) {
	points, most := 0, 0.0
	for _, r := range readRecords(t) {
		for name, ms := range durations(t, r) {
			tr := NewTracker(DefaultTrackerConfig())
			exact := New(Config{})
			for i, x := range ms {
				shadow(t, tr, exact, x)
				off := math.Abs(exact.Last().PRecent - tr.filter.Last().PRecent)
				if points, most = points+1, max(most, off); off > closeEnough {
					t.Errorf("%s %s[%d]: off by %.4f", short(r.File), name, i, off)
				}
			}
		}
	}
	t.Logf("%d points, P(r ≤ w) off by at most %.4f", points, most)
}

// shadow gives an observation to the tracker, and to exact what the tracker's
// filter then got.
func shadow(t *testing.T, tr *Tracker, exact *Filter, ms float64) {
	was := tr.restarts
	if _, err := tr.Observe(ms); err != nil {
		t.Fatal(err)
	}
	feed := []float64{ms}
	switch {
	case tr.restarts != was:
		exact.Reset()
		feed = tr.observations(max(tr.from, tr.next-refeed), tr.next)
	case tr.Learning():
		return
	}
	for _, v := range feed {
		if _, err := exact.Observe(tr.standard(v)); err != nil {
			t.Fatal(err)
		}
	}
	if exact.Seen() != tr.filter.Seen() {
		t.Fatalf("%d seen, the tracker's filter %d", exact.Seen(), tr.filter.Seen())
	}
}

// compare returns the largest difference of P(r ≤ w), and checks the bound on
// run lengths kept.
func compare(t *testing.T, xs []float64) (most float64) {
	exact := New(Config{})
	pruned := New(DefaultConfig())
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
		most = max(most, math.Abs(a.PRecent-b.PRecent))
	}
	return most
}

// TestPruningChangesNoDecision runs the tracker with and without pruning over
// every record: the same changes, at the same points, known at the same time.
func TestPruningChangesNoDecision(t *testing.T) {
	points, off, most := 0, 0, 0.0
	for _, r := range readRecords(t) {
		for name, ms := range durations(t, r) {
			exact := DefaultTrackerConfig()
			exact.Filter.Prune = 0
			a := NewTracker(exact)
			b := NewTracker(DefaultTrackerConfig())
			var want, got []Change
			for _, x := range ms {
				want = append(want, decisions(t, a, x)...)
				got = append(got, decisions(t, b, x)...)
				d := math.Abs(a.PRecent() - b.PRecent())
				points++
				most = max(most, d)
				if d > 0.01 {
					off++
				}
			}
			if len(want) != len(got) {
				t.Errorf("%s %s: %d decisions exact, %d pruned",
					short(r.File), name, len(want), len(got))
				continue
			}
			for i := range want {
				if want[i].Index != got[i].Index ||
					want[i].Kind != got[i].Kind ||
					want[i].DetectedAt != got[i].DetectedAt {
					t.Errorf("%s %s: exact %+v, pruned %+v",
						short(r.File), name, want[i], got[i])
				}
			}
		}
	}
	if off > 0 {
		t.Error("too far")
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
