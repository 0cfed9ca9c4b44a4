package model

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
)

// Every rank is held by one process afterwards, tensor-parallel groups stay
// together, and a placement followed by its inverse changes nothing.
func TestBlocksPermuteTheRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := falcon.Layout{
			TP: rapid.IntRange(1, 3).Draw(t, "tp"),
			DP: rapid.IntRange(1, 4).Draw(t, "dp"),
			PP: rapid.IntRange(1, 4).Draw(t, "pp"),
		}
		n := l.DP * l.PP
		var first []int32
		for i := range n {
			first = append(first, int32(i))
		}
		b := Blocks(rapid.Permutation(first).Draw(t, "blocks"))
		if b.Check(l) != nil {
			return // the one that moves nothing
		}
		back := make(Blocks, n)
		for i, to := range b {
			back[to] = int32(i)
		}
		held := map[falcon.Rank]bool{}
		for r := range l.World() {
			to := b.Rank(falcon.Rank(r), l.World())
			held[to] = true
			if l.Coord(to).TP != l.Coord(falcon.Rank(r)).TP {
				t.Fatalf("rank %d becomes %d: another slice", r, to)
			}
			if back.Rank(to, l.World()) != falcon.Rank(r) {
				t.Fatalf("rank %d becomes %d and does not come back", r, to)
			}
		}
		if len(held) != l.World() {
			t.Fatalf("%v: %d of %d ranks are held", b, len(held), l.World())
		}
	})
}

func TestBlocksAreChecked(t *testing.T) {
	l := falcon.Layout{TP: 2, DP: 2, PP: 2}
	if err := (Blocks{1, 0}).Check(l); err != nil {
		t.Errorf("a good placement was refused: %v", err)
	}
	for _, bad := range []Blocks{
		nil,
		{0},
		{0, 1},
		{0, 0},
		{0, 2},
		{-1, 0},
		{1, 2, 0},
		{1, 0, 2, 3, 4, 5, 6, 7},
	} {
		if err := bad.Check(l); !errors.Is(err, ErrBlocks) {
			t.Errorf("%v was not refused: %v", bad, err)
		}
	}
}
