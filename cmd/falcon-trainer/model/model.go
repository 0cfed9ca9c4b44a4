// Package model is what the trainer trains, apart from the arithmetic: the
// shape of a residual MLP, which part of it each rank holds, its first
// weights, its data, and the share of the global batch of each replica.
//
// It guarantees that weights and samples depend on (seed, logical position)
// alone: any layout starts from the same full matrices and sees the same
// samples. It is pure: no goroutines, no clocks, no I/O.
package model

import (
	"errors"
	"fmt"

	"github.com/failslow/falcon"
)

// ErrShape is wrapped by every error about a model that can't be laid out.
var ErrShape = errors.New("trainer: bad model")

// Shape is the whole model. One layer is y = x + W2·relu(W1·x + b1)² + b2
// (the squared ReLU of So et al. 2021: smooth, and cheap on a CPU), with W1
// FFN×Hidden and W2 Hidden×FFN.
type Shape struct {
	Hidden int // width of the residual stream
	FFN    int // width between the two matrices
	Layers int // of the whole model
	Batch  int // samples per micro-batch
	Chunks int // virtual stages on each pipeline stage; 0 and 1 are one
}

// VirtualStages is how many parts of the model each pipeline stage holds, at
// least 1.
func (s Shape) VirtualStages() int { return max(s.Chunks, 1) }

// Validate reports why the shape can't be split over l.
func (s Shape) Validate(l falcon.Layout) error {
	if err := l.Validate(); err != nil {
		return err
	}
	if s.Hidden < 4 || s.FFN < 1 || s.Layers < 1 || s.Batch < 1 {
		return fmt.Errorf("%w: hidden %d (at least 4), ffn %d, layers %d and batch %d must be positive",
			ErrShape, s.Hidden, s.FFN, s.Layers, s.Batch)
	}
	if s.FFN%l.TP != 0 {
		return fmt.Errorf("%w: ffn %d can't be split over tp %d; choose a multiple of it",
			ErrShape, s.FFN, l.TP)
	}
	if s.Chunks < 0 || s.Chunks > 1 && l.PP < 2 {
		return fmt.Errorf(
			"%w: %d virtual stages with pp %d; interleaving needs a pipeline of at least 2 stages",
			ErrShape, s.Chunks, l.PP,
		)
	}
	if n := l.PP * s.VirtualStages(); s.Layers%n != 0 {
		return fmt.Errorf(
			"%w: %d layers can't be split over pp %d with %d virtual stages each; choose a multiple of %d",
			ErrShape, s.Layers, l.PP, s.VirtualStages(), n,
		)
	}
	return nil
}

// Shard is the part of the model that one rank holds: the layers of its
// stage, and of each its slice of FFN (Megatron's split: W1 by rows of
// output, W2 by columns of input; biases of W2 are held by all). With virtual
// stages the layers lie in VirtualStages runs of PerChunk each, one stage's
// after those of all stages before it, round after round (Narayanan et al.
// 2021, §2.2).
type Shard struct {
	Shape
	First int // first layer of the first run
	Count int // layers held
	Step  int // from a run's first layer to the next run's
	Slice int // which slice of FFN
	Width int // FFN units per slice
}

// NewShard is the part of rank r; shape and layout must have been validated.
func NewShard(s Shape, l falcon.Layout, r falcon.Rank) Shard {
	c := l.Coord(r)
	count := s.Layers / l.PP
	run := count / s.VirtualStages()
	return Shard{
		Shape: s,
		First: c.PP * run,
		Count: count,
		Step:  l.PP * run,
		Slice: c.TP,
		Width: s.FFN / l.TP,
	}
}

// PerChunk is the number of layers in each run.
func (s Shard) PerChunk() int { return s.Count / s.VirtualStages() }

// Global is where the shard's layer i, counted from 0 within the shard, is
// in the whole model.
func (s Shard) Global(i int) int {
	run := s.PerChunk()
	return s.First + i/run*s.Step + i%run
}

// Offsets locates one layer's tensors in the flat parameter buffer, in
// elements. Matrices are column-major, as cuBLAS has them: W1 Width×Hidden,
// W2 Hidden×Width.
type Offsets struct {
	W1, B1, W2, B2 int
}

// Layer locates the shard's layer i, counted from 0 within the shard.
func (s Shard) Layer(i int) Offsets {
	base := i * s.layerParams()
	b1 := base + s.Width*s.Hidden
	w2 := b1 + s.Width
	return Offsets{
		W1: base,
		B1: b1,
		W2: w2,
		B2: w2 + s.Width*s.Hidden,
	}
}

func (s Shard) layerParams() int {
	return 2*s.Width*s.Hidden + s.Width + s.Hidden
}

// Params is the number of parameters held.
func (s Shard) Params() int { return s.Count * s.layerParams() }

// ActivationSize is the number of elements between layers and stages for one
// micro-batch: Hidden×Batch.
func (s Shard) ActivationSize() int { return s.Hidden * s.Batch }

// ForwardFlops counts the multiplications and additions of the matrix
// products in one micro-batch's forward pass on this shard; the backward pass
// takes exactly twice as many.
func (s Shard) ForwardFlops() float64 {
	return float64(s.Count) * 2 * 2 * float64(s.Batch) * float64(s.Hidden) * float64(s.Width)
}

// Fill writes the first weights of the shard into dst (Params elements).
// Biases start at zero.
func (s Shard) Fill(dst []float32, seed uint64) {
	clear(dst[:s.Params()])
	for i := range s.Count {
		s.fillLayer(
			dst,
			s.Layer(i),
			newSource(seed, streamWeights, uint64(s.Global(i))),
		)
	}
}

// fillLayer addresses every weight by its place in the whole matrix, so that
// slices of any width agree. W1 keeps the variance of the residual stream;
// W2 starts small, so that the network starts near the identity.
func (s Shard) fillLayer(dst []float32, at Offsets, src source) {
	const quiet = 0.3
	scale1, scale2 := 1/squareRoot(s.Hidden), quiet/squareRoot(s.FFN)
	for w := range s.Width {
		unit := s.Slice*s.Width + w
		for h := range s.Hidden {
			place := uint64(unit*s.Hidden + h)
			dst[at.W1+h*s.Width+w] = scale1 * src.nextNormal(2*place)
			dst[at.W2+w*s.Hidden+h] = scale2 * src.nextNormal(2*place+1)
		}
	}
}
