package train

import (
	"github.com/failslow/falcon/cmd/falcon-trainer/device"
	"github.com/failslow/falcon/cmd/falcon-trainer/model"
	"github.com/failslow/falcon/cmd/falcon-trainer/schedule"
)

// slot holds what one micro-batch in flight on one model chunk leaves behind
// for its backward pass: the input of every layer (the last entry is the
// chunk's answer), the activated units and their squares; and the gradient of
// that answer when it has come, which turns into that of the input in place.
type slot struct {
	xs, units, squares []device.Floats
	back               device.Floats
}

// stage is the arithmetic of one rank's shard. Memory is reused in stream
// order: a buffer may be overwritten as soon as its last reader is enqueued.
type stage struct {
	q            *device.Queue
	tp           *device.Comm
	shard        model.Shard
	extraFlops   float64       // charged to each backward pass of a chunk
	weight, grad device.Floats // Params elements, and zeros up to a multiple of the replicas
	slots        [][]slot      // by chunk
	branch       device.Floats // Hidden×Batch: a layer's branch before it joins
	inner        device.Floats // Width×Batch: gradient between the two matrices
}

// newStage reserves memory for inFlight micro-batches on each chunk and loads
// the first weights; parameter buffers can be cut into replicas equal parts.
func newStage(q *device.Queue, tp *device.Comm, sh model.Shard, inFlight, replicas int, seed uint64) *stage {
	params := (sh.Params() + replicas - 1) / replicas * replicas
	s := &stage{
		q:      q,
		tp:     tp,
		shard:  sh,
		weight: q.AllocFloats(params),
		grad:   q.AllocFloats(params),
		branch: q.AllocFloats(sh.ActivationSize()),
		inner:  q.AllocFloats(sh.Width * sh.Batch),
		slots:  make([][]slot, sh.VirtualStages()),
	}
	s.reserveSlots(q, inFlight)
	s.fillWeights(s.weight, seed)
	return s
}

// fillWeights loads the first weights into a buffer like that of the weights.
func (s *stage) fillWeights(weight device.Floats, seed uint64) {
	first := device.AllocHost[float32](s.q, weight.Len())
	s.shard.Fill(first, seed)
	device.CopyIn(s.q, weight.Memory(), first)
}

// reserveSlots sees to it that inFlight micro-batches have room on each chunk; more
// room than needed harms nothing. New memory is ready when q is.
func (s *stage) reserveSlots(q *device.Queue, inFlight int) {
	act, width := s.shard.ActivationSize(), s.shard.Width*s.shard.Batch
	for i := range s.slots {
		for len(s.slots[i]) < inFlight {
			one := newSlot(q, s.shard.PerChunk(), act, width)
			if q.Err() != nil {
				return // no slot without memory
			}
			s.slots[i] = append(s.slots[i], one)
		}
	}
}

func newSlot(q *device.Queue, layers, act, width int) slot {
	one := slot{back: q.AllocFloats(act)}
	for range layers {
		one.xs = append(one.xs, q.AllocFloats(act))
		one.units = append(one.units, q.AllocFloats(width))
		one.squares = append(one.squares, q.AllocFloats(width))
	}
	one.xs = append(one.xs, q.AllocFloats(act))
	return one
}

func (s *stage) slotOfPart(p schedule.Part) slot {
	chunk := s.slots[p.Chunk]
	return chunk[p.Micro%len(chunk)]
}

// inputOf is where a part's activations arrive, out where they leave, back where
// the gradient arrives and leaves.
func (s *stage) inputOf(p schedule.Part) device.Floats {
	return s.slotOfPart(p).xs[0]
}

func (s *stage) outputOf(p schedule.Part) device.Floats {
	return s.slotOfPart(p).xs[s.shard.PerChunk()]
}

func (s *stage) gradientOf(p schedule.Part) device.Floats {
	return s.slotOfPart(p).back
}

// views are one layer's parts of a parameter-shaped buffer.
type views struct {
	w1, w2 device.Matrix
	b1, b2 device.Floats
}

func (s *stage) layerViews(buffer device.Floats, layer int) views {
	sh, at := s.shard, s.shard.Layer(layer)
	return views{
		w1: device.Matrix{
			Data: buffer.At(at.W1, sh.Width*sh.Hidden),
			Rows: sh.Width,
			Cols: sh.Hidden,
		},
		w2: device.Matrix{
			Data: buffer.At(at.W2, sh.Width*sh.Hidden),
			Rows: sh.Hidden,
			Cols: sh.Width,
		},
		b1: buffer.At(at.B1, sh.Width),
		b2: buffer.At(at.B2, sh.Hidden),
	}
}

func (s *stage) hiddenMatrix(f device.Floats) device.Matrix {
	return device.Matrix{
		Data: f,
		Rows: s.shard.Hidden,
		Cols: s.shard.Batch,
	}
}

func (s *stage) wideMatrix(f device.Floats) device.Matrix {
	return device.Matrix{
		Data: f,
		Rows: s.shard.Width,
		Cols: s.shard.Batch,
	}
}

// forward runs the part's chunk on in, leaving the answer in out. The first
// product is column-parallel, the second row-parallel with a sum over TP
// (Shoeybi et al. 2019, §3).
func (s *stage) forward(p schedule.Part) {
	sl, sh := s.slotOfPart(p), s.shard
	for i := range sh.PerChunk() {
		w := s.layerViews(s.weight, p.Chunk*sh.PerChunk()+i)
		x := sl.xs[i]
		unit := sl.units[i]
		square := sl.squares[i]
		s.q.Gemm(s.wideMatrix(unit), w.w1, s.hiddenMatrix(x), false)
		s.q.Activate(unit, w.b1, unit, square, sh.Width, sh.Batch)
		s.q.Gemm(s.hiddenMatrix(s.branch), w.w2, s.wideMatrix(square), false)
		s.q.SumFloats(s.tp, s.branch)
		s.q.Join(sl.xs[i+1], x, s.branch, w.b2, sh.Hidden, sh.Batch)
	}
}

// backward turns the gradient of the chunk's answer, in back, into that of its
// input, in place, and adds the gradients of the weights. The first stage
// computes that of its input too, though it is not used: so all stages take
// the same time.
func (s *stage) backward(p schedule.Part) {
	sl, sh := s.slotOfPart(p), s.shard
	for i := sh.PerChunk() - 1; i >= 0; i-- {
		layer := p.Chunk*sh.PerChunk() + i
		w := s.layerViews(s.weight, layer)
		g := s.layerViews(s.grad, layer)
		s.q.Gemm(
			g.w2,
			s.hiddenMatrix(sl.back),
			s.wideMatrix(sl.squares[i]).Transpose(),
			true,
		)
		s.q.Gemm(
			s.wideMatrix(s.inner),
			w.w2.Transpose(),
			s.hiddenMatrix(sl.back),
			false,
		)
		s.q.ActivateBack(
			s.inner,
			sl.units[i],
			g.b1,
			sl.back,
			g.b2,
			sh.Width,
			sh.Hidden,
			sh.Batch,
		)
		s.q.Gemm(
			g.w1,
			s.wideMatrix(s.inner),
			s.hiddenMatrix(sl.xs[i]).Transpose(),
			true,
		)
		s.q.Gemm(
			s.hiddenMatrix(s.branch),
			w.w1.Transpose(),
			s.wideMatrix(s.inner),
			false,
		)
		s.q.SumFloats(s.tp, s.branch)
		s.q.Add(sl.back, s.branch)
	}
	s.q.Spend(s.extraFlops)
}
