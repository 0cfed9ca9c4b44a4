package schedule

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// tensor is one message of a job, by the virtual stage that receives it.
type tensor struct {
	virtual, micro int
	gradient       bool
}

// pipe is a first-in first-out line between two ranks, as NCCL's sends and
// receives to one peer are. Each end posts at a time.
type pipe struct {
	sent, wanted     []tensor
	sentAt, wantedAt []float64
}

// ringPlay runs all stages of a job with rendezvous sends over such lines: a
// step is over when all it posted has met its other half. It knows of a step
// only what it computes and moves.
type ringPlay struct {
	stages, chunks    int
	forward, backward float64
	steps             [][]Step
	at                []int
	clock             []float64
	posted            []bool
	pipes             map[[2]int]*pipe
	mismatch          string
}

func (g *ringPlay) pipe(from, to int) *pipe {
	if g.pipes[[2]int{from, to}] == nil {
		g.pipes[[2]int{from, to}] = &pipe{}
	}
	return g.pipes[[2]int{from, to}]
}

// post returns what the stage's exchange waits for: places in lines.
func (g *ringPlay) post(s int, w Swap) {
	next := (s + 1) % g.stages
	prev := (s + g.stages - 1) % g.stages
	virtual := func(p Part) int { return p.Chunk*g.stages + s }
	now := g.clock[s]
	send := func(to int, x tensor) {
		p := g.pipe(s, to)
		p.sent = append(p.sent, x)
		p.sentAt = append(p.sentAt, now)
	}
	want := func(from int, x tensor) {
		p := g.pipe(from, s)
		p.wanted = append(p.wanted, x)
		p.wantedAt = append(p.wantedAt, now)
	}
	if w.Out != None {
		send(next, tensor{virtual(w.Out) + 1, w.Out.Micro, false})
	}
	if w.In != None {
		want(prev, tensor{virtual(w.In), w.In.Micro, false})
	}
	if w.GradOut != None {
		send(prev, tensor{virtual(w.GradOut) - 1, w.GradOut.Micro, true})
	}
	if w.GradIn != None {
		want(next, tensor{virtual(w.GradIn), w.GradIn.Micro, true})
	}
}

// through is the time by which all that s posted so far has met its half.
func (g *ringPlay) through(s int) (float64, bool) {
	end := g.clock[s]
	for key, p := range g.pipes {
		if key[0] != s && key[1] != s {
			continue
		}
		both := min(len(p.sent), len(p.wanted))
		if key[0] == s && both < len(p.sent) || key[1] == s && both < len(p.wanted) {
			return 0, false
		}
		for i := range both {
			if p.sent[i] != p.wanted[i] {
				g.mismatch = "a receive took another tensor than it wanted"
			}
			end = max(end, p.sentAt[i], p.wantedAt[i])
		}
	}
	return end, true
}

func (g *ringPlay) advance(s int) bool {
	st := g.steps[s][g.at[s]]
	switch st.Kind {
	case Forward:
		g.clock[s] += g.forward
	case Backward:
		g.clock[s] += g.backward
	case Exchange:
		if !g.posted[s] {
			g.post(s, st.Swap)
			g.posted[s] = true
		}
		end, ok := g.through(s)
		if !ok {
			return false
		}
		g.clock[s], g.posted[s] = end, false
	}
	g.at[s]++
	return true
}

// run returns the finishing time, NaN on deadlock.
func (g *ringPlay) run() float64 {
	g.at, g.clock, g.posted = make([]int, g.stages), make([]float64, g.stages), make([]bool, g.stages)
	g.pipes = map[[2]int]*pipe{}
	for moved := true; moved; {
		moved = false
		for s := range g.stages {
			for g.at[s] < len(g.steps[s]) && g.advance(s) {
				moved = true
			}
		}
	}
	for s := range g.stages {
		if g.at[s] < len(g.steps[s]) {
			return math.NaN()
		}
	}
	return slices.Max(g.clock)
}

func drawn(t *rapid.T) (stages, chunks, microBatches int) {
	stages = rapid.IntRange(2, 6).Draw(t, "stages")
	return stages, rapid.IntRange(2, 4).Draw(t, "chunks"), stages * rapid.IntRange(1, 5).Draw(t, "groups")
}

