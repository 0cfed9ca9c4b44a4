package cost

// Stage is what one pipeline stage spends on one micro-batch, in ms.
type Stage struct {
	ForwardMs, BackwardMs float64
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

// op is one forward or backward of one stage.
type op struct {
	micro    int
	backward bool
}

// PipelineMs is the makespan of the 1F1B schedule (PipeDream-flush, as in
// Megatron) over the stages for m micro-batches, with hopMs added to every
// transfer between stages. Stages run their ops in the schedule's order; an op
// starts when its stage is free and its input has arrived. O(stages · m).
func PipelineMs(stages []Stage, m int, hopMs float64) float64 {
	p := len(stages)
	if p == 0 || m < 1 {
		return 0
	}
	run := newRun(stages, m, hopMs)
	for left := 2 * m * p; left > 0; {
		before := left
		for s := range stages {
			for run.advance(s) {
				left--
			}
		}
		if left == before {
			panic("cost: the 1F1B schedule blocked itself")
		}
	}
	worst := 0.0
	for _, t := range run.free {
		worst = max(worst, t)
	}
	return worst
}

// run is the state of one simulated pipeline.
type run struct {
	stages  []Stage
	m       int
	hopMs   float64
	free    []float64   // when each stage is free
	next    []int       // ops done per stage
	forward [][]float64 // end of forward k on stage s, 0 while not done
	back    [][]float64
}

func newRun(stages []Stage, m int, hopMs float64) *run {
	r := &run{stages: stages, m: m, hopMs: hopMs, free: make([]float64, len(stages)), next: make([]int, len(stages))}
	for range stages {
		r.forward = append(r.forward, make([]float64, m))
		r.back = append(r.back, make([]float64, m))
	}
	return r
}

// opAt is the k-th op of stage s under 1F1B: p−s−1 forwards to warm up, then
// forward and backward in turn, then the remaining backwards.
func (r *run) opAt(s, k int) op {
	warm := min(len(r.stages)-s-1, r.m)
	steady := r.m - warm
	switch {
	case k < warm:
		return op{micro: k}
	case k < warm+2*steady:
		j := k - warm
		if j%2 == 0 {
			return op{micro: warm + j/2}
		}
		return op{micro: j / 2, backward: true}
	default:
		return op{micro: k - r.m, backward: true}
	}
}

// advance runs the next op of stage s if its input is there.
func (r *run) advance(s int) bool {
	if r.next[s] == 2*r.m {
		return false
	}
	o := r.opAt(s, r.next[s])
	ready, ok := r.inputAt(s, o)
	if !ok {
		return false
	}
	start := max(r.free[s], ready)
	if o.backward {
		r.free[s] = start + r.stages[s].BackwardMs
		r.back[s][o.micro] = r.free[s]
	} else {
		r.free[s] = start + r.stages[s].ForwardMs
		r.forward[s][o.micro] = r.free[s]
	}
	r.next[s]++
	return true
}

// inputAt is when o's input reaches stage s; false while its producer has not
// run. Done-ness is read off the producer's progress, as times may be 0.
func (r *run) inputAt(s int, o op) (float64, bool) {
	from, ends := s-1, r.forward
	if o.backward {
		from, ends = s+1, r.back
	}
	if from < 0 || from == len(r.stages) {
		return 0, true
	}
	if !r.done(from, o) {
		return 0, false
	}
	return ends[from][o.micro] + r.hopMs, true
}

func (r *run) done(s int, o op) bool {
	for k := r.next[s] - 1; k >= 0; k-- {
		d := r.opAt(s, k)
		if d.backward == o.backward {
			return d.micro >= o.micro
		}
	}
	return false
}

// exactMost is the number of micro-batches up to which Curve simulates.
const exactMost = 64

// Curve is T(m) for m = 0..most, in ms; T(0) is 0 and T never decreases. Beyond
// exactMost (or four times the stages) each micro-batch costs what its slowest
// stage takes: the cycle time of 1F1B in the long run, without hops.
func Curve(stages []Stage, most int, hopMs float64) []float64 {
	out := make([]float64, most+1)
	exact := min(most, max(exactMost, 4*len(stages)))
	for m := 1; m <= exact; m++ {
		out[m] = max(out[m-1], PipelineMs(stages, m, hopMs))
	}
	slowest := 0.0
	for _, s := range stages {
		slowest = max(slowest, s.ForwardMs+s.BackwardMs)
	}
	for m := exact + 1; m <= most; m++ {
		out[m] = out[m-1] + slowest
	}
	return out
}
