package mitigate

import (
	"errors"
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

// A change of places is ordered in nodes where it can be, else in tensor-parallel groups; what
// tears these apart is refused.
func TestBlocksTo(t *testing.T) {
	now := falcon.Placement{"a.g0", "a.g1", "a.g2", "a.g3", "b.g0", "b.g1", "b.g2", "b.g3"}
	pick := func(order ...int) falcon.Placement {
		var out falcon.Placement
		for _, r := range order {
			out = append(out, now[r])
		}
		return out
	}
	for _, tt := range []struct {
		name  string
		then  falcon.Placement
		group int
		want  []int32
	}{
		{"nodes", pick(4, 5, 6, 7, 0, 1, 2, 3), 2, []int32{1, 0}},
		{"groups of two", pick(0, 1, 4, 5, 2, 3, 6, 7), 2, []int32{0, 2, 1, 3}},
		{"single ranks", pick(0, 1, 2, 4, 3, 5, 6, 7), 1, []int32{0, 1, 2, 4, 3, 5, 6, 7}},
		{"torn apart", pick(0, 1, 2, 4, 3, 5, 6, 7), 2, nil},
		{"another device", append(pick(0, 1, 2, 3, 4, 5, 6), "c.g0"), 1, nil},
	} {
		got, err := blocksTo(now, tt.then, tt.group)
		if !slices.Equal(got, tt.want) || (tt.want == nil) != errors.Is(err, errNoSwap) {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
		if tt.want == nil {
			continue
		}
		back, err := blocksTo(tt.then, now, tt.group)
		for b, to := range got {
			if err != nil || back[to] != int32(b) {
				t.Errorf("%s: back %v, %v", tt.name, back, err)
			}
		}
	}
}
