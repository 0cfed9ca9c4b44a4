package period

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// job writes the calls of one rank as a trainer makes them: micro-batches,
// the end of an iteration, and at times an evaluation or a checkpoint.
type job struct {
	calls []Call
	ends  []int64 // when each iteration's votes were called
	at    int64
	next  map[uint64]uint64
	rng   *rand.Rand
}

func (j *job) call(op uint32, comm uint64, bytes int64) {
	j.at += 1e6 + j.rng.Int64N(1e5)
	j.calls = append(j.calls, Call{
		Op:      op,
		Comm:    comm,
		Bytes:   bytes,
		TimeNs:  j.at,
		Ordinal: j.next[comm],
	})
	j.next[comm]++
}

// Communicators and operations of a job.
const (
	world, tensor, data, pipe = 1, 2, 3, 4
	reduce, send, recv        = 1, 9, 10
)

// shape is a rank's part in a job.
type shape struct {
	tp, dp       bool
	first, last  bool // stage of a pipeline; both for none
	micro, evals int  // micro-batches of an iteration, of an evaluation
	every, save  int  // iterations from one evaluation, or checkpoint, to the next; 0 = none
	votes        int  // calls of 8 bytes over the world that end an iteration
}

func (j *job) forward(s shape) {
	if !s.first {
		j.call(recv, pipe, 1<<18)
	}
	if s.tp {
		j.call(reduce, tensor, 1<<20)
	}
	if !s.last {
		j.call(send, pipe, 1<<18)
	}
}

func (j *job) backward(s shape) {
	if !s.last {
		j.call(recv, pipe, 1<<18)
	}
	if s.tp {
		j.call(reduce, tensor, 1<<20)
	}
	if !s.first {
		j.call(send, pipe, 1<<18)
	}
}

func (j *job) iterate(k int, s shape) {
	for range s.micro {
		j.forward(s)
		j.backward(s)
	}
	if s.dp {
		j.call(reduce, data, 1<<26)
	}
	for range s.votes {
		j.call(reduce, world, 8)
	}
	j.ends = append(j.ends, j.at)
	if s.every > 0 && (k+1)%s.every == 0 {
		for range s.evals {
			j.forward(s)
		}
		j.call(reduce, world, 8) // the loss: of the votes' class
	}
	if s.save > 0 && (k+1)%s.save == 0 {
		j.at += 3e8
		j.call(reduce, world, 4) // a barrier
	}
}

func newJob(s shape, iterations int, seed uint64) *job {
	j := &job{next: map[uint64]uint64{}, rng: rand.New(rand.NewPCG(seed, 5))}
	for k := range iterations {
		j.iterate(k, s)
	}
	return j
}

// shapes are ranks of the usual layouts, with extra steps of either kind.
func shapes() []shape {
	var out []shape
	for _, place := range []shape{
		{tp: true, first: true, last: true},
		{dp: true, first: true, last: true},
		{first: true},
		{last: true},
		{},
		{tp: true, first: true},
		{dp: true, last: true},
		{tp: true, dp: true},
		{tp: true, dp: true, first: true, last: true},
	} {
		for _, extra := range [][2]int{
			{0, 0},
			{5, 0},
			{0, 4},
			{5, 4},
			{10, 10},
			{7, 3},
			{25, 0},
			{0, 30},
			{20, 0},
		} {
			for _, micro := range [][2]int{{8, 6}, {4, 8}, {2, 1}, {1, 4}} {
				s := place
				s.every = extra[0]
				s.save = extra[1]
				s.micro = micro[0]
				s.evals = micro[1]
				s.votes = 2
				out = append(out, s)
			}
		}
		long := place // an evaluation of many iterations' length
		long.every = 25
		long.micro = 4
		long.evals = 60
		long.votes = 2
		out = append(out, long)
	}
	return out
}

// judge says how the reported iterations fail to be those of the job: each
// must hold the end of exactly one, and none may be left out once the period
// is known.
func (j *job) judge(its []Iteration) error {
	done := 0
	for i, it := range its {
		if i > 0 && (it.StartNs != its[i-1].EndNs || it.Number != its[i-1].Number+1) {
			return fmt.Errorf("%+v follows %+v", it, its[i-1])
		}
		for done < len(j.ends) && j.ends[done] <= it.StartNs {
			done++
		}
		n := 0
		for done+n < len(j.ends) && j.ends[done+n] <= it.EndNs {
			n++
		}
		// A vote's own time may be the boundary, on either side.
		if n != 1 {
			return fmt.Errorf("%+v holds %d iterations' ends", it, n)
		}
	}
	return nil
}

