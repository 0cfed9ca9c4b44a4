package period

import "testing"

// megatron is a rank's calls: per iteration micro-batches of tensor-parallel
// all-reduces and pipeline sends, then one data-parallel reduce-scatter and
// all-gather.
func megatron(iterations, microBatches int, from *uint64, at *int64) []Call {
	var out []Call
	add := func(op uint32, comm uint64, bytes int64, ns int64) {
		*at += ns
		out = append(out, Call{
			Op:     op,
			Comm:   comm,
			Bytes:  bytes,
			TimeNs: *at,
		})
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

// TestTrackerFollowsMicroBatches: other counts of micro-batches, announced and
// not, disturb neither numbers nor iterations.
func TestTrackerFollowsMicroBatches(t *testing.T) {
	for _, announced := range []bool{true, false} {
		var ordinal uint64
		var at int64
		tr := NewTracker(Config{})
		calls := megatron(30, 8, &ordinal, &at)
		change := len(calls)
		calls = append(calls, megatron(30, 5, &ordinal, &at)...)
		var got []Iteration
		for i, c := range calls {
			if i == change && announced {
				tr.Expect(5*5 + 2)
			}
			got = append(got, tr.Observe(c)...)
		}
		if tr.Period() != 27 || len(got) != 59 {
			t.Fatalf("announced %v: period %d, %d iterations", announced, tr.Period(), len(got))
		}
		for i := 1; i < len(got); i++ {
			if got[i].Number != got[i-1].Number+1 || got[i].StartNs != got[i-1].EndNs {
				t.Fatalf("announced %v: %+v after %+v", announced, got[i], got[i-1])
			}
		}
	}
}

// TestTrackerLearnsAnew: after calls of another kind altogether it finds the
// new period within a bounded number of calls.
func TestTrackerLearnsAnew(t *testing.T) {
	var ordinal uint64
	var at int64
	tr := NewTracker(Config{})
	for _, c := range megatron(40, 8, &ordinal, &at) {
		tr.Observe(c)
	}
	taken := 0
	for i := 0; tr.Period() != 10; i++ {
		if i > 600 {
			t.Fatalf("period %d after %d calls of the new kind", tr.Period(), i)
		}
		at += 1e6
		tr.Observe(Call{
			Op:     uint32(20 + i%10/9),
			Comm:   77,
			Bytes:  1 << 10,
			TimeNs: at,
		})
		taken = i
	}
	t.Logf("learned again after %d calls", taken)
}

// TestTrackerSkipsLostRecords: a gap in the ordinals advances the number by
// what was lost and reports no iteration across it.
func TestTrackerSkipsLostRecords(t *testing.T) {
	var ordinal uint64
	var at int64
	tr := NewTracker(Config{})
	calls := megatron(40, 2, &ordinal, &at)
	var got []Iteration
	for i, c := range calls {
		if i >= 12*25+3 && i < 12*28+3 {
			continue // three iterations overwritten in the ring
		}
		got = append(got, tr.Observe(c)...)
	}
	last := got[len(got)-1]
	if last.Number != 38 {
		t.Errorf("last iteration %+v, want number 38", last)
	}
	for _, it := range got {
		if it.Ms() != 22 {
			t.Errorf("iteration %+v of %.1f ms, want 22", it, it.Ms())
		}
	}
}

func TestTrackerMemoryIsBounded(t *testing.T) {
	tr := NewTracker(Config{Window: 1024})
	for i := range 20000 {
		tr.Observe(Call{
			Op:     uint32(i * i % 97),
			Bytes:  int64(i),
			TimeNs: int64(i),
		})
		if len(tr.calls) > 1024 || cap(tr.calls) > 2048 {
			t.Fatalf("%d calls remembered, room for %d", len(tr.calls), cap(tr.calls))
		}
	}
}

func TestTrackerOnRecords(t *testing.T) {
	for name, want := range map[string]int{
		"hta_ddp404.csv": 404, "hta_dlrm16.csv": 17,
		"bytedance_AR_dp0_pp0_tp0.csv": 69, "bytedance_AR_dp1_pp1_tp0.csv": 132,
	} {
		tr := NewTracker(Config{})
		n := 0
		for _, c := range readCalls(t, name) {
			n += len(tr.Observe(c))
		}
		if tr.Period() != want {
			t.Errorf("%s: period %d, want %d", name, tr.Period(), want)
		}
		t.Logf("%s: period %d, %d iterations", name, tr.Period(), n)
	}
}

func BenchmarkTracker(b *testing.B) {
	var ordinal uint64
	var at int64
	calls := megatron(1000, 8, &ordinal, &at)
	tr := NewTracker(Config{})
	for i := range b.N {
		tr.Observe(calls[i%len(calls)])
	}
}
