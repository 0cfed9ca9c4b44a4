package train

import (
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

func (w *worker) trainingBatch(i int64) batch {
	return batch{w.consumed(i) + int64(w.split.First(w.at.DP))}
}

// schedule is this stage's order of an iteration of microBatches.
func (w *worker) schedule(microBatches int) []schedule.Step {
	return schedule.Iteration(w.at.PP, w.cfg.Layout.PP, w.cfg.Shape.VirtualStages(), microBatches)
}

// pass enqueues a schedule on the batch of iteration i.
func (w *worker) pass(i int64, b batch, steps []schedule.Step) {
	strikes := w.halfway(steps)
	for k, s := range steps {
		if s.Kind == schedule.Exchange {
			w.q.Group(func() { w.exchange(s.Swap) })
			continue
		}
		w.step(b, s)
		if strikes[k] != "" {
			w.strikeDone(strikes[k], i)
		}
	}
}

// halfway finds the steps behind which half of the forward, and half of the
// backward passes are done; none where no faults are injected.
func (w *worker) halfway(steps []schedule.Step) map[int]string {
	if len(w.cfg.Points) == 0 {
		return nil
	}
	out := map[int]string{}
	for kind, point := range map[schedule.Kind]string{schedule.Forward: fault.Forward, schedule.Backward: fault.Backward} {
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

// step enqueues one step of a schedule.
func (w *worker) step(b batch, s schedule.Step) {
	st, q, pp := w.stage, w.q, w.groups.pp
	before, behind := w.at.PP-1, w.at.PP+1
	send, recv := schedule.Part{Micro: s.Send}, schedule.Part{Micro: s.Recv}
	switch s.Kind {
	case schedule.Forward:
		w.forward(b, schedule.Part{Chunk: s.Chunk, Micro: s.Work})
	case schedule.Backward:
		st.backward(schedule.Part{Chunk: s.Chunk, Micro: s.Work})
	case schedule.RecvForward:
		q.Recv(pp, st.in(recv), before)
	case schedule.SendForward:
		q.Send(pp, st.out(send), behind)
	case schedule.RecvBackward:
		q.Recv(pp, st.back(recv), behind)
	case schedule.SendBackward:
		q.Send(pp, st.back(send), before)
	case schedule.SendForwardRecvBackward:
		q.Group(func() {
			q.Send(pp, st.out(send), behind)
			q.Recv(pp, st.back(recv), behind)
		})
	case schedule.SendBackwardRecvForward:
		q.Group(func() {
			q.Send(pp, st.back(send), before)
			q.Recv(pp, st.in(recv), before)
		})
	}
}

// exchange enqueues what a swap moves around the ring of stages. Both
// neighbours are one rank when there are two stages: activations always go
// first, so that its receives meet the right sends.
func (w *worker) exchange(s schedule.Swap) {
	stages, st := w.cfg.Layout.PP, w.stage
	behind, before := (w.at.PP+1)%stages, (w.at.PP+stages-1)%stages
	for _, m := range []struct {
		part schedule.Part
		move func(*device.Comm, device.Floats, int)
		at   func(schedule.Part) device.Floats
		peer int
	}{
		{s.Out, w.q.Send, st.out, behind},
		{s.In, w.q.Recv, st.in, before},
		{s.GradOut, w.q.Send, st.back, before},
		{s.GradIn, w.q.Recv, st.back, behind},
	} {
		if m.part != schedule.None {
			m.move(w.groups.pp, m.at(m.part), m.peer)
		}
	}
}

// forward feeds the first virtual stage, and takes the loss behind the last.
// Only one of the tensor-parallel ranks counts it; all need its gradient.
func (w *worker) forward(b batch, p schedule.Part) {
	st, sh := w.stage, w.stage.shard
	global := b.first + int64(p.Micro)
	if w.at.PP == 0 && p.Chunk == 0 {
		w.feed.input(st.in(p), global, p.Micro)
	}
	st.forward(p)
	if w.at.PP == w.cfg.Layout.PP-1 && p.Chunk == sh.VirtualStages()-1 {
		target := w.feed.target(global, p.Micro)
		w.q.Loss(st.out(p), target, st.back(p), w.tally.loss(w.at.TP == 0), sh.Hidden, sh.Batch)
	}
}
