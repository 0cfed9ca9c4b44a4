package mitigate

import (
	"math"
	"testing"
)

// Two of four replicas sit on a starved host whose extra (43 ms an iteration)
// does not move with the work; the healthy ones carry their healthy 5 ms.
func TestPredictKeepsExtrasWhereTheyAre(t *testing.T) {
	slow := replicaMs{base: 237, now: 237, best: 154}
	fast := replicaMs{base: 135, now: 135, best: 180}
	b := split{
		presentMs:  237,
		makespanMs: 180,
		replicas:   []replicaMs{slow, slow, fast, fast},
	}
	for _, c := range []struct{ before, healthy, want float64 }{
		{280, 140, 197}, // slow: 154 + 43, fast: 180 + 5
		{280, 0, 223},   // healthy time unknown: everybody misses 43
		{230, 140, 180}, // faster than simulated: nothing is missing
		{280, 300, 223}, // never more than what is missing now
	} {
		got := b.predictMs(c.before, c.healthy)
		if math.Abs(got-c.want) > 1e-9 {
			t.Errorf("before %v healthy %v: predicted %v, want %v", c.before, c.healthy, got, c.want)
		}
	}
}
