package schedule

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func lines(steps []Step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString(s.String() + "\n")
	}
	return b.String()
}

func TestFirstOfTwoStages(t *testing.T) {
	want := `forward 0
send_forward 0
forward 1
send_forward_recv_backward 1 0
backward 0
forward 2
send_forward_recv_backward 2 1
backward 1
recv_backward 2
backward 2
`
	if got := lines(OneFOneB(0, 2, 3)); got != want {
		t.Errorf("stage 0 of 2, 3 micro-batches:\n%s", got)
	}
}

func TestLastOfTwoStages(t *testing.T) {
	want := `recv_forward 0
forward 0
backward 0
send_backward_recv_forward 0 1
forward 1
backward 1
send_backward 1
`
	if got := lines(OneFOneB(1, 2, 2)); got != want {
		t.Errorf("stage 1 of 2, 2 micro-batches:\n%s", got)
	}
}

func computed(steps []Step, k Kind) []int {
	var out []int
	for _, s := range steps {
		if s.Kind == k {
			out = append(out, s.Work)
		}
	}
	return out
}

func TestEveryMicroBatchOnceInOrderAndFewInFlight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.IntRange(1, 8).Draw(t, "stages")
		m := rapid.IntRange(1, 24).Draw(t, "microBatches")
		s := rapid.IntRange(0, p-1).Draw(t, "stage")
		steps := OneFOneB(s, p, m)
		all := make([]int, m)
		for i := range all {
			all[i] = i
		}
		if !slices.Equal(computed(steps, Forward), all) || !slices.Equal(computed(steps, Backward), all) {
			t.Fatalf("not every micro-batch once and in order:\n%s", lines(steps))
		}
		inFlight, most := 0, 0
		for _, st := range steps {
			switch st.Kind {
			case Forward:
				inFlight++
			case Backward:
				inFlight--
			}
			most = max(most, inFlight)
		}
		if want := InFlightMax(s, p, m); most != want {
			t.Fatalf("%d in flight at most, want %d", most, want)
		}
	})
}

// message is one tensor between neighbouring stages.
type message struct {
	from, to, micro int
	backward        bool
}

// halves splits a step into what it sends and what it receives.
func halves(stage int, s Step) (send, recv *message) {
	ahead, behind := stage-1, stage+1
	switch s.Kind {
	case SendForward:
		send = &message{stage, behind, s.Send, false}
	case RecvForward:
		recv = &message{ahead, stage, s.Recv, false}
	case SendBackward:
		send = &message{stage, ahead, s.Send, true}
	case RecvBackward:
		recv = &message{behind, stage, s.Recv, true}
	case SendForwardRecvBackward:
		send, recv = &message{stage, behind, s.Send, false}, &message{behind, stage, s.Recv, true}
	case SendBackwardRecvForward:
		send, recv = &message{stage, ahead, s.Send, true}, &message{ahead, stage, s.Recv, false}
	}
	return send, recv
}

// play runs all stages with rendezvous sends: a send completes only when its
// receive is posted at the same time, a group completes when both halves have.
// It returns the finishing time, or NaN on deadlock.
func play(p, m int, forward, backward float64) float64 {
	steps := make([][]Step, p)
	clock := make([]float64, p)
	at := make([]int, p)
	posted := map[message]float64{} // halves that wait, by when they were posted
	done := map[message]float64{}
	for s := range p {
		steps[s] = OneFOneB(s, p, m)
	}
	match := func(stage int, msg *message, mine map[message]bool) (float64, bool) {
		if msg == nil {
			return clock[stage], true
		}
		if end, ok := done[*msg]; ok {
			return end, true
		}
		if since, ok := posted[*msg]; ok && !mine[*msg] {
			done[*msg] = max(since, clock[stage])
			return done[*msg], true
		}
		posted[*msg], mine[*msg] = clock[stage], true
		return 0, false
	}
	mine := make([]map[message]bool, p)
	for s := range mine {
		mine[s] = map[message]bool{}
	}
	for moved := true; moved; {
		moved = false
		for s := range p {
			for at[s] < len(steps[s]) {
				st := steps[s][at[s]]
				send, recv := halves(s, st)
				a, okA := match(s, send, mine[s])
				b, okB := match(s, recv, mine[s])
				if !okA || !okB {
					break
				}
				clock[s] = max(clock[s], a, b)
				switch st.Kind {
				case Forward:
					clock[s] += forward
				case Backward:
					clock[s] += backward
				}
				at[s]++
				moved = true
			}
		}
	}
	for s := range p {
		if at[s] < len(steps[s]) {
			return math.NaN()
		}
	}
	return slices.Max(clock)
}

// With free transfers the iteration lasts (m + p − 1)·(f + b), the pipeline's
// fill and drain included, even when every send waits for its receive.
func TestRendezvousNeverDeadlocksAndTakesTheIdealTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.IntRange(1, 6).Draw(t, "stages")
		m := rapid.IntRange(1, 16).Draw(t, "microBatches")
		got, want := play(p, m, 5, 10), float64(m+p-1)*15
		if got != want {
			t.Fatalf("p=%d m=%d: %v ms, want %v", p, m, got, want)
		}
	})
}
