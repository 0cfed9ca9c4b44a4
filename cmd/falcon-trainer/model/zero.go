package model

import "fmt"

// Slices describes how the optimizer's state of one stage lies on its data-parallel
// ranks. Plain data parallelism has one slice, which everybody holds. ZeRO
// stage 1 with N instances has DP/N of them: each instance, DP/N ranks in a
// row, holds every slice once (Megatron's distributed optimizer instances).
type Slices struct {
	DP        int
	Instances int // 0 = not sharded
}

// Validate reports why the state can't be spread so.
func (s Slices) Validate() error {
	if s.Instances < 0 ||
		s.Instances > s.DP ||
		s.Instances > 0 && s.DP%s.Instances != 0 {
		return fmt.Errorf("%w: %d optimizer instances over %d replicas; give a divisor of %d",
			ErrShape, s.Instances, s.DP, s.DP)
	}
	return nil
}

// Count is the number of different slices.
func (s Slices) Count() int {
	if s.Instances == 0 {
		return 1
	}
	return s.DP / s.Instances
}

// Sharded reports whether a rank holds less than the whole.
func (s Slices) Sharded() bool { return s.Count() > 1 }

// Of is the slice that data-parallel rank dp holds; the others that hold it
// are its replicas.
func (s Slices) Of(dp int) int { return dp % s.Count() }

// Instance lists the data-parallel ranks that hold the whole between them,
// dp's own among them, in the order of their slices.
func (s Slices) Instance(dp int) []int {
	first := dp - s.Of(dp)
	out := make([]int, s.Count())
	for i := range out {
		out[i] = first + i
	}
	return out
}
