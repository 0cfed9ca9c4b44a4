package cost

import "math"

// Stage is what one pipeline stage spends on one micro-batch, in ms.
type Stage struct {
	ForwardMs, BackwardMs float64
}

// Ms is forward and backward together.
func (s Stage) Ms() float64 { return s.ForwardMs + s.BackwardMs }

func (s Stage) times(factor float64) Stage {
	return Stage{s.ForwardMs * factor, s.BackwardMs * factor}
}

// StagesFromSelf splits measured self times (forward + backward per
// micro-batch) into phases by the usual flop ratio 1 : 2: the backward pass
// computes gradients of both inputs and weights.
func StagesFromSelf(selfMs []float64) []Stage {
	out := make([]Stage, len(selfMs))
	for i, s := range selfMs {
		out[i] = Stage{ForwardMs: s / 3, BackwardMs: s * 2 / 3}
	}
	return out
}

// Pipeline is one replica: its stages and what a message takes between them.
type Pipeline struct {
	Stages []Stage
	// HopMs[b] is one activation or gradient between stage b and b+1; with
	// several chunks the entry behind those is the way from the last stage back
	// to the first. Entries that are missing are 0.
	HopMs  []float64
	Chunks int // model chunks of a stage (interleaving); 0 means 1
}

// A Simulator plays pipelines. It keeps schedules and memory between runs; the
// zero value is ready, and must not be used by two goroutines at once.
type Simulator struct {
	schedules map[[3]int]*schedule
	sent      []float64 // when each message's transfer could begin, by slot
	clock     []float64 // by stage
	next      []int     // steps done, by stage
	begun     []bool    // the step's sends are on their way, by stage
}

// Ends is when each stage of p has done all it has to do for m micro-batches,
// appended to to. A message occupies both its ends: the sender from when it
// comes to it, the receiver from when both are there (Megatron-LM waits for
// both halves of a paired exchange, and so does the lab's trainer), so a
// link slower than its stages is the bottleneck. O(stages · m).
func (u *Simulator) Ends(to []float64, p Pipeline, m int) []float64 {
	if len(p.Stages) == 0 || m < 1 {
		return append(to, make([]float64, len(p.Stages))...)
	}
	c := u.schedule(len(p.Stages), max(p.Chunks, 1), m)
	u.reset(c)
	for left := c.stages; left > 0; {
		before, moved := left, false
		for s := range c.stages {
			n := u.next[s]
			if n < len(c.steps[s]) && u.play(c, p, s) {
				left--
			}
			moved = moved || u.next[s] > n
		}
		if left == before && !moved {
			panic("cost: the 1F1B schedule blocked itself")
		}
	}
	return append(to, u.clock...)
}

func (u *Simulator) schedule(stages, chunks, m int) *schedule {
	key := [3]int{stages, chunks, m}
	c := u.schedules[key]
	if c == nil {
		if u.schedules == nil || len(u.schedules) >= scheduleMost {
			u.schedules = map[[3]int]*schedule{}
		}
		c = newSchedule(stages, chunks, m)
		u.schedules[key] = c
	}
	return c
}

// scheduleMost bounds the schedules that are kept.
const scheduleMost = 1024

func (u *Simulator) reset(c *schedule) {
	u.sent = grown(u.sent, c.slots())
	for i := range u.sent {
		u.sent[i] = -1
	}
	u.clock, u.next = grown(u.clock, c.stages), grown(u.next, c.stages)
	u.begun = grown(u.begun, c.stages)
	clear(u.clock)
	clear(u.next)
	clear(u.begun)
}

func grown[T any](v []T, n int) []T {
	if cap(v) < n {
		return make([]T, n)
	}
	return v[:n]
}

// play runs stage s until it waits for a message, and says whether it is done.
func (u *Simulator) play(c *schedule, p Pipeline, s int) bool {
	work := p.Stages[s].times(1 / float64(c.chunks))
	for u.next[s] < len(c.steps[s]) {
		switch step := &c.steps[s][u.next[s]]; step.kind {
		case forward:
			u.clock[s] += work.ForwardMs
		case backward:
			u.clock[s] += work.BackwardMs
		default:
			if !u.exchange(c, p, s, step) {
				return false
			}
		}
		u.next[s]++
	}
	return true
}

