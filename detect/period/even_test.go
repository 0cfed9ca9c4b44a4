package period

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// oneBucket are the calls of a rank whose gradients fit one bucket: one reduction an
// iteration, behind what the job's start brings.
func oneBucket(n int, noise float64, seed uint64) []Call {
	rng := rand.New(rand.NewPCG(seed, 1))
	var out []Call
	at := int64(0)
	for i := range 12 {
		at += 1e5
		out = append(out, Call{
			Op:      3 + uint32(i%2),
			Comm:    7,
			Bytes:   1 << 10,
			TimeNs:  at,
			Ordinal: uint64(i),
		})
	}
	for i := range n {
		at += int64(300e6 * (1 + noise*rng.NormFloat64()))
		out = append(out, Call{
			Op:      1,
			Comm:    7,
			Bytes:   1 << 20,
			TimeNs:  at,
			Ordinal: uint64(12 + i),
		})
	}
	return out
}

func TestTrackerTakesEvenCallsForIterations(t *testing.T) {
	for seed := range uint64(20) {
		tr := NewTracker(Config{})
		its := 0
		last := int64(0)
		for _, c := range oneBucket(300, 0.05, seed) {
			for _, it := range tr.Observe(c) {
				if it.Calls != 1 || last > 0 && it.Number != last+1 {
					t.Fatalf("seed %d: iteration %+v after number %d", seed, it, last)
				}
				its++
				last = it.Number
			}
		}
		if tr.Period() != 1 || its < 250 {
			t.Errorf("seed %d: period %d, %d iterations", seed, tr.Period(), its)
		}
	}
}

// A slowdown in the middle of what is learned from is no reason to give up, and later ones
// are times of iterations.
func TestTrackerSeesASlowdownOfEvenCalls(t *testing.T) {
	calls := oneBucket(200, 0.03, 5)
	for i := 150; i < len(calls); i++ {
		calls[i].TimeNs += int64(i-149) * 300e6
	}
	tr := NewTracker(Config{})
	var ms []float64
	for _, c := range calls {
		for _, it := range tr.Observe(c) {
			ms = append(ms, it.Ms())
		}
	}
	if n := len(ms); n < 150 || ms[n-1] < 500 || ms[n/2] > 400 {
		t.Errorf("%d iterations: %v", n, ms)
	}
}

// Calls of one kind that come first, at even times, are no iterations once others come.
func TestTrackerGivesEvenCallsUp(t *testing.T) {
	calls := oneBucket(80, 0.05, 3)
	at := calls[len(calls)-1].TimeNs
	ordinal := uint64(0)
	calls = append(calls, megatron(60, 2, &ordinal, &at)...)
	tr := NewTracker(Config{})
	var newest Iteration
	for _, c := range calls {
		for _, it := range tr.Observe(c) {
			newest = it
		}
	}
	if tr.Period() != 12 || newest.Calls != 12 {
		t.Errorf("period %d, newest iteration %+v; want 12 calls", tr.Period(), newest)
	}
}

func TestUnevenCallsOfOneKindAreNoIterations(t *testing.T) {
	if r, err := Infer(oneBucket(300, 0.5, 2)); !errors.Is(err, ErrNone) {
		t.Errorf("period %d, %v", r.Period, err)
	}
}
