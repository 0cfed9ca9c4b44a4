package train

import (
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
	"github.com/failslow/falcon/cmd/falcon-trainer/model"
)

// slot holds what one micro-batch in flight leaves behind for its backward
// pass: the input of every layer (the last entry is the stage's answer), and
// the activated units and their squares.
type slot struct {
	xs, units, squares []device.Floats
}

// stage is the arithmetic of one rank's shard. Memory is reused in stream
// order: a buffer may be overwritten as soon as its last reader is enqueued.
type stage struct {
	q            *device.Queue
	tp           *device.Comm
	shard        model.Shard
	extraFlops   float64       // charged to each backward pass
	weight, grad device.Floats // Params elements, and zeros up to a multiple of the replicas
	slots        []slot
	back         device.Floats // Hidden×Batch: gradient arriving, and in place that leaving
	branch       device.Floats // Hidden×Batch: a layer's branch before it joins
	inner        device.Floats // Width×Batch: gradient between the two matrices
}

// newStage reserves memory for inFlight micro-batches and loads the first
// weights; parameter buffers can be cut into replicas equal parts.
func newStage(q *device.Queue, tp *device.Comm, sh model.Shard, inFlight, replicas int, seed uint64) *stage {
	act, width := sh.ActivationSize(), sh.Width*sh.Batch
	params := (sh.Params() + replicas - 1) / replicas * replicas
	s := &stage{
		q: q, tp: tp, shard: sh,
		weight: q.AllocFloats(params), grad: q.AllocFloats(params),
		back: q.AllocFloats(act), branch: q.AllocFloats(act), inner: q.AllocFloats(width),
	}
	for range inFlight {
		var one slot
		for range sh.Count {
			one.xs = append(one.xs, q.AllocFloats(act))
			one.units = append(one.units, q.AllocFloats(width))
			one.squares = append(one.squares, q.AllocFloats(width))
		}
		one.xs = append(one.xs, q.AllocFloats(act))
		s.slots = append(s.slots, one)
	}
	first := device.AllocHost[float32](q, params)
	sh.Fill(first, seed)
	device.CopyIn(q, s.weight.Memory(), first)
	return s
}

func (s *stage) slot(micro int) slot { return s.slots[micro%len(s.slots)] }

// in is where micro-batch micro's activations arrive, out where they leave.
func (s *stage) in(micro int) device.Floats  { return s.slot(micro).xs[0] }
func (s *stage) out(micro int) device.Floats { return s.slot(micro).xs[s.shard.Count] }

// views are one layer's parts of a parameter-shaped buffer.
type views struct {
	w1, w2 device.Matrix
	b1, b2 device.Floats
}

func (s *stage) views(buffer device.Floats, layer int) views {
	sh, at := s.shard, s.shard.Layer(layer)
	return views{
		w1: device.Matrix{Data: buffer.At(at.W1, sh.Width*sh.Hidden), Rows: sh.Width, Cols: sh.Hidden},
		w2: device.Matrix{Data: buffer.At(at.W2, sh.Width*sh.Hidden), Rows: sh.Hidden, Cols: sh.Width},
		b1: buffer.At(at.B1, sh.Width), b2: buffer.At(at.B2, sh.Hidden),
	}
}

func (s *stage) hidden(f device.Floats) device.Matrix {
	return device.Matrix{Data: f, Rows: s.shard.Hidden, Cols: s.shard.Batch}
}

func (s *stage) wide(f device.Floats) device.Matrix {
	return device.Matrix{Data: f, Rows: s.shard.Width, Cols: s.shard.Batch}
}

// forward runs the stage on in(micro), leaving the answer in out(micro). The
// first product is column-parallel, the second row-parallel with a sum over
// TP (Shoeybi et al. 2019, §3).
func (s *stage) forward(micro int) {
	sl, sh := s.slot(micro), s.shard
	for i := range sh.Count {
		w, x, unit, square := s.views(s.weight, i), sl.xs[i], sl.units[i], sl.squares[i]
		s.q.Gemm(s.wide(unit), w.w1, s.hidden(x), false)
		s.q.Activate(unit, w.b1, unit, square, sh.Width, sh.Batch)
		s.q.Gemm(s.hidden(s.branch), w.w2, s.wide(square), false)
		s.q.SumFloats(s.tp, s.branch)
		s.q.Join(sl.xs[i+1], x, s.branch, w.b2, sh.Hidden, sh.Batch)
	}
}

// backward turns the gradient of the stage's answer, in back, into that of its
// input, in place, and adds the gradients of the weights. The first stage
// computes that of its input too, though nobody wants it: so all stages take
// the same time.
func (s *stage) backward(micro int) {
	sl, sh := s.slot(micro), s.shard
	for i := sh.Count - 1; i >= 0; i-- {
		w, g := s.views(s.weight, i), s.views(s.grad, i)
		s.q.Gemm(g.w2, s.hidden(s.back), s.wide(sl.squares[i]).Transpose(), true)
		s.q.Gemm(s.wide(s.inner), w.w2.Transpose(), s.hidden(s.back), false)
		s.q.ActivateBack(s.inner, sl.units[i], g.b1, s.back, g.b2, sh.Width, sh.Hidden, sh.Batch)
		s.q.Gemm(g.w1, s.wide(s.inner), s.hidden(sl.xs[i]).Transpose(), true)
		s.q.Gemm(s.hidden(s.branch), w.w1.Transpose(), s.wide(s.inner), false)
		s.q.SumFloats(s.tp, s.branch)
		s.q.Add(s.back, s.branch)
	}
	s.q.Spend(s.extraFlops)
}
