package train

import (
	"math"

	"github.com/failslow/falcon/cmd/falcon-trainer/device"
	"github.com/failslow/falcon/cmd/falcon-trainer/model"
)

// tally is what all ranks reduce at the end of an iteration: the loss, a
// float64 to be summed, and beside it the vote, a uint64 whose least wins.
type tally struct {
	q     *device.Queue
	dev   device.Memory // loss, vote, and a loss that is not counted
	in    []uint64      // pinned: zero, own vote
	out   []uint64      // pinned: bits of the loss, agreed vote
	words int
}

func newTally(q *device.Queue) tally {
	const words = 2
	return tally{
		q:     q,
		dev:   q.Alloc(8 * (words + 1)),
		words: words,
		in:    device.AllocHost[uint64](q, words),
		out:   device.AllocHost[uint64](q, words),
	}
}

// beginVote clears the loss and casts the vote.
func (t tally) beginVote(vote uint64) {
	t.in[1] = vote
	device.CopyIn(t.q, t.dev.At(0, 8*t.words), t.in)
}

// lossMemory is where a stage adds its loss.
func (t tally) lossMemory(counted bool) device.Memory {
	if counted {
		return t.dev.At(0, 8)
	}
	return t.dev.At(8*t.words, 8)
}

// reduceOver enqueues the sum and the vote over the world as one operation.
func (t tally) reduceOver(world *device.Comm) {
	if world != nil {
		t.q.Group(func() {
			t.q.SumDoubles(world, t.dev.At(0, 8), 1)
			t.q.MinUint64(world, t.dev.At(8, 8), 1)
		})
	}
	device.CopyOut(t.q, t.out, t.dev.At(0, 8*t.words))
}

// reduceLoss enqueues the sum alone: an evaluation votes on nothing.
func (t tally) reduceLoss(world *device.Comm) {
	t.q.SumDoubles(world, t.dev.At(0, 8), 1)
	device.CopyOut(t.q, t.out, t.dev.At(0, 8*t.words))
}

// lossAndVote is valid after the queue was waited for.
func (t tally) lossAndVote() (loss float64, vote uint64) {
	return math.Float64frombits(t.out[0]), t.out[1]
}

// feed makes samples on the host and enqueues their copies. Each micro-batch
// has pinned memory of its own, as the host runs ahead of the copies.
type feed struct {
	q       *device.Queue
	shard   model.Shard
	seed    uint64
	inputs  []float32
	targets []float32
	answer  device.Floats
}

// newFeed serves at most microBatchesMax micro-batches per iteration.
func newFeed(q *device.Queue, sh model.Shard, seed uint64, microBatchesMax int) feed {
	n := sh.ActivationSize() * microBatchesMax
	return feed{
		q:       q,
		shard:   sh,
		seed:    seed,
		answer:  q.AllocFloats(sh.ActivationSize()),
		inputs:  device.AllocHost[float32](q, n),
		targets: device.AllocHost[float32](q, n),
	}
}

// loadInput loads micro-batch global of the job's life, micro of this iteration.
func (f feed) loadInput(dst device.Floats, global int64, micro int) {
	device.CopyIn(
		f.q,
		dst.Memory(),
		f.fillSamples(f.inputs, global, micro, model.Input),
	)
}

// loadTarget loads what the model should answer to it.
func (f feed) loadTarget(global int64, micro int) device.Floats {
	device.CopyIn(
		f.q,
		f.answer.Memory(),
		f.fillSamples(f.targets, global, micro, model.Target),
	)
	return f.answer
}

func (f feed) fillSamples(
	host []float32,
	global int64,
	micro int,
	sample func(seed, index uint64, x []float32),
) []float32 {
	size := f.shard.ActivationSize()
	h := f.shard.Hidden
	host = host[micro*size : (micro+1)*size]
	for b := range f.shard.Batch {
		index := uint64(global)*uint64(f.shard.Batch) + uint64(b)
		sample(f.seed, index, host[b*h:(b+1)*h])
	}
	return host
}
