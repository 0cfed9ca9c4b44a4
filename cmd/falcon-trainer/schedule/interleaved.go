package schedule

// Interleaved lists the steps of one stage that holds several model chunks,
// for one iteration: the interleaved 1F1B order of Megatron-LM (Narayanan et
// al. 2021, §2.2), without its overlap of communication with computation.
// Micro-batches go through in groups of one per stage, chunk after chunk.
// stages is at least 2, chunks at least 2, microBatches a positive multiple of
// stages.
func Interleaved(stage, stages, chunks, microBatches int) []Step {
	v := builder{
		stage:  stage,
		stages: stages,
		chunks: chunks,
		total:  microBatches * chunks,
	}
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
	v := builder{
		stage:  stage,
		stages: stages,
		chunks: chunks,
		total:  microBatches * chunks,
	}
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
		if p != None {
			end[p.Chunk] = max(end[p.Chunk], p.Micro+1)
			most = max(most, end[p.Chunk]-first[p.Chunk])
		}
	}
	for _, s := range steps {
		switch s.Kind {
		case Forward:
			hold(s.Work)
		case Backward:
			first[s.Work.Chunk] = s.Work.Micro + 1
		case Exchange:
			hold(s.Swap.In)
		}
	}
	return most
}

// builder counts a stage's passes of either direction from 0 to total.
type builder struct {
	stage, stages, chunks, total int
	steps                        []Step
}

// forwardPart is the k-th forward pass: stages micro-batches on the first chunk,
// the same on the next, and so on, then the next stages micro-batches.
func (b *builder) forwardPart(k int) Part {
	group := b.stages * b.chunks
	return Part{k % group / b.stages, k/group*b.stages + k%b.stages}
}

// backwardPart is the k-th backward pass, which begins at the last chunk.
func (b *builder) backwardPart(k int) Part {
	p := b.forwardPart(k)
	return Part{b.chunks - 1 - p.Chunk, p.Micro}
}

// leavingPart is what the k-th forward pass sends, arrivingPart what the k-th needs.
// Only the very first virtual stage has none before it, only the very last none
// behind.
func (b *builder) leavingPart(k int) Part {
	return b.noneUnless(b.stage == b.stages-1, b.chunks-1, k, b.forwardPart)
}

func (b *builder) arrivingPart(k int) Part {
	return b.noneUnless(b.stage == 0, 0, k, b.forwardPart)
}

func (b *builder) gradLeaves(k int) Part {
	return b.noneUnless(b.stage == 0, 0, k, b.backwardPart)
}

func (b *builder) gradArrives(k int) Part {
	return b.noneUnless(b.stage == b.stages-1, b.chunks-1, k, b.backwardPart)
}

func (b *builder) noneUnless(edge bool, chunk, k int, pass func(int) Part) Part {
	if k >= b.total {
		return None
	}
	if p := pass(k); !edge || p.Chunk != chunk {
		return p
	}
	return None
}

// nothing is the swap of a stage without a neighbour to swap with.
var nothing = Swap{None, None, None, None}

func (b *builder) addWork(k Kind, p Part) {
	b.steps = append(b.steps, Step{Kind: k, Work: p, Swap: nothing})
}

func (b *builder) addExchange(w Swap) {
	if w != nothing {
		b.steps = append(b.steps, Step{Kind: Exchange, Work: None, Swap: w})
	}
}
