package cost

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	trainer "github.com/failslow/falcon/cmd/falcon-trainer/schedule"
)

// naive is a deliberately simple second implementation: the steps that the
// lab's trainer makes, and the end of each by recursion over what it waits for.
type naive struct {
	p     Pipeline
	lists [][]trainer.Step
	memo  map[[2]int]float64
}

func newNaive(p Pipeline, m int) *naive {
	n := &naive{p, nil, map[[2]int]float64{}}
	for s := range p.Stages {
		n.lists = append(n.lists, trainer.Iteration(s, len(p.Stages), p.Chunks, m))
	}
	return n
}

// letter is one message: what it is, and the boundary that it crosses.
type letter struct {
	grad     bool
	micro    int
	chunk    int // of its sender; a gradient has that of the activation
	boundary int
}

// letters are what a step of stage s sends and receives.
func (n *naive) letters(s int, w trainer.Swap) (send, recv []letter) {
	last := len(n.p.Stages) - 1
	at := func(p trainer.Part, grad, inwards bool) letter { // inwards: the way from the stage before
		l := letter{
			grad:     grad,
			micro:    p.Micro,
			chunk:    p.Chunk,
			boundary: s,
		}
		if inwards {
			l.boundary = s - 1
			if s == 0 {
				l.boundary = last
				l.chunk = p.Chunk - 1
			}
		}
		return l
	}
	if w.Out != trainer.None {
		send = append(send, at(w.Out, false, false))
	}
	if w.GradOut != trainer.None {
		send = append(send, at(w.GradOut, true, true))
	}
	if w.In != trainer.None {
		recv = append(recv, at(w.In, false, true))
	}
	if w.GradIn != trainer.None {
		recv = append(recv, at(w.GradIn, true, false))
	}
	return send, recv
}

func (n *naive) end(s, k int) float64 {
	if k < 0 {
		return 0
	}
	if v, ok := n.memo[[2]int{s, k}]; ok {
		return v
	}
	at, x := n.end(s, k-1), n.lists[s][k]
	end := at
	switch x.Kind {
	case trainer.Forward:
		end += n.p.Stages[s].ForwardMs / float64(n.p.Chunks)
	case trainer.Backward:
		end += n.p.Stages[s].BackwardMs / float64(n.p.Chunks)
	}
	send, recv := n.letters(s, x.Swap)
	for _, l := range send {
		end = max(end, n.sent(l)+n.p.HopMs[l.boundary])
	}
	for _, l := range recv {
		end = max(end, max(at, n.sent(l))+n.p.HopMs[l.boundary])
	}
	n.memo[[2]int{s, k}] = end
	return end
}

// sent is when the message could leave its sender: behind those before it on
// the same line, where both neighbours are one rank.
func (n *naive) sent(l letter) float64 {
	for s, list := range n.lists {
		for k, x := range list {
			send, _ := n.letters(s, x.Swap)
			i := slices.Index(send, l)
			if i < 0 {
				continue
			}
			at := n.end(s, k-1)
			for _, other := range send[:i] {
				if len(n.p.Stages) == 2 {
					at += n.p.HopMs[other.boundary]
				}
			}
			return at
		}
	}
	panic(fmt.Sprintf("nobody sends %+v", l))
}

func TestEndsAgainstNaive(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	var u Simulator
	for range 600 {
		p := Pipeline{Stages: make([]Stage, 1+r.IntN(5)), Chunks: 1}
		for i := range p.Stages {
			p.Stages[i] = Stage{float64(6 * r.IntN(5)), float64(6 * r.IntN(9))}
			p.HopMs = append(p.HopMs, float64(r.IntN(20)))
		}
		m := 1 + r.IntN(10)
		if len(p.Stages) > 1 && r.IntN(3) == 0 {
			p.Chunks = 2 + r.IntN(2)
			m = len(p.Stages) * (1 + r.IntN(3))
		}
		n := newNaive(p, m)
		for s, got := range u.Ends(nil, p, m) {
			if want := n.end(s, len(n.lists[s])-1); math.Abs(got-want) > 1e-9 {
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
			got := pipelineMs(stages, m, 0)
			want := float64(m+p-1) * 15
			if math.Abs(got-want) > 1e-9 {
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
		pipelineMs(stages, 64, 0.1)
	}
}

// pipelineMs is the makespan of the 1F1B schedule over the stages for m
// micro-batches, with every message between them taking hopMs.
func pipelineMs(stages []Stage, m int, hopMs float64) float64 {
	var u Simulator
	worst := 0.0
	for _, end := range u.Ends(nil, uniformPipeline(stages, hopMs), m) {
		worst = max(worst, end)
	}
	return worst
}