// With free transfers and rendezvous sends nothing deadlocks, every receive
// gets what it wants, and the pipeline's fill and drain cost a chunks-th of
// what they cost without interleaving: (m·v + p − 1)·(f + b) with f and b the
// times of one chunk (Narayanan et al. 2021, §2.2).
func TestInterleavedTakesTheIdealTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, v, m := drawn(t)
		g := ringPlay{
			stages:   p,
			chunks:   v,
			forward:  5,
			backward: 10,
		}
		for s := range p {
			g.steps = append(g.steps, Interleaved(s, p, v, m))
		}
		got := g.run()
		want := float64(m*v+p-1) * 15
		if g.mismatch != "" || got != want {
			t.Fatalf("p=%d v=%d m=%d: %v ms, want %v; %s", p, v, m, got, want, g.mismatch)
		}
	})
}

func TestForwardOnlyTakesTheIdealTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, v, m := drawn(t)
		if rapid.Bool().Draw(t, "plain") {
			v = 1
		}
		g := ringPlay{stages: p, chunks: v, forward: 5}
		for s := range p {
			g.steps = append(g.steps, ForwardOnly(s, p, v, m))
		}
		got := g.run()
		want := float64(m*v+p-1) * 5
		if g.mismatch != "" || got != want {
			t.Fatalf("p=%d v=%d m=%d: %v ms, want %v; %s", p, v, m, got, want, g.mismatch)
		}
	})
}

// Every micro-batch goes once forwards and once backwards through each chunk,
// in order, and no slot is taken before the one who holds it is done.
func TestInterleavedPassesAndSlots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, v, m := drawn(t)
		s := rapid.IntRange(0, p-1).Draw(t, "stage")
		steps := Interleaved(s, p, v, m)
		slots := Slots(steps, v)
		forward := make([]int, v)
		backward := make([]int, v)
		for _, st := range steps {
			switch st.Kind {
			case Forward:
				if c := st.Work.Chunk; st.Work.Micro != forward[c] {
					t.Fatalf("%s, want micro-batch %d", st, forward[c])
				}
				forward[st.Work.Chunk]++
			case Backward:
				if c := st.Work.Chunk; st.Work.Micro != backward[c] || st.Work.Micro >= forward[c] {
					t.Fatalf("%s, want micro-batch %d", st, backward[c])
				}
				backward[st.Work.Chunk]++
			case Exchange:
				if in := st.Swap.In; in != None && in.Micro-slots >= backward[in.Chunk] {
					t.Fatalf("%d slots: the activations of %d.%d overwrite those of a micro-batch in flight",
						slots, in.Chunk, in.Micro)
				}
			}
		}
		for c := range v {
			if forward[c] != m || backward[c] != m {
				t.Fatalf("chunk %d: %d forward and %d backward passes of %d", c, forward[c], backward[c], m)
			}
		}
	})
}

func TestSlotsOfOneFOneB(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.IntRange(1, 8).Draw(t, "stages")
		m := rapid.IntRange(1, 24).Draw(t, "microBatches")
		s := rapid.IntRange(0, p-1).Draw(t, "stage")
		if got, want := Slots(OneFOneB(s, p, m), 1), InFlightMax(s, p, m); got != want {
			t.Fatalf("%d slots, want %d", got, want)
		}
	})
}

// Megatron's order for two stages of two chunks, two micro-batches, on the
// last stage.
func TestInterleavedLastOfTwoStages(t *testing.T) {
	want := `exchange in 0.0
forward 0
exchange out 0.0 in 0.1
forward 1
exchange out 0.1 in 1.0
forward 1.0
backward 1.0
exchange in 1.1 grad_out 1.0
forward 1.1
backward 1.1
exchange grad_out 1.1 grad_in 0.0
backward 0
exchange grad_out 0.0 grad_in 0.1
backward 1
exchange grad_out 0.1
`
	if got := lines(Interleaved(1, 2, 2, 2)); got != want {
		t.Errorf("got:\n%s", got)
	}
}
