package period

import "testing"

// megatron is a rank's calls: per iteration micro-batches of tensor-parallel
// all-reduces and pipeline sends, then one data-parallel reduce-scatter and
// all-gather.
func megatron(iterations, microBatches int, from *uint64, at *int64) []Call {
	var out []Call
	add := func(op uint32, comm uint64, bytes int64, ns int64) {
		*at += ns
		out = append(out, Call{Op: op, Comm: comm, Bytes: bytes, TimeNs: *at})
	}
	for range iterations {
		for range microBatches {
			for range 4 {
				add(1, 7, 1<<20, 1e6)
			}
			add(9, 8, 1<<18, 2e6)
		}
		add(3, 9, 1<<26, 5e6)
		out[len(out)-1].Ordinal = *from
		*from++
		add(4, 9, 1<<26, 5e6)
		out[len(out)-1].Ordinal = *from
		*from++
	}
	return out
}

func TestTrackerCountsIterationsNotMicroBatches(t *testing.T) {
	var ordinal uint64
	var at int64
	tr := NewTracker(Config{})
	next := int64(0)
	for _, c := range megatron(50, 8, &ordinal, &at) {
		for _, it := range tr.Observe(c) {
			if it.Fresh {
				next = it.Number
			}
			if it.Number != next || it.Calls != 42 || it.Ms() != 58 {
				t.Fatalf("iteration %+v of %.1f ms, want number %d, 42 calls, 58 ms", it, it.Ms(), next)
			}
			next++
		}
	}
	if tr.Period() != 42 || next < 48 {
		t.Fatalf("period %d, next iteration %d", tr.Period(), next)
	}
}