// Extra steps are no iterations, and do not hide any: not the period, once
// known, nor the number of an iteration.
func TestTrackerCountsThroughExtraSteps(t *testing.T) {
	const iterations = 120
	for _, s := range shapes() {
		j := newJob(s, iterations, 1)
		tr := NewTracker(Config{})
		var got []Iteration
		for _, c := range j.calls {
			got = append(got, tr.Observe(c)...)
		}
		if err := j.judge(got); err != nil {
			t.Errorf("%+v: %v (period %d, anchor %+v behind %v)",
				s, err, tr.Period(), tr.result.Anchor, tr.result.context)
			continue
		}
		if len(got) < iterations-4 {
			t.Errorf("%+v: %d of %d iterations (period %d)", s, len(got), iterations, tr.Period())
		}
	}
}

// An agent that comes late finds the same; where an extra step disturbs nearly
// every iteration that it sees first, it may take a few more to find the right
// call.
func TestTrackerComesLate(t *testing.T) {
	const iterations = 120
	const settled = 24
	rng := rand.New(rand.NewPCG(3, 1))
	for _, s := range shapes() {
		j := newJob(s, iterations, 2)
		from := rng.IntN(len(j.calls) / 3)
		tr := NewTracker(Config{})
		var got []Iteration
		for _, c := range j.calls[from:] {
			got = append(got, tr.Observe(c)...)
		}
		if err := j.judge(got[min(settled, len(got)):]); err != nil {
			t.Errorf("%+v from call %d on: %v (period %d, anchor %+v behind %v)",
				s, from, err, tr.Period(), tr.result.Anchor, tr.result.context)
		} else if len(got) < iterations*2/3-5 {
			t.Errorf("%+v from call %d on: %d iterations (period %d)", s, from, len(got), tr.Period())
		}
	}
}

// Other micro-batches and extra steps in one job: numbers and iterations go on.
func TestTrackerFollowsMicroBatchesThroughExtraSteps(t *testing.T) {
	for _, s := range shapes() {
		if s.micro != 8 || s.every != 5 {
			continue
		}
		for _, announced := range []bool{true, false} {
			j := newJob(s, 60, 3)
			tr := NewTracker(Config{})
			var got []Iteration
			for _, c := range j.calls {
				got = append(got, tr.Observe(c)...)
			}
			change := len(j.calls)
			fewer := s
			fewer.micro = 5
			for k := range 60 {
				j.iterate(60+k, fewer)
			}
			if announced {
				plain := fewer
				plain.every, plain.save = 0, 0
				tr.Expect(len(newJob(plain, 1, 1).calls))
			}
			for _, c := range j.calls[change:] {
				got = append(got, tr.Observe(c)...)
			}
			if err := j.judge(got); err != nil || len(got) < 116 {
				t.Errorf("%+v, announced %v: %d iterations, %v", s, announced, len(got), err)
			}
		}
	}
}

// Where sizes vary from call to call, as with experts, they are left out.
func TestInferWithVaryingSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	j := &job{next: map[uint64]uint64{}, rng: rng}
	for range 20 {
		for range 4 {
			j.call(send, tensor, 1<<rng.IntN(24))
			j.call(reduce, tensor, 1<<rng.IntN(24))
		}
		j.call(reduce, data, 1<<26)
	}
	if r, err := Infer(j.calls); err != nil || r.Period != 9 {
		t.Errorf("period %d: %v", r.Period, err)
	}
}

// Without extra steps between them the period is the number of calls of an
// iteration, with them too.
func TestInferThroughExtraSteps(t *testing.T) {
	for _, s := range shapes() {
		plain := s
		plain.every, plain.save = 0, 0
		want := len(newJob(plain, 1, 1).calls)
		r, err := Infer(newJob(s, 60, 4).calls)
		if err != nil || r.Period != want {
			t.Errorf("%+v: period %d, want %d: %v", s, r.Period, want, err)
		}
	}
}
