package model

import (
	"errors"
	"fmt"

	"github.com/failslow/falcon"
)

// ErrBlocks is wrapped by every refusal of a placement.
var ErrBlocks = errors.New("trainer: bad placement")

// Blocks is a placement: the ranks of a job fall into len(Blocks) blocks of
// equal size, and the processes that hold block b take block Blocks[b] over,
// each keeping its place in the block.
type Blocks []int32

// Check reports why ranks laid out as l can't change places so: the blocks must
// be a permutation that moves something, of equal size, and none may cut a
// tensor-parallel group. It depends on its arguments alone, so that all ranks
// refuse alike.
func (b Blocks) Check(l falcon.Layout) error {
	world := l.World()
	if len(b) == 0 || world%len(b) != 0 {
		return fmt.Errorf("%w: %d blocks over %d ranks; give a number that divides them",
			ErrBlocks, len(b), world)
	}
	if size := world / len(b); size%l.TP != 0 {
		return fmt.Errorf(
			"%w: blocks of %d ranks would cut tensor-parallel groups of %d; give blocks of a multiple",
			ErrBlocks, size, l.TP,
		)
	}
	taken := make([]bool, len(b))
	moves := false
	for i, to := range b {
		if to < 0 || int(to) >= len(b) || taken[to] {
			return fmt.Errorf("%w: block %d would go to %d, which is taken or not one of %d; give each once",
				ErrBlocks, i, to, len(b))
		}
		taken[to] = true
		moves = moves || int(to) != i
	}
	if !moves {
		return fmt.Errorf("%w: it moves no rank", ErrBlocks)
	}
	return nil
}

// Rank is what the process that holds r, of world ranks, is to hold.
func (b Blocks) Rank(r falcon.Rank, world int) falcon.Rank {
	size := world / len(b)
	return falcon.Rank(int(b[int(r)/size])*size + int(r)%size)
}
