package agent

import (
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
)

// endless is a segment whose rings are always full of a pipeline's calls.
type endless struct {
	*fakeSegment
	at      int64
	ordinal [2]uint64
}

func (e *endless) Drain(buf []ring.Record) (int, uint64) {
	for i := range buf {
		r := &buf[i]
		*r = ring.Record{
			EnterNs: e.at,
			Op:      falcon.OpSend,
			Comm:    1,
			Count:   4096,
			Dtype:   7,
			Ordinal: e.ordinal[1],
			Step:    0xffffffff,
		}
		if e.at/1e6%33 == 32 { // 32 calls of micro-batches, then the gradients
			r.Op, r.Comm, r.Ordinal = falcon.OpAllReduce, 0, e.ordinal[0]
			e.ordinal[0]++
		} else {
			e.ordinal[1]++
			if e.ordinal[1]%2 == 0 {
				r.Op = falcon.OpRecv
			}
		}
		e.at += 1e6
	}
	return len(buf), 0
}

// BenchmarkDrain is the agent's whole cost of a record beyond the copy out of
// shared memory, which agent/ring measures: classing it and following the
// period. ns/record is the figure; a look drains batchesMax batches.
func BenchmarkDrain(b *testing.B) {
	d := &endless{fakeSegment: &fakeSegment{
		header:  ring.Header{PID: 1, Rank: 0, World: 4},
		control: ring.Control{Iteration: -1},
		comms: []ring.Comm{
			{Slot: 0, ID: 77, Size: 4, State: ring.CommLive},
			{Slot: 1, ID: 88, Size: 2, State: ring.CommLive},
		},
	}}
	p := newProcess("bench", d, nil)
	buf := newBuffers()
	out := make([]falcon.Sample, 0, 1<<16)
	for range 4 { // learn the period
		out = p.drainRings(buf, out[:0])
	}
	if p.iterations.infer.Period() != 33 || len(out) == 0 {
		b.Fatalf("period %d, %d samples", p.iterations.infer.Period(), len(out))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		out = p.drainRings(buf, out[:0])
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batchesMax*batchRecords), "ns/record")
}

// TestDrainAllocatesNothingPerRecord holds for a marked job, where an
// iteration costs nothing; an inferred iteration costs its one-element slice.
func TestDrainAllocatesNothingPerRecord(t *testing.T) {
	d := &endless{fakeSegment: &fakeSegment{
		header:  ring.Header{PID: 1, Rank: 0, World: 4},
		control: ring.Control{Iteration: -1},
		comms: []ring.Comm{
			{Slot: 0, ID: 77, Size: 4, State: ring.CommLive},
			{Slot: 1, ID: 88, Size: 2, State: ring.CommLive},
		},
	}}
	p := newProcess("test", d, nil)
	buf := newBuffers()
	out := make([]falcon.Sample, 0, 1<<16)
	for range 4 {
		out = p.drainRings(buf, out[:0])
	}
	records := float64(batchesMax * batchRecords)
	allocs := testing.AllocsPerRun(5, func() {
		out = p.drainRings(buf, out[:0])
	})
	if iterations := records / 33; allocs > iterations+1 {
		t.Fatalf("%v allocations for %v records and %.0f iterations", allocs, records, iterations)
	}
}
