package adapter

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

// lay writes an order as falcon_job.h says, for comparison.
func lay(o Rejoin) []int32 {
	v := []int32{0, int32(o.Resume & (1<<31 - 1)), int32(o.Resume >> 31), int32(len(o.MicroBatches))}
	if o.Checkpoint {
		v[0] = 1
	}
	v = append(append(v, o.MicroBatches...), int32(len(o.Moves)))
	for _, to := range slices.Sorted(maps.Keys(o.Moves)) {
		v = append(v, int32(to), int32(o.Moves[to]))
	}
	return v
}

func TestOrdersToRejoinAreRead(t *testing.T) {
	for _, want := range []Rejoin{
		{Resume: 57, MicroBatches: []int32{6, 5, 4, 1}, Moves: map[falcon.Rank]falcon.Rank{5: 1, 7: 3}},
		{Resume: 5<<31 + 9, Moves: map[falcon.Rank]falcon.Rank{0: falcon.FromCheckpoint}},
		{Checkpoint: true, MicroBatches: []int32{2}},
	} {
		got, err := decode(4, lay(want))
		if err != nil ||
			got.Generation != 4 ||
			got.Resume != want.Resume ||
			got.Checkpoint != want.Checkpoint ||
			!slices.Equal(got.MicroBatches, want.MicroBatches) ||
			!maps.Equal(got.Moves, want.Moves) {
			t.Errorf("%+v became %+v, %v", want, got, err)
		}
	}
}

func TestBadOrdersToRejoinAreRefused(t *testing.T) {
	for _, v := range [][]int32{
		nil,
		{0, 1, 0, 0},
		{0, -1, 0, 0, 0},
		{0, 1, 0, 1, 4},
		{0, 1, 0, -1, 0},
		{0, 1, 0, 0, 1, 2},
		{0, 1, 0, 0, -1},
		{0, 1, 0, 0, 1, 2, 2},
		{0, 1, 0, 0, 1, -1, 2},
		{0, 1, 0, 0, 1, 2, -1},
		{0, 1, 0, 0, 2, 1, 2, 1, 3},
	} {
		if o, err := decode(1, v); !errors.Is(err, ErrOrder) {
			t.Errorf("%v was read as %+v, %v", v, o, err)
		}
	}
}

// Whatever lies in the mailbox is refused, or is what it would be written as.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{0, 57, 0, 2, 4, 4, 1, 5, 1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		v := make([]int32, len(raw))
		for i, b := range raw {
			v[i] = int32(int8(b))
		}
		o, err := decode(1, v)
		if err != nil {
			return
		}
		if again, err := decode(1, lay(o)); err != nil ||
			again.Resume != o.Resume ||
			!maps.Equal(again.Moves, o.Moves) {
			t.Fatalf("%v was read as %+v, which reads as %+v, %v", v, o, again, err)
		}
	})
}
