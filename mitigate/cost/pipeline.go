package cost

import "math"

// Stage is what one pipeline stage spends on one micro-batch, in ms.
type Stage struct {
	ForwardMs, BackwardMs float64
}

// Ms is forward and backward together.
func (s Stage) Ms() float64 { return s.ForwardMs + s.BackwardMs }

func (s Stage) passTimes(factor float64) Stage {
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
	work      []Stage   // of one chunk
	hop       []float64 // by boundary
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
	u.resetStages(c, p)
	for left, moved := c.stages, true; left > 0; {
		if !moved {
			panic("cost: the 1F1B schedule blocked itself")
		}
		moved = false
		for s := range c.stages {
			n := u.next[s]
			if n == len(c.steps[s]) {
				continue
			}
			if u.playStage(c, s) {
				left--
			}
			moved = moved || u.next[s] > n
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

func (u *Simulator) resetStages(c *schedule, p Pipeline) {
	u.work, u.hop = resized(u.work, c.stages), resized(u.hop, c.stages)
	clear(u.hop)
	copy(u.hop, p.HopMs)
	for s, w := range p.Stages {
		u.work[s] = w.passTimes(1 / float64(c.chunks))
	}
	u.sent = resized(u.sent, c.slotCount())
	for i := range u.sent {
		u.sent[i] = -1
	}
	u.clock, u.next = resized(u.clock, c.stages), resized(u.next, c.stages)
	u.begun = resized(u.begun, c.stages)
	clear(u.clock)
	clear(u.next)
	clear(u.begun)
}

func resized[T any](v []T, n int) []T {
	if cap(v) < n {
		return make([]T, n)
	}
	return v[:n]
}

// playStage runs stage s until it waits for a message, and reports whether it is done.
func (u *Simulator) playStage(c *schedule, s int) bool {
	steps := c.steps[s]
	for k := u.next[s]; k < len(steps); k++ {
		switch step := &steps[k]; step.kind {
		case forward:
			u.clock[s] += u.work[s].ForwardMs
		case backward:
			u.clock[s] += u.work[s].BackwardMs
		default:
			if !u.exchange(c, s, step) {
				u.next[s] = k
				return false
			}
		}
	}
	u.next[s] = len(steps)
	return true
}

// exchange sends and receives; false while a message that it waits for has not
// begun. Its own sends begin at once all the same. Where both go to one rank,
// as between two stages, the second begins when the first is through.
func (u *Simulator) exchange(c *schedule, s int, step *instr) bool {
	from := u.clock[s]
	if !u.begun[s] {
		at := from
		for _, m := range step.send {
			if m.slot == nothing {
				continue
			}
			u.sent[m.slot] = at
			if c.stages == 2 {
				at += u.hop[m.boundary]
			}
		}
		u.begun[s] = true
	}
	end := from
	for _, m := range step.recv {
		if m.slot == nothing {
			continue
		}
		if u.sent[m.slot] < 0 {
			return false
		}
		end = max(end, max(from, u.sent[m.slot])+u.hop[m.boundary])
	}
	for _, m := range step.send {
		if m.slot != nothing {
			end = max(end, u.sent[m.slot]+u.hop[m.boundary])
		}
	}
	u.clock[s], u.begun[s] = end, false
	return true
}

func uniformPipeline(stages []Stage, hopMs float64) Pipeline {
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
	return u.Curve(uniformPipeline(stages, hopMs), nil, most)
}

// playMost is the most micro-batches that are simulated; beyond, each costs the cycle of the
// slowest stage or link.
const playMost = 1024

// EndsUpTo lists Ends for m = 0..most. A stretch is simulated at its ends and
// in the middle; where those lie on one line, so does the rest of it: ends are
// the longest of a set of paths that grow with m, hence convex but for small
// ripples.
func (u *Simulator) EndsUpTo(p Pipeline, most int) [][]float64 {
	out := make([][]float64, most+1)
	unit := 1 // interleaved micro-batches come in groups of one per stage
	if p.Chunks > 1 && len(p.Stages) > 1 {
		unit = len(p.Stages)
	}
	top := (min(most, playMost) + unit - 1) / unit
	ends := make([][]float64, top+1)
	dense := min(top, len(p.Stages)+2) // while the pipeline is not filled
	for k := range dense + 1 {
		ends[k] = u.Ends(nil, p, k*unit)
	}
	if top > dense {
		ends[top] = u.Ends(nil, p, top*unit)
		u.fillBetween(p, unit, ends, dense, top)
	}
	for m := range out {
		if k := (m + unit - 1) / unit; k <= top {
			out[m] = ends[k]
		} else {
			out[m] = valueBetween(
				ends[top/2],
				ends[top],
				float64(k-top/2)/float64(top-top/2),
			)
		}
	}
	return out
}

// fillBetween finds what lies between low and high, which are known.
func (u *Simulator) fillBetween(p Pipeline, unit int, ends [][]float64, low, high int) {
	if high-low < 2 {
		return
	}
	mid := (low + high) / 2
	ends[mid] = u.Ends(nil, p, mid*unit)
	straight := true
	for s, want := range valueBetween(ends[low], ends[high], float64(mid-low)/float64(high-low)) {
		straight = straight && math.Abs(ends[mid][s]-want) <= straightTol*want
	}
	if !straight {
		u.fillBetween(p, unit, ends, low, mid)
		u.fillBetween(p, unit, ends, mid, high)
		return
	}
	for k := low + 1; k < high; k++ {
		ends[k] = valueBetween(
			ends[low],
			ends[high],
			float64(k-low)/float64(high-low),
		)
	}
}

// straightTol is the share by which a point on a line may be off it.
const straightTol = 1e-10

func valueBetween(a, b []float64, share float64) []float64 {
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
		out[m] = max(out[m-1], latestEnd(ends[m], tailMs))
	}
	return out
}

// latestEnd is the latest of the stages' ends with what follows them.
func latestEnd(ends, tailMs []float64) float64 {
	worst := math.Inf(-1)
	for s, end := range ends {
		if tailMs != nil {
			end += tailMs[s]
		}
		worst = max(worst, end)
	}
	return worst
}
