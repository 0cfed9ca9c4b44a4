package jobtest

import "slices"

// Kernels is what a tracer of one rank's kernels and code sections records of one
// iteration, summed over its passes. The optimizer's step is not part of it.
type Kernels struct {
	ForwardMs, BackwardMs float64 // durations of the compute kernels, without gaps between them
	LaunchMs              float64 // host time of the forward passes: to enqueue their kernels
	// ForwardSpanMs is the device time between an event before and one behind each
	// forward pass: with gaps where the host is late, and with the waits for the
	// rank's tensor-parallel peers.
	ForwardSpanMs float64
}

// add takes in a compute operation of a pass.
func (k *Kernels) add(o *op, busy, launch, span float64) {
	switch {
	case !o.pass:
	case o.back:
		k.BackwardMs += busy
	default:
		k.ForwardMs += busy
		k.LaunchMs += launch
		k.ForwardSpanMs += span
	}
}

// Kernels are those of the newest iteration, by rank.
func (j *Job) Kernels() []Kernels {
	return slices.Clone(j.playing.traces)
}