// exchange sends and receives; false while a message that it waits for has not
// begun. Its own sends begin at once all the same. Where both go to one rank,
// as between two stages, the second begins when the first is through.
func (u *Simulator) exchange(c *schedule, p Pipeline, s int, step *instr) bool {
	from := u.clock[s]
	if !u.begun[s] {
		at := from
		for _, slot := range step.send {
			if slot == nothing {
				continue
			}
			u.sent[slot] = at
			if c.stages == 2 {
				at += p.hopMs(c.boundary(slot))
			}
		}
		u.begun[s] = true
	}
	for _, slot := range step.recv {
		if slot != nothing && u.sent[slot] < 0 {
			return false
		}
	}
	end := from
	for i := range step.send {
		if slot := step.send[i]; slot != nothing {
			end = max(end, u.sent[slot]+p.hopMs(c.boundary(slot)))
		}
		if slot := step.recv[i]; slot != nothing {
			end = max(end, max(from, u.sent[slot])+p.hopMs(c.boundary(slot)))
		}
	}
	u.clock[s], u.begun[s] = end, false
	return true
}

func (p Pipeline) hopMs(boundary int) float64 {
	if boundary >= len(p.HopMs) {
		return 0
	}
	return p.HopMs[boundary]
}

// PipelineMs is the makespan of the 1F1B schedule over the stages for m
// micro-batches, with every message between them taking hopMs.
func PipelineMs(stages []Stage, m int, hopMs float64) float64 {
	var u Simulator
	worst := 0.0
	for _, end := range u.Ends(nil, uniform(stages, hopMs), m) {
		worst = max(worst, end)
	}
	return worst
}

func uniform(stages []Stage, hopMs float64) Pipeline {
	p := Pipeline{Stages: stages}
	if hopMs > 0 {
		for range stages {
			p.HopMs = append(p.HopMs, hopMs)
		}
	}
	return p
}

// Curve is T(m) for m = 0..most, in ms; T(0) is 0 and T never decreases. See
// Simulator.Curve.
func Curve(stages []Stage, most int, hopMs float64) []float64 {
	var u Simulator
	return u.Curve(uniform(stages, hopMs), nil, most)
}

// exactMost is the number of micro-batches up to which every one is simulated.
const exactMost = 64

// EndsUpTo lists Ends for m = 0..most. Beyond exactMost (or four times the
// stages) only powers of two times that are simulated, and most itself; those
// between lie on the straight line, as in the long run each micro-batch costs
// one cycle of the slowest stage or link.
func (u *Simulator) EndsUpTo(p Pipeline, most int) [][]float64 {
	out := make([][]float64, most+1)
	exact := min(most, max(exactMost, 4*len(p.Stages)))
	for m := 0; m <= exact; m++ {
		out[m] = u.Ends(nil, p, m)
	}
	for low := exact; low < most; {
		high := min(2*low, most)
		out[high] = u.Ends(nil, p, high)
		for m := low + 1; m < high; m++ {
			out[m] = between(out[low], out[high], float64(m-low)/float64(high-low))
		}
		low = high
	}
	return out
}

func between(a, b []float64, share float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] + share*(b[i]-a[i])
	}
	return out
}

// Curve is T(m) for m = 0..most: when the last stage has ended, and what
// follows at the end of each stage (tailMs, by stage; nil = nothing) too. T(0)
// is 0 and T never decreases.
func (u *Simulator) Curve(p Pipeline, tailMs []float64, most int) []float64 {
	return CurveOf(u.EndsUpTo(p, most), tailMs)
}

// CurveOf is Curve for the ends that EndsUpTo found.
func CurveOf(ends [][]float64, tailMs []float64) []float64 {
	out := make([]float64, len(ends))
	for m := 1; m < len(ends); m++ {
		out[m] = max(out[m-1], last(ends[m], tailMs))
	}
	return out
}

// last is the latest of the stages' ends with what follows them.
func last(ends, tailMs []float64) float64 {
	worst := math.Inf(-1)
	for s, end := range ends {
		if tailMs != nil {
			end += tailMs[s]
		}
		worst = max(worst, end)
	}
	return worst
}
