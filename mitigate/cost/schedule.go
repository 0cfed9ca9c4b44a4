package cost

// What an instruction does.
const (
	forward  = iota // one micro-batch of one chunk
	backward        // the same
	exchange        // with the neighbours: all sends begin together
)

// nothing is a slot that is not used.
const nothing = -1

// instr is one step of a stage. A slot names one message: see schedule.slot.
type instr struct {
	kind       uint8
	send, recv [2]message
}

// message is a slot and the boundary that it crosses.
type message struct{ slot, boundary int32 }

// schedule is the order in which the stages work, for one number of micro-batches.
type schedule struct {
	stages, chunks, micro int
	steps                 [][]instr // by stage
}

// newSchedule is 1F1B (PipeDream-flush, as in Megatron-LM: Narayanan et al.
// 2021, §2.2), interleaved where a stage holds several chunks of the model.
// There micro must be a multiple of stages; others are rounded up.
func newSchedule(stages, chunks, micro int) *schedule {
	if stages == 1 {
		chunks = 1
	}
	if chunks > 1 {
		micro = (micro + stages - 1) / stages * stages
	}
	c := &schedule{
		stages: stages,
		chunks: chunks,
		micro:  micro,
		steps:  make([][]instr, stages),
	}
	for s := range stages {
		if chunks > 1 {
			c.interleave(s)
		} else {
			c.plainOrder(s)
		}
	}
	return c
}

// slotCount is the number of messages that have a place.
func (c *schedule) slotCount() int {
	return 2 * c.stages * c.chunks * c.micro
}

// messageSlot is the message of a micro-batch on a chunk that crosses boundary b,
// between stage b and the next one (the first follows the last); back is the
// gradient's way.
func (c *schedule) messageSlot(b, chunk, micro int, back bool) int32 {
	if back {
		b += c.stages
	}
	return int32((b*c.chunks+chunk)*c.micro + micro)
}

// boundary is the one that a slot's message crosses.
func (c *schedule) boundary(slot int32) int {
	return int(slot) / (c.chunks * c.micro) % c.stages
}

func (c *schedule) passWork(s int, kind uint8) {
	c.steps[s] = append(c.steps[s], instr{kind: kind})
}

func (c *schedule) exchange(s int, send, recv [2]int32) {
	step := instr{kind: exchange}
	for i := range 2 {
		step.send[i], step.recv[i] = c.message(send[i]), c.message(recv[i])
	}
	c.steps[s] = append(c.steps[s], step)
}

func (c *schedule) message(slot int32) message {
	if slot == nothing {
		return message{nothing, 0}
	}
	return message{slot, int32(c.boundary(slot))}
}

// swapMessages is an exchange of at most one message either way; one that the end of
// the pipeline does not have is nothing.
func (c *schedule) swapMessages(s int, send, recv int32) {
	if send != nothing || recv != nothing {
		c.exchange(s, [2]int32{send, nothing}, [2]int32{recv, nothing})
	}
}

// The messages of micro-batch k at stage s, with one chunk.
func (c *schedule) forwardIn(s, k int) int32 {
	return c.messageAfter(s-1, k, false)
}

func (c *schedule) forwardOut(s, k int) int32 {
	return c.messageAfter(s, k, false)
}

func (c *schedule) backwardIn(s, k int) int32 {
	return c.messageAfter(s, k, true)
}

func (c *schedule) backwardOut(s, k int) int32 {
	return c.messageAfter(s-1, k, true)
}

// messageAfter is the message between stage s and the next; the pipeline's ends have none.
func (c *schedule) messageAfter(s, k int, gradient bool) int32 {
	if s < 0 || s == c.stages-1 {
		return nothing
	}
	return c.messageSlot(s, 0, k, gradient)
}

