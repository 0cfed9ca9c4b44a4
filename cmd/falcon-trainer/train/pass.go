package train

import (
	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
	"github.com/failslow/falcon/cmd/falcon-trainer/fault"
	"github.com/failslow/falcon/cmd/falcon-trainer/schedule"
)

// batch is where the samples of one pass over the model begin: micro-batch 0
// of this replica is number first of the job's life.
type batch struct{ first int64 }

// cursor is where in the data an iteration begins: the micro-batches of the
// job's life before it. They are counted, as a restart may change the batch.
type cursor struct{ iteration, consumed int64 }

// pipeline is this rank's stage of the schedule: it enqueues passes over the model.
type pipeline struct {
	q      *device.Queue
	stage  *stage
	feed   feed
	tally  tally
	layout falcon.Layout
	at     falcon.Coord
	pp     *device.Comm

	// spread is by how much more work than usual micro-batches are at most, as of longer sequences:
	// time alone, the model computes the same.
	spread float64

	// strike carries out the fault that is injected at a point of an iteration; nil
	// where none are.
	strike func(point string, iteration int64)
}

func (w *worker) trainingBatch(i int64) batch {
	return batch{w.consumedBefore(i) + int64(w.split.First(w.at.DP))}
}

// trainingSteps is this stage's order of an iteration of microBatches.
func (p *pipeline) trainingSteps(microBatches int) []schedule.Step {
	return schedule.Iteration(
		p.at.PP,
		p.layout.PP,
		p.stage.shard.VirtualStages(),
		microBatches,
	)
}

// evaluationSteps is training without the backward passes.
func (p *pipeline) evaluationSteps(microBatches int) []schedule.Step {
	return schedule.ForwardOnly(
		p.at.PP,
		p.layout.PP,
		p.stage.shard.VirtualStages(),
		microBatches,
	)
}

// runPass enqueues a schedule on the batch of iteration i.
func (p *pipeline) runPass(i int64, b batch, steps []schedule.Step) {
	strikes := p.faultPoints(steps)
	for k, s := range steps {
		switch s.Kind {
		case schedule.Forward:
			p.enqueueForward(b, s.Work)
		case schedule.Backward:
			p.stage.backward(s.Work)
			p.q.Spend(2 * p.extraFlops(b, s.Work))
		case schedule.Exchange:
			p.enqueueExchange(s.Swap)
		}
		if strikes[k] != "" {
			p.strike(strikes[k], i)
		}
	}
}

// faultPoints finds the steps behind which half of the forward, and half of the
// backward passes are done; none where no faults are injected.
func (p *pipeline) faultPoints(steps []schedule.Step) map[int]string {
	if p.strike == nil {
		return nil
	}
	out := map[int]string{}
	for kind, point := range map[schedule.Kind]string{
		schedule.Forward:  fault.Forward,
		schedule.Backward: fault.Backward,
	} {
		var at []int
		for k, s := range steps {
			if s.Kind == kind {
				at = append(at, k)
			}
		}
		if len(at) > 0 {
			out[at[len(at)/2]] = point
		}
	}
	return out
}

// enqueueExchange enqueues what a swap moves around the ring of stages. Both
// neighbours are one rank when there are two stages: activations always go
// first, so that its receives meet the right sends. Several moves are one group.
func (p *pipeline) enqueueExchange(s schedule.Swap) {
	stages, st := p.layout.PP, p.stage
	behind := (p.at.PP + 1) % stages
	before := (p.at.PP + stages - 1) % stages
	var moves []func()
	for _, m := range []struct {
		part schedule.Part
		move func(*device.Comm, device.Floats, int)
		at   func(schedule.Part) device.Floats
		peer int
	}{
		{s.Out, p.q.Send, st.outputOf, behind},
		{s.In, p.q.Recv, st.inputOf, before},
		{s.GradOut, p.q.Send, st.gradientOf, before},
		{s.GradIn, p.q.Recv, st.gradientOf, behind},
	} {
		if m.part != schedule.None {
			moves = append(moves, func() {
				m.move(p.pp, m.at(m.part), m.peer)
			})
		}
	}
	if len(moves) == 1 {
		moves[0]()
		return
	}
	p.q.Group(func() {
		for _, move := range moves {
			move()
		}
	})
}

// enqueueForward feeds the first virtual stage, and takes the loss behind the last.
// Only one of the tensor-parallel ranks counts it; all need its gradient.
func (p *pipeline) enqueueForward(b batch, part schedule.Part) {
	st, sh := p.stage, p.stage.shard
	global := b.first + int64(part.Micro)
	if p.at.PP == 0 && part.Chunk == 0 {
		p.feed.loadInput(st.inputOf(part), global, part.Micro)
	}
	st.forward(part)
	p.q.Spend(p.extraFlops(b, part))
	if p.at.PP == p.layout.PP-1 && part.Chunk == sh.VirtualStages()-1 {
		target := p.feed.loadTarget(global, part.Micro)
		p.q.Loss(
			st.outputOf(part),
			target,
			st.gradientOf(part),
			p.tally.lossMemory(p.at.TP == 0),
			sh.Hidden,
			sh.Batch,
		)
	}
}

// extraFlops is the emulated work of a forward pass beyond what the model needs.
func (p *pipeline) extraFlops(b batch, part schedule.Part) float64 {
	if p.spread <= 0 {
		return 0
	}
	return fault.Length(
		b.first+int64(part.Micro),
		p.spread,
	) * p.stage.shard.ForwardFlops() / float64(p.stage.shard.VirtualStages())
}
