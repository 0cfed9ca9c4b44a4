package schedule

// Part is the work of one micro-batch on one model chunk (virtual stage) of a
// stage; None is none.
type Part struct{ Chunk, Micro int }

// None is no part.
var None = Part{-1, -1}

// Swap is what an Exchange moves with the neighbours in the ring of stages,
// all at once: activations leave for the stage behind and come from the one
// before, gradients the other way.
type Swap struct {
	Out, In         Part // activations
	GradOut, GradIn Part
}

// Interleaved lists the steps of one stage that holds several model chunks,
// for one iteration: the interleaved 1F1B order of Megatron-LM (Narayanan et
// al. 2021, §2.2), without its overlap of communication with computation.
// Micro-batches go through in groups of one per stage, chunk after chunk.
// stages is at least 2, chunks at least 2, microBatches a positive multiple of
// stages.
func Interleaved(stage, stages, chunks, microBatches int) []Step {
	v := interleaver{stage: stage, stages: stages, chunks: chunks, total: microBatches * chunks}
	warm := min(v.total, 2*(stages-stage-1)+(chunks-1)*stages)
	v.addExchange(Swap{None, v.arrivingPart(0), None, None})
	for k := range warm {
		v.addWork(Forward, v.forwardPart(k))
		first := None
		if k == warm-1 {
			first = v.gradArrives(0)
		}
		v.addExchange(Swap{v.leavingPart(k), v.arrivingPart(k + 1), None, first})
	}
	for b := range v.total - warm {
		f := warm + b
		v.addWork(Forward, v.forwardPart(f))
		v.addWork(Backward, v.backwardPart(b))
		v.addExchange(Swap{v.leavingPart(f), v.arrivingPart(f + 1), v.gradLeaves(b), v.gradArrives(b + 1)})
	}
	for b := v.total - warm; b < v.total; b++ {
		v.addWork(Backward, v.backwardPart(b))
		v.addExchange(Swap{None, None, v.gradLeaves(b), v.gradArrives(b + 1)})
	}
	return v.steps
}

// ForwardOnly lists the steps of one stage for an evaluation: forward passes
// alone, in the order in which training makes them.
func ForwardOnly(stage, stages, chunks, microBatches int) []Step {
	if chunks == 1 {
		b := builder{first: stage == 0, last: stage == stages-1}
		for i := range microBatches {
			b.recvForward(i)
			b.addWork(Forward, i)
			b.sendForward(i)
		}
		return b.steps
	}
	v := interleaver{stage: stage, stages: stages, chunks: chunks, total: microBatches * chunks}
	v.addExchange(Swap{None, v.arrivingPart(0), None, None})
	for k := range v.total {
		v.addWork(Forward, v.forwardPart(k))
		v.addExchange(Swap{v.leavingPart(k), v.arrivingPart(k + 1), None, None})
	}
	return v.steps
}

// Slots is the most micro-batches of one chunk that a stage holds at once,
// from the arrival of their activations to their backward pass. They always
// follow each other, so that micro-batch i may use slot i modulo Slots.
func Slots(steps []Step, chunks int) int {
	first, end := make([]int, chunks), make([]int, chunks)
	most := 1
	hold := func(p Part) {
		if p.Chunk >= 0 && p.Micro >= 0 {
			end[p.Chunk] = max(end[p.Chunk], p.Micro+1)
			most = max(most, end[p.Chunk]-first[p.Chunk])
		}
	}
	for _, s := range steps {
		switch s.Kind {
		case RecvForward, SendBackwardRecvForward:
			hold(Part{s.Chunk, s.Recv})
		case Forward:
			hold(Part{s.Chunk, s.Work})
		case Backward:
			first[s.Chunk] = s.Work + 1
		case Exchange:
			hold(s.Swap.In)
		}
	}
	return most
}

// interleaver counts a stage's passes of either direction from 0 to total.
type interleaver struct {
	stage, stages, chunks, total int
	steps                        []Step
}

// forwardPart is the k-th forward pass: stages micro-batches on the first chunk,
// the same on the next, and so on, then the next stages micro-batches.
func (v *interleaver) forwardPart(k int) Part {
	group := v.stages * v.chunks
	return Part{k % group / v.stages, k/group*v.stages + k%v.stages}
}

// backwardPart is the k-th backward pass, which begins at the last chunk.
func (v *interleaver) backwardPart(k int) Part {
	p := v.forwardPart(k)
	return Part{v.chunks - 1 - p.Chunk, p.Micro}
}

// leavingPart is what the k-th forward pass sends, arrives what the k-th needs.
// Only the very first virtual stage has none before it, only the very last none
// behind.
func (v *interleaver) leavingPart(k int) Part {
	return v.noneUnless(v.stage == v.stages-1, v.chunks-1, k, v.forwardPart)
}

func (v *interleaver) arrivingPart(k int) Part {
	return v.noneUnless(v.stage == 0, 0, k, v.forwardPart)
}
func (v *interleaver) gradLeaves(k int) Part { return v.noneUnless(v.stage == 0, 0, k, v.backwardPart) }
func (v *interleaver) gradArrives(k int) Part {
	return v.noneUnless(v.stage == v.stages-1, v.chunks-1, k, v.backwardPart)
}

func (v *interleaver) noneUnless(edge bool, chunk, k int, pass func(int) Part) Part {
	if k >= v.total {
		return None
	}
	if p := pass(k); !edge || p.Chunk != chunk {
		return p
	}
	return None
}

func (v *interleaver) addWork(k Kind, p Part) {
	v.steps = append(v.steps, Step{Kind: k, Work: p.Micro, Send: -1, Recv: -1, Chunk: p.Chunk})
}

func (v *interleaver) addExchange(w Swap) {
	if w != (Swap{None, None, None, None}) {
		v.steps = append(v.steps, Step{Kind: Exchange, Work: -1, Send: -1, Recv: -1, Swap: w})
	}
}
