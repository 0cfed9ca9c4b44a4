package work

import (
	"math/rand/v2"
	"testing"

	"github.com/failslow/falcon"
)

const ms = int64(1e6)

// steady plays n iterations of m sends, m receives and a reduction, 100 ms each: 1 ms between the
// calls, and the host waits for the device behind the reduction.
type player struct {
	t     *Tracker
	begin int64
}

type iteration struct {
	sends, receives  int
	bytes            int64
	wait, pause, end int64 // ms
	at               int   // call before which the pause is
	marked           bool
}

func usualIteration() iteration {
	return iteration{
		sends:    8,
		receives: 8,
		bytes:    1000,
		marked:   true,
	}
}

func (p *player) play(it iteration) *falcon.Work {
	at := p.begin + it.wait*ms
	call := func(op falcon.Op, peer int32, n int) {
		at += ms
		if n == it.at && it.pause > 0 {
			at += it.pause * ms
		}
		p.t.Add(Call{
			Comm:    7,
			Op:      op,
			Peer:    peer,
			Bytes:   it.bytes,
			EnterNs: at,
			ExitNs:  at + 1000,
		})
	}
	n := 0
	for i := range max(it.sends, it.receives) {
		if i < it.sends {
			call(falcon.OpSend, 1, n)
			n++
		}
		if i < it.receives {
			call(falcon.OpRecv, 1, n)
			n++
		}
	}
	call(falcon.OpAllReduce, -1, n)
	end := at + 80*ms + it.end*ms
	w := p.t.Close(p.begin, end, it.marked)
	p.begin = end
	return w
}

func learnt(t *testing.T) *player {
	t.Helper()
	p := &player{t: NewTracker(), begin: 5000 * ms}
	for i := range 20 {
		if w := p.play(usualIteration()); w != nil {
			t.Fatalf("usual iteration %d: %+v", i, w)
		}
	}
	return p
}

func TestWhatIsNotAsUsual(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(*iteration)
		want  func(*falcon.Work) bool
	}{
		"data come late": {func(it *iteration) { it.wait = 50 }, func(w *falcon.Work) bool {
			return w.WaitMs > 50 && w.WaitMs < 52 && w.PauseMs+w.TailMs == 0
		}},
		"a pause": {func(it *iteration) {
			it.pause, it.at = 40, 5
		}, func(w *falcon.Work) bool {
			return w.PauseMs > 39 && w.PauseMs < 41 && w.WaitMs+w.TailMs == 0
		}},
		"a checkpoint": {func(it *iteration) { it.end = 200 }, func(w *falcon.Work) bool {
			return w.TailMs > 199 && w.TailMs < 201 && w.PauseMs == 0
		}},
		"longer sequences": {func(it *iteration) { it.bytes = 1500 }, func(w *falcon.Work) bool {
			return w.Bytes == 17*1500 && w.UsualBytes == 17*1000 && w.Calls == 0
		}},
		"micro-batches": {func(it *iteration) {
			it.sends, it.receives = 12, 12
		}, func(w *falcon.Work) bool {
			return w.Calls == 25 &&
				w.UsualCalls == 17 &&
				len(w.Changed) == 2 &&
				w.Kept == 0
		}},
		"an evaluation": {func(it *iteration) { it.sends = 12 }, func(w *falcon.Work) bool {
			return w.Calls == 21 &&
				len(w.Changed) == 1 &&
				w.Changed[0] == falcon.CallChange{Op: falcon.OpSend, Calls: 12, Usual: 8} &&
				w.Kept == 1
		}},
		"without marks its begin is unknown": {func(it *iteration) {
			it.wait, it.marked = 50, false
		}, func(w *falcon.Work) bool { return w == nil }},
	} {
		p := learnt(t)
		it := usualIteration()
		tt.spoil(&it)
		if w := p.play(it); !tt.want(w) {
			t.Errorf("%s: %+v", name, w)
		}
		if w := p.play(usualIteration()); w != nil {
			t.Errorf("%s: the usual iteration behind it: %+v", name, w)
		}
	}
}

// What lasts is reported as long as it lasts, up to the bound; then it is the usual iteration.
func TestHabits(t *testing.T) {
	p := learnt(t)
	more := usualIteration()
	more.sends, more.receives = 12, 12
	for i := range relearn - 1 {
		if w := p.play(more); w == nil {
			t.Fatalf("iteration %d of %d is taken for usual", i, relearn)
		}
	}
	p.play(more)
	if w := p.play(more); w != nil {
		t.Errorf("after %d iterations: %+v", relearn, w)
	}
	p.t.Reset()
	for range 2 {
		if w := p.play(usualIteration()); w != nil {
			t.Errorf("nothing is usual after a reset: %+v", w)
		}
	}
}

// Lost calls make no iteration that differs, and memory is bounded.
func TestLostCalls(t *testing.T) {
	p := learnt(t)
	p.t.Add(Call{EnterNs: p.begin + 1})
	p.t.Forget()
	short := usualIteration()
	short.sends = 1
	if w := p.play(short); w != nil {
		t.Errorf("calls were lost: %+v", w)
	}
	for range 3 * callsMost {
		p.t.Add(Call{EnterNs: p.begin + 1, ExitNs: p.begin + 2})
	}
	if n := len(p.t.pending); n > callsMost {
		t.Errorf("%d calls are kept", n)
	}
	if w := p.t.Close(p.begin, p.begin+100*ms, true); w != nil {
		t.Errorf("more calls than are kept: %+v", w)
	}
}

// The counts are those of a simple recount of the calls by hand.
func TestCountsAreThoseOfARecount(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		ops := []falcon.Op{falcon.OpSend, falcon.OpRecv, falcon.OpAllReduce, falcon.OpAllGather}
		usual := make([]int, len(ops))
		for i := range usual {
			usual[i] = 1 + rng.IntN(6)
		}
		tr := NewTracker()
		begin := int64(0)
		play := func(counts []int) *falcon.Work {
			at := begin
			for i, n := range counts {
				for range n {
					at += ms
					tr.Add(Call{
						Comm:    uint64(i % 2),
						Op:      ops[i],
						Peer:    int32(i),
						Bytes:   10,
						EnterNs: at,
						ExitNs:  at + 1,
					})
				}
			}
			w := tr.Close(begin, at+50*ms, true)
			begin = at + 50*ms
			return w
		}
		for range 5 {
			play(usual)
		}
		now := make([]int, len(ops))
		calls := 0
		was := 0
		changed := 0
		for i := range now {
			now[i] = usual[i] + rng.IntN(4) - 1
			calls += now[i]
			was += usual[i]
			if now[i] != usual[i] {
				changed++
			}
		}
		w := play(now)
		if changed == 0 || calls == 0 {
			continue
		}
		if w == nil ||
			w.Calls != calls ||
			w.UsualCalls != was ||
			len(w.Changed) != changed {
			t.Fatalf("seed %d: %v instead of %v: %+v", seed, now, usual, w)
		}
		for _, c := range w.Changed {
			for i, op := range ops {
				if c.Op == op && (c.Calls != now[i] || c.Usual != usual[i]) {
					t.Errorf("seed %d: %+v, want %d instead of %d", seed, c, now[i], usual[i])
				}
			}
		}
	}
}

// A steady iteration costs little.
func BenchmarkIteration(b *testing.B) {
	p := &player{t: NewTracker()}
	b.ReportAllocs()
	for b.Loop() {
		p.play(usualIteration())
	}
}
