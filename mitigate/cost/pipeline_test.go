package cost

import (
	"math"
	"math/rand/v2"
	"testing"
)

// naive is a deliberately simple second implementation: every stage's list of
// steps in words, and the end of each step by recursion over what it waits for.
type naive struct {
	stages []Stage
	hopMs  []float64
	lists  [][]step
	memo   map[[2]int]float64
}

// step works, or exchanges at most one message either way.
type step struct {
	work       string // "F", "B" or ""
	send, recv string // "F3" across boundary
	sendAt     int
	recvAt     int
}

func newNaive(stages []Stage, hopMs []float64, m int) *naive {
	n := &naive{stages, hopMs, nil, map[[2]int]float64{}}
	for s := range stages {
		n.lists = append(n.lists, listOf(s, len(stages), m))
	}
	return n
}

// listOf is what Megatron-LM's 1F1B does on stage s of p.
func listOf(s, p, m int) []step {
	var out []step
	name := func(c string, k int) string { return c + string(rune('0'+k)) }
	swap := func(send string, sendAt int, recv string, recvAt int) {
		if sendAt < 0 || sendAt == p-1 {
			send = ""
		}
		if recvAt < 0 || recvAt == p-1 {
			recv = ""
		}
		if send != "" || recv != "" {
			out = append(out, step{send: send, sendAt: sendAt, recv: recv, recvAt: recvAt})
		}
	}
	warm := min(p-s-1, m)
	for k := range warm {
		swap("", 0, name("F", k), s-1)
		out = append(out, step{work: "F"})
		swap(name("F", k), s, "", 0)
	}
	for k := warm; k < m; k++ {
		if k == warm {
			swap("", 0, name("F", k), s-1)
		}
		out = append(out, step{work: "F"})
		swap(name("F", k), s, name("B", k-warm), s)
		out = append(out, step{work: "B"})
		if k+1 < m {
			swap(name("B", k-warm), s-1, name("F", k+1), s-1)
		} else {
			swap(name("B", k-warm), s-1, "", 0)
		}
	}
	for k := m - warm; k < m; k++ {
		swap("", 0, name("B", k), s)
		out = append(out, step{work: "B"})
		swap(name("B", k), s-1, "", 0)
	}
	return out
}

func (n *naive) end(s, k int) float64 {
	if k < 0 {
		return 0
	}
	if v, ok := n.memo[[2]int{s, k}]; ok {
		return v
	}
	at, what := n.end(s, k-1), n.lists[s][k]
	end := at
	switch {
	case what.work == "F":
		end += n.stages[s].ForwardMs
	case what.work == "B":
		end += n.stages[s].BackwardMs
	}
	if what.send != "" {
		end = max(end, at+n.hopMs[what.sendAt])
	}
	if what.recv != "" {
		end = max(end, max(at, n.sent(what.recv, what.recvAt))+n.hopMs[what.recvAt])
	}
	n.memo[[2]int{s, k}] = end
	return end
}

// sent is when the message could leave its sender.
func (n *naive) sent(message string, boundary int) float64 {
	for s, list := range n.lists {
		for k, what := range list {
			if what.send == message && what.sendAt == boundary {
				return n.end(s, k-1)
			}
		}
	}
	panic("nobody sends " + message)
}

func TestEndsAgainstNaive(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	var u Simulator
	for range 2000 {
		p := Pipeline{Stages: make([]Stage, 1+r.IntN(6))}
		for i := range p.Stages {
			p.Stages[i] = Stage{float64(r.IntN(5)), float64(r.IntN(9))}
			p.HopMs = append(p.HopMs, float64(r.IntN(6)))
		}
		m := 1 + r.IntN(12)
		n := newNaive(p.Stages, p.HopMs, m)
		for s, got := range u.Ends(nil, p, m) {
			if want := n.end(s, len(n.lists[s])-1); got != want {
				t.Fatalf("%+v m %d: stage %d ends at %v, want %v", p, m, s, got, want)
			}
		}
	}
}

// Equal stages meet the closed formula (m + p − 1)(f + b).
func TestPipelineClosedForm(t *testing.T) {
	for p := 1; p <= 8; p++ {
		for m := p; m <= 24; m++ {
			stages := make([]Stage, p)
			for i := range stages {
				stages[i] = Stage{5, 10}
			}
			if got, want := PipelineMs(stages, m, 0), float64(m+p-1)*15; math.Abs(got-want) > 1e-9 {
				t.Fatalf("p %d m %d: got %v, want %v", p, m, got, want)
			}
		}
	}
}

func TestCurveNeverDecreases(t *testing.T) {
	c := Curve([]Stage{{5, 10}, {10, 20}}, 16, 0.2)
	for m := 1; m < len(c); m++ {
		if c[m] < c[m-1] {
			t.Fatalf("T(%d) = %v under T(%d) = %v", m, c[m], m-1, c[m-1])
		}
	}
}

func BenchmarkPipeline(b *testing.B) {
	stages := StagesFromSelf([]float64{15, 15, 30, 15, 15, 15, 15, 15})
	for b.Loop() {
		PipelineMs(stages, 64, 0.1)
	}
}
