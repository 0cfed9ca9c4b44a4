package iterate

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
)

func TestMarksPairUp(t *testing.T) {
	s := NewMarks(3)
	if _, ok := s.Add(Mark{Iteration: 7, StartNs: 1e9}); ok {
		t.Fatal("one mark is no iteration")
	}
	got, ok := s.Add(Mark{Iteration: 8, StartNs: 1e9 + 250e6, PausedNs: 50e6})
	want := falcon.Sample{
		Rank:      3,
		Iteration: 7,
		EndNs:     1e9 + 250e6,
		Ms:        250,
		PausedMs:  50,
		Exact:     true,
	}
	if !ok || got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func TestMarksSkipGapsAndSteps(t *testing.T) {
	s := NewMarks(0)
	s.Add(Mark{Iteration: 1, StartNs: 10})
	for _, m := range []Mark{
		{Iteration: 5, StartNs: 50}, // marks were overwritten
		{Iteration: 2, StartNs: 60}, // resumed from an earlier step
		{Iteration: 3, StartNs: 60}, // a clock that stands still
	} {
		if got, ok := s.Add(m); ok {
			t.Fatalf("mark %+v gave sample %+v", m, got)
		}
	}
	if got, ok := s.Add(Mark{Iteration: 4, StartNs: 70, PausedNs: 1000}); !ok || got.PausedMs != got.Ms {
		t.Fatalf("a pause longer than the iteration must be cut to it: %+v %v", got, ok)
	}
}

func call(iteration int64, start, duration float64) Timed {
	return Timed{
		Iteration: iteration,
		CallTiming: falcon.CallTiming{
			StartMs:    start,
			DurationMs: duration,
			QueueMs:    2,
		},
	}
}

// pipeline builds iterations of a stage that receives, computes (comp ms) and
// sends for m micro-batches, with bubble ms inside every receive, then a
// gradient all-reduce, an optimizer of opt ms between two votes, and idle ms
// before the next iteration.
func pipeline(iterations, m int, comp, bubble, opt, idle float64) []Timed {
	var out []Timed
	at := 5.0
	add := func(k int, op falcon.Op, d float64, control bool) {
		c := call(int64(k), at, d)
		c.Control, c.Op = control, op
		out = append(out, c)
		at += d
	}
	for k := range iterations {
		for range m {
			add(k, falcon.OpRecv, 1+bubble, false)
			at += comp
			add(k, falcon.OpSend, 1, false)
		}
		add(k, falcon.OpAllReduce, 4, false)
		add(k, falcon.OpAllReduce, 0.5, true)
		at += opt
		add(k, falcon.OpAllReduce, 0.5, true)
		at += idle
	}
	return out
}

func TestSelfTimeIgnoresBubblesAndBoundary(t *testing.T) {
	for _, bubble := range []float64{0, 3, 40} {
		w := Window{
			Rank:         1,
			First:        1,
			Last:         3,
			MicroBatches: 4,
			Calls:        pipeline(5, 4, 15, bubble, 30, 100),
		}
		p := Summarize(w)
		if math.Abs(p.SelfMs-15) > 1e-9 || p.Iterations != 3 || p.QueueMs != 2 {
			t.Fatalf("bubble %v: self %v over %d iterations, queue %v",
				bubble, p.SelfMs, p.Iterations, p.QueueMs)
		}
	}
}

func TestGroupedCallsShareOneInterval(t *testing.T) {
	w := Window{First: 0, Last: 0, Calls: []Timed{
		call(0, 0, 4), call(0, 0, 10), call(0, 3, 2), // one group
		call(0, 25, 5), call(0, 26, 1),
	}}
	if p := Summarize(w); p.SelfMs != 15 {
		t.Fatalf("self %v, want the one gap of 15", p.SelfMs)
	}
}

// Data-parallel only: one all-reduce an iteration. The computation lies
// between the step mark and it.
func TestSelfTimeWithoutInnerCommunication(t *testing.T) {
	w := Window{
		First:        1,
		Last:         2,
		MicroBatches: 8,
		BeginMs:      map[int64]float64{1: 120, 2: 220},
		Calls: []Timed{
			call(0, 90, 10), call(1, 200, 5), call(2, 300, 5),
		},
	}
	if p := Summarize(w); p.SelfMs != 10 {
		t.Fatalf("self %v, want 80/8", p.SelfMs)
	}
	w.BeginMs = nil
	if p := Summarize(w); math.Abs(p.SelfMs-(100+95)/2.0/8) > 1e-9 {
		t.Fatalf("self %v without marks", p.SelfMs)
	}
}

func TestUnknownIterationIsInherited(t *testing.T) {
	calls := pipeline(3, 2, 10, 1, 1, 1)
	for i := range calls {
		if i%7 == 3 {
			calls[i].Iteration = UnknownIteration
		}
	}
	p := Summarize(Window{
		First:        1,
		Last:         1,
		MicroBatches: 2,
		Calls:        calls,
	})
	if math.Abs(p.SelfMs-10) > 1e-9 {
		t.Fatalf("self %v", p.SelfMs)
	}
}

func TestEmptyWindow(t *testing.T) {
	p := Summarize(Window{
		Rank:    2,
		ID:      9,
		First:   1,
		Last:    0,
		Dropped: 4,
	})
	if p.SelfMs != 0 || p.Iterations != 0 || p.Dropped != 4 || p.Window != 9 {
		t.Fatalf("got %+v", p)
	}
}

// gapsByPainting is the dumb second implementation: paint whole milliseconds.
func gapsByPainting(calls []Timed) float64 {
	painted := map[int]bool{}
	lo := math.MaxInt
	hi := 0
	for _, c := range calls {
		for ms := int(c.StartMs); ms < int(c.StartMs+c.DurationMs); ms++ {
			painted[ms] = true
		}
		lo = min(lo, int(c.StartMs))
		hi = max(hi, int(c.StartMs+c.DurationMs))
	}
	gaps := 0
	for ms := lo; ms < hi; ms++ {
		if !painted[ms] {
			gaps++
		}
	}
	return float64(gaps)
}

func TestUnionAgainstPainting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 40).Draw(t, "calls")
		var calls []Timed
		for range n {
			calls = append(calls, call(
				0,
				float64(rapid.IntRange(0, 200).Draw(t, "start")),
				float64(rapid.IntRange(1, 20).Draw(t, "duration")),
			))
		}
		calls = append(calls,
			call(0, 300, 5),
			call(0, 310, 5),
			call(0, 320, 5),
		) // at least two intervals
		want := gapsByPainting(calls)
		begin := math.Inf(1)
		for _, c := range calls {
			begin = min(begin, c.StartMs)
		}
		got := Summarize(Window{Calls: calls, BeginMs: map[int64]float64{0: begin}}).SelfMs
		if math.Abs(got-want) > 1e-9 {
			t.Fatalf("self %v, painted %v", got, want)
		}
	})
}
