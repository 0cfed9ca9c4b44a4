package iterate

import (
	"fmt"
	"math"
	"testing"

	"github.com/failslow/falcon"
)

// stage1F1B is the timeline of one pipeline stage under 1F1B (Narayanan et al.
// 2021, §2.2), written down once more from the paper: warm-up forwards, one
// forward and one backward in turn, cool-down backwards. Exchanges take 1 ms
// and receives a bubble on top.
type stage1F1B struct {
	stage, stages, m  int
	forward, backward float64 // ms
	dp, sharded       bool
	bubble            float64
	cut               bool

	at    float64
	k     int64
	calls []Timed
	begin map[int64]float64
}

func (s *stage1F1B) add(ms float64, control bool, ops ...falcon.Op) {
	for _, op := range ops {
		if op == falcon.OpRecv {
			ms += s.bubble
		}
	}
	for _, op := range ops {
		c := call(s.k, s.at, ms)
		c.Op, c.Control = op, control
		s.calls = append(s.calls, c)
	}
	s.at += ms
}

func (s *stage1F1B) behind(ops ...falcon.Op) {
	if s.stage < s.stages-1 {
		s.add(1, false, ops...)
	}
}

func (s *stage1F1B) before(ops ...falcon.Op) {
	if s.stage > 0 {
		s.add(1, false, ops...)
	}
}

func (s *stage1F1B) iterate() {
	s.begin[s.k] = s.at
	s.at += 0.02 // launching
	warm := min(s.stages-s.stage-1, s.m)
	for range warm {
		s.before(falcon.OpRecv)
		s.at += s.forward
		s.behind(falcon.OpSend)
	}
	if warm < s.m {
		s.before(falcon.OpRecv)
	}
	for i := range s.m - warm {
		s.at += s.forward
		s.behind(falcon.OpSend, falcon.OpRecv)
		s.at += s.backward
		if i < s.m-warm-1 {
			s.before(falcon.OpSend, falcon.OpRecv)
		} else {
			s.before(falcon.OpSend)
		}
	}
	for range warm {
		s.behind(falcon.OpRecv)
		s.at += s.backward
		s.before(falcon.OpSend)
	}
	s.end()
}

// end closes the iteration: gradients, votes, optimizer, host.
func (s *stage1F1B) end() {
	from := len(s.calls)
	defer func() {
		for i := range s.calls[from:] {
			if s.cut { // at the anchor, as iterations without marks are
				s.calls[from+i].Iteration++
			}
		}
	}()
	if s.dp && s.sharded {
		s.add(3, false, falcon.OpReduceScatter)
	} else if s.dp {
		s.add(6, false, falcon.OpAllReduce)
	}
	s.add(0.1, true, falcon.OpAllReduce, falcon.OpAllReduce)
	s.at += 23 // optimizer
	if s.dp && s.sharded {
		s.add(3, false, falcon.OpAllGather)
	}
	s.at += 11 // host
	s.k++
}

func (s stage1F1B) self(marked bool) float64 {
	s.begin = map[int64]float64{}
	s.cut = !marked
	for range 5 {
		s.iterate()
	}
	w := Window{
		First:        1,
		Last:         3,
		MicroBatches: s.m,
		Calls:        s.calls,
	}
	if marked {
		w.BeginMs = s.begin
	}
	return Summarize(w).SelfMs
}

// Self time per micro-batch does not depend on how many there are, else an
// uneven split would make a replica's stages look slow or fast.
func TestSelfTimeDoesNotDependOnTheSplit(t *testing.T) {
	const forward, backward = 5.0, 10.0
	for _, place := range []struct{ stage, stages int }{{0, 2}, {1, 2}, {0, 4}, {1, 4}, {3, 4}} {
		for m := 2; m <= 12; m++ {
			for _, end := range []struct{ dp, sharded bool }{{true, false}, {true, true}, {false, false}} {
				s := stage1F1B{
					stage:    place.stage,
					stages:   place.stages,
					m:        m,
					forward:  forward,
					backward: backward,
					dp:       end.dp,
					sharded:  end.sharded,
					bubble:   2,
				}
				name := fmt.Sprintf("stage %d of %d, %d micro-batches, %+v",
					place.stage, place.stages, m, end)
				if got := s.self(true); math.Abs(got/(forward+backward)-1) > 0.01 {
					t.Errorf("%s: self %.3f ms, want %v", name, got, forward+backward)
				}
				if got := s.self(false); math.Abs(got/(forward+backward)-1) > 0.01 {
					t.Errorf("%s without marks: self %.3f ms, want %v", name, got, forward+backward)
				}
			}
		}
	}
}

// bucketed is a data-parallel job that reports nothing: gradients are reduced in
// buckets at the end of an iteration, some while the last backward pass goes on.
func bucketed(computeMs, betweenMs float64, votes bool) Window {
	w := Window{First: 1, Last: 3}
	at := 0.0
	for k := range int64(5) {
		at += 4 + computeMs // host, optimizer, then the passes
		for i := range 4 {
			c := call(k, at, 6)
			c.Op = falcon.OpAllReduce
			if i == 3 && !votes {
				c.Iteration++ // the anchor
			}
			w.Calls = append(w.Calls, c)
			at += 6
			if i < 3 {
				at += betweenMs
			}
		}
		if votes {
			c := call(k+1, at, 0.1)
			c.Op = falcon.OpAllReduce
			c.Control = true
			w.Calls = append(w.Calls, c)
			at += 0.1
		}
	}
	return w
}

// Without micro-batches that are known, computation that lies before an iteration's
// first call is seen all the same, and in proportion.
func TestSelfTimeOfADataParallelJobThatReportsNothing(t *testing.T) {
	for _, votes := range []bool{false, true} {
		for _, between := range []float64{0, 2} {
			healthy := Summarize(bucketed(120, between, votes)).SelfMs
			slow := Summarize(bucketed(240, 2*between, votes)).SelfMs
			all := 124 + 3*between
			if healthy < 0.9*all ||
				healthy > all+0.2 ||
				slow/healthy < 1.85 ||
				slow/healthy > 2.1 {
				t.Errorf("votes %t, %v ms between buckets: self %.1f ms, %.1f ms on half the clock",
					votes, between, healthy, slow)
			}
		}
	}
}
