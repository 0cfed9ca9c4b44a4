package model

import (
	"errors"
	"fmt"
	"slices"
)

// ErrSplit is wrapped by every refusal of a new split of the global batch.
var ErrSplit = errors.New("trainer: bad micro-batches")

// Split is the number of micro-batches of each data-parallel replica in one
// iteration. Their sum is fixed over the job's life: the global batch.
type Split []int32

// Even gives every replica the same number.
func Even(replicas, microBatches int) Split {
	return slices.Repeat(Split{int32(microBatches)}, replicas)
}

// Total is the number of micro-batches of the global batch.
func (s Split) Total() int {
	n := 0
	for _, m := range s {
		n += int(m)
	}
	return n
}

// First is the first micro-batch of the global batch that replica takes;
// replicas take consecutive ones.
func (s Split) First(replica int) int { return s[:replica].Total() }

// Check reports why next can't replace s where every count must be a multiple
// of unit. It depends on its arguments alone, so that all ranks refuse alike.
func (s Split) Check(next Split, unit int) error {
	if len(next) != len(s) {
		return fmt.Errorf("%w: %d counts for %d replicas", ErrSplit, len(next), len(s))
	}
	for i, m := range next {
		if m < 1 {
			return fmt.Errorf("%w: replica %d would get %d, the least is 1", ErrSplit, i, m)
		}
		if int(m)%unit != 0 {
			return fmt.Errorf("%w: replica %d would get %d, interleaved stages need a multiple of %d",
				ErrSplit, i, m, unit)
		}
	}
	if next.Total() != s.Total() {
		return fmt.Errorf("%w: they sum up to %d, the global batch has %d", ErrSplit, next.Total(), s.Total())
	}
	return nil
}
