// Package volume says how much each rank of a hybrid-parallel job sends in one iteration,
// dimension by dimension, from the shape of its model (FALCON, appendix 9.2).
//
// It guarantees plain arithmetic on the shape: no measurement, no state, no I/O. Payload is what
// a call is given, sent what a rank puts on its links for it by a ring. It must not be taken for
// what a job does: frameworks fuse, shard and overlap; a profile says what they did.
package volume

import (
	"errors"
	"fmt"
)

// ErrShape is wrapped by every error about a model or its split.
var ErrShape = errors.New("volume: bad shape")

// Job is a transformer and how it is split. Sizes are in elements unless they say bytes.
type Job struct {
	TP, DP, PP   int
	EP           int // experts' ranks, 1 = none
	Layers       int
	Hidden       int // h
	Heads        int // n_h, 0 = Hidden / HeadSize
	HeadSize     int // d, 0 = 128
	Vocabulary   int
	Context      int // n_ctx, tokens of a sequence
	MicroBatch   int // b, sequences
	MicroBatches int // m, per replica
	TopK         int // experts of a token, 0 = 1
	MoELayers    int // layers with experts

	ActivationBytes int // of an element, 0 = 2
	GradientBytes   int // of an element, 0 = 4
}

// Flow is what one rank sends in one dimension.
type Flow struct {
	Dimension string
	Op        string
	Calls     int     // per iteration; 0 = as the framework buckets them
	Payload   float64 // bytes of all calls
	Sent      float64 // bytes on the rank's links: of a ring 2 (n-1)/n of an all-reduce
}

// Result is the volumes of one iteration.
type Result struct {
	Parameters float64 // of the model (equation 6)
	PerGPU     float64 // N / (P T) (equation 9)
	Flows      []Flow
}

func (j Job) withDefaults() Job {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&j.TP, 1)
	def(&j.DP, 1)
	def(&j.PP, 1)
	def(&j.EP, 1)
	def(&j.HeadSize, min(128, max(1, j.Hidden)))
	def(&j.Heads, j.Hidden/j.HeadSize)
	def(&j.TopK, 1)
	def(&j.ActivationBytes, 2)
	def(&j.GradientBytes, 4)
	return j
}

func (j Job) validate() error {
	for _, v := range []struct {
		name  string
		value int
		least int
	}{
		{"tp", j.TP, 1},
		{"dp", j.DP, 1},
		{"pp", j.PP, 1},
		{"ep", j.EP, 1},
		{"layers", j.Layers, 1},
		{"hidden", j.Hidden, 1},
		{"heads", j.Heads, 1},
		{"head_size", j.HeadSize, 1},
		{"vocabulary", j.Vocabulary, 0},
		{"context", j.Context, 1},
		{"micro_batch", j.MicroBatch, 1},
		{"micro_batches", j.MicroBatches, 1},
		{"top_k", j.TopK, 1},
		{"moe_layers", j.MoELayers, 0},
		{"activation_bytes", j.ActivationBytes, 1},
		{"gradient_bytes", j.GradientBytes, 1},
	} {
		if v.value < v.least || v.value > 1<<30 {
			return fmt.Errorf("%w: %s is %d; give %d to %d", ErrShape, v.name, v.value, v.least, 1<<30)
		}
	}
	switch {
	case j.Layers%j.PP != 0:
		return fmt.Errorf("%w: %d layers over %d stages; give a multiple", ErrShape, j.Layers, j.PP)
	case j.MoELayers > j.Layers:
		return fmt.Errorf("%w: moe_layers is %d of %d layers", ErrShape, j.MoELayers, j.Layers)
	}
	return nil
}

// parameters is equation 6: word and position embeddings, attention, feed-forward layers.
func (j Job) parameters() float64 {
	h, l := float64(j.Hidden), float64(j.Layers)
	return h * (float64(j.Vocabulary) + float64(j.Context) + l*(4*float64(j.HeadSize)*float64(j.Heads)+8*h+5))
}

// Volumes are the bytes of one iteration, for a rank of an inner stage.
func Volumes(j Job) (Result, error) {
	j = j.withDefaults()
	if err := j.validate(); err != nil {
		return Result{}, err
	}
	out := Result{Parameters: j.parameters()}
	out.PerGPU = out.Parameters / float64(j.TP*j.PP)
	tokens := float64(j.MicroBatch) * float64(j.Context)
	activation := tokens * float64(j.Hidden) * float64(j.ActivationBytes) // of one micro-batch
	m, stage := float64(j.MicroBatches), j.Layers/j.PP
	if j.TP > 1 { // two all-reduces of a layer forward and two backward: equation 8
		calls := 4 * stage * j.MicroBatches
		out.add("tp", "allreduce", calls, float64(calls)*activation, ringShare(j.TP))
	}
	if j.DP > 1 { // equation 9
		out.add("dp", "allreduce", 0, out.PerGPU*float64(j.GradientBytes), ringShare(j.DP))
	}
	if j.PP > 1 { // equation 10, forward and backward
		out.add("pp", "send", 2*j.MicroBatches, 2*m*activation, 1)
	}
	if j.EP > 1 && j.MoELayers > 0 { // tokens to their experts and back, forward and backward
		calls := 4 * j.MoELayers / j.PP * j.MicroBatches
		out.add("ep", "alltoall", calls, float64(calls)*activation*float64(j.TopK), float64(j.EP-1)/float64(j.EP))
	}
	return out, nil
}

// ringShare is what a rank of a ring of n sends of an all-reduce's payload.
func ringShare(n int) float64 { return 2 * float64(n-1) / float64(n) }

func (r *Result) add(dimension, op string, calls int, payload, share float64) {
	r.Flows = append(r.Flows, Flow{Dimension: dimension, Op: op, Calls: calls, Payload: payload, Sent: payload * share})
}
