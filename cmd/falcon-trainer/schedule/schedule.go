// Package schedule orders the work of one pipeline stage in one iteration.
//
// It guarantees the 1F1B orders of Megatron-LM (Narayanan et al. 2021, §2.2),
// plain and interleaved: in the plain one at most `stages − stage`
// micro-batches are in flight on a stage; in both a paired exchange is issued
// as one group, so that stages that wait for each other never deadlock. It is
// pure: no goroutines, no clocks, no I/O, and it must not know what a step
// computes.
package schedule

// Kind describes what a step does.
type Kind uint8

// The kinds of steps.
const (
	Forward  Kind = iota // compute Work
	Backward             // compute Work
	Exchange             // Swap with both neighbours in the ring of stages
)

// Step is one action of a stage.
type Step struct {
	Kind Kind
	Work Part // of a Forward or a Backward
	Swap Swap // of an Exchange
}

// Part is the work of one micro-batch on one model chunk (virtual stage) of a
// stage, both counted from 0; None is none.
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

// Iteration is OneFOneB where a stage holds one model chunk, else Interleaved.
func Iteration(stage, stages, chunks, microBatches int) []Step {
	if chunks == 1 {
		return OneFOneB(stage, stages, microBatches)
	}
	return Interleaved(stage, stages, chunks, microBatches)
}

// OneFOneB lists the steps of one stage for one iteration: warm-up forwards,
// one forward and one backward in turn, cool-down backwards. stage is in
// [0, stages), microBatches at least 1.
func OneFOneB(stage, stages, microBatches int) []Step {
	b := builder{
		stage:  stage,
		stages: stages,
		chunks: 1,
		total:  microBatches,
	}
	warm := min(stages-stage-1, microBatches)
	for i := range warm {
		b.addExchange(Swap{None, b.arrivingPart(i), None, None})
		b.addWork(Forward, b.forwardPart(i))
		b.addExchange(Swap{b.leavingPart(i), None, None, None})
	}
	b.addExchange(Swap{None, b.arrivingPart(warm), None, None})
	for i := range microBatches - warm {
		b.addWork(Forward, b.forwardPart(warm+i))
		b.addExchange(Swap{b.leavingPart(warm + i), None, None, b.gradArrives(i)})
		b.addWork(Backward, b.backwardPart(i))
		b.addExchange(Swap{None, b.arrivingPart(warm + i + 1), b.gradLeaves(i), None})
	}
	for i := microBatches - warm; i < microBatches; i++ {
		b.addExchange(Swap{None, None, None, b.gradArrives(i)})
		b.addWork(Backward, b.backwardPart(i))
		b.addExchange(Swap{None, None, b.gradLeaves(i), None})
	}
	return b.steps
}