// plainOrder is one stage's order with one chunk: forwards to warm up, then one
// forward and one backward in turn, with paired exchanges, then the remaining
// backwards.
func (c *schedule) plainOrder(s int) {
	warm := min(c.stages-s-1, c.micro)
	for k := range warm {
		c.swapMessages(s, nothing, c.forwardIn(s, k))
		c.passWork(s, forward)
		c.swapMessages(s, c.forwardOut(s, k), nothing)
	}
	if warm < c.micro {
		c.swapMessages(s, nothing, c.forwardIn(s, warm))
	}
	for k := range c.micro - warm {
		c.passWork(s, forward)
		c.swapMessages(s, c.forwardOut(s, warm+k), c.backwardIn(s, k))
		c.passWork(s, backward)
		next := int32(nothing)
		if warm+k+1 < c.micro {
			next = c.forwardIn(s, warm+k+1)
		}
		c.swapMessages(s, c.backwardOut(s, k), next)
	}
	for k := c.micro - warm; k < c.micro; k++ {
		c.swapMessages(s, nothing, c.backwardIn(s, k))
		c.passWork(s, backward)
		c.swapMessages(s, c.backwardOut(s, k), nothing)
	}
}

// interleave is one stage's order with several chunks: after each pass, all
// that leaves and all that the next one needs is exchanged at once.
func (c *schedule) interleave(s int) {
	total := c.micro * c.chunks
	warm := min(total, 2*(c.stages-s-1)+(c.chunks-1)*c.stages)
	c.tradeMessages(s, nothing, c.passNeeds(s, 0), nothing, nothing)
	for k := range warm {
		c.passWork(s, forward)
		grad := int32(nothing)
		if k == warm-1 {
			grad = c.gradArrives(s, 0)
		}
		c.tradeMessages(s, c.passSends(s, k), c.passNeeds(s, k+1), nothing, grad)
	}
	for b := range total - warm {
		f := warm + b
		c.passWork(s, forward)
		c.passWork(s, backward)
		c.tradeMessages(
			s,
			c.passSends(s, f),
			c.passNeeds(s, f+1),
			c.gradLeaves(s, b),
			c.gradArrives(s, b+1),
		)
	}
	for b := total - warm; b < total; b++ {
		c.passWork(s, backward)
		c.tradeMessages(
			s,
			nothing,
			nothing,
			c.gradLeaves(s, b),
			c.gradArrives(s, b+1),
		)
	}
}

func (c *schedule) tradeMessages(s int, out, in, gradOut, gradIn int32) {
	c.exchange(s, [2]int32{out, gradOut}, [2]int32{in, gradIn})
}

// forwardPass is the k-th forward pass: as many micro-batches as there are stages on
// the first chunk, the same ones on the next, and so on.
func (c *schedule) forwardPass(k int) (chunk, micro int) {
	group := c.stages * c.chunks
	return k % group / c.stages, k/group*c.stages + k%c.stages
}

// passSends is what the k-th forward pass sends; the last chunk of the last stage
// sends nothing. The message is named by the chunk that sends it.
func (c *schedule) passSends(s, k int) int32 {
	chunk, micro := c.forwardPass(k)
	if s == c.stages-1 && chunk == c.chunks-1 {
		return nothing
	}
	return c.messageSlot(s, chunk, micro, false)
}

// passNeeds is what the k-th forward pass needs: from the stage or the chunk before.
func (c *schedule) passNeeds(s, k int) int32 {
	if k >= c.micro*c.chunks {
		return nothing
	}
	chunk, micro := c.forwardPass(k)
	return c.messageBefore(s, chunk, micro, false)
}

// messageBefore is the message between a stage's chunk and what comes before it.
func (c *schedule) messageBefore(s, chunk, micro int, gradient bool) int32 {
	switch {
	case s > 0:
		return c.messageSlot(s-1, chunk, micro, gradient)
	case chunk > 0:
		return c.messageSlot(c.stages-1, chunk-1, micro, gradient)
	}
	return nothing
}

// gradLeaves and gradArrives are the same for the k-th backward pass, which
// begins at the last chunk. The boundary of a gradient is the one that its
// activation crossed, and so is its chunk.
func (c *schedule) gradLeaves(s, k int) int32 {
	chunk, micro := c.forwardPass(k)
	return c.messageBefore(s, c.chunks-1-chunk, micro, true)
}

func (c *schedule) gradArrives(s, k int) int32 {
	if k >= c.micro*c.chunks {
		return nothing
	}
	chunk, micro := c.forwardPass(k)
	chunk = c.chunks - 1 - chunk
	if s == c.stages-1 && chunk == c.chunks-1 {
		return nothing
	}
	return c.messageSlot(s, chunk, micro, true)
}
