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

// The kinds of steps. The two exchanges are issued as one NCCL group.
const (
	RecvForward             Kind = iota // activations of Recv from the stage before
	SendForward                         // activations of Send to the stage behind
	RecvBackward                        // gradient of Recv from the stage behind
	SendBackward                        // gradient of Send to the stage before
	SendForwardRecvBackward             // both with the stage behind
	SendBackwardRecvForward             // both with the stage before
	Forward                             // compute micro-batch Work
	Backward                            // compute micro-batch Work
	Exchange                            // Swap with both neighbours in the ring of stages
)

// Step is one action of a stage. Micro-batches count from 0 within the
// replica; fields that Kind does not use are −1.
type Step struct {
	Kind Kind
	Work int // micro-batch that is computed
	Send int // micro-batch whose tensor leaves
	Recv int // micro-batch whose tensor arrives

	Chunk int  // model chunk of Work, 0 where a stage holds one only
	Swap  Swap // of an Exchange
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
	b := builder{first: stage == 0, last: stage == stages-1}
	warm := min(stages-stage-1, microBatches)
	for i := range warm {
		b.recvForward(i)
		b.addWork(Forward, i)
		b.sendForward(i)
	}
	b.steadyPhase(warm, microBatches)
	for i := microBatches - warm; i < microBatches; i++ {
		b.recvBackward(i)
		b.addWork(Backward, i)
		b.sendBackward(i)
	}
	return b.steps
}

type builder struct {
	first, last bool
	steps       []Step
}

// steadyPhase runs one forward and one backward in turn until all forwards are done.
func (b *builder) steadyPhase(warm, microBatches int) {
	if warm == microBatches {
		return
	}
	b.recvForward(warm)
	for i := range microBatches - warm {
		b.addWork(Forward, warm+i)
		b.exchangeBehind(warm+i, i)
		b.addWork(Backward, i)
		if next := warm + i + 1; next < microBatches {
			b.exchangeBefore(i, next)
		} else {
			b.sendBackward(i)
		}
	}
}

func (b *builder) addStep(k Kind, work, send, recv int) {
	b.steps = append(b.steps, Step{Kind: k, Work: work, Send: send, Recv: recv})
}

func (b *builder) addWork(k Kind, i int) { b.addStep(k, i, -1, -1) }

func (b *builder) recvForward(i int) {
	if !b.first {
		b.addStep(RecvForward, -1, -1, i)
	}
}

func (b *builder) sendForward(i int) {
	if !b.last {
		b.addStep(SendForward, -1, i, -1)
	}
}

func (b *builder) recvBackward(i int) {
	if !b.last {
		b.addStep(RecvBackward, -1, -1, i)
	}
}

func (b *builder) sendBackward(i int) {
	if !b.first {
		b.addStep(SendBackward, -1, i, -1)
	}
}

func (b *builder) exchangeBehind(send, recv int) {
	if !b.last {
		b.addStep(SendForwardRecvBackward, -1, send, recv)
	}
}

func (b *builder) exchangeBefore(send, recv int) {
	if !b.first {
		b.addStep(SendBackwardRecvForward, -1, send, recv)
	}
}
