package falcon_test

import (
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

func TestDeal(t *testing.T) {
	for _, c := range []struct {
		total, replicas, unit int
		want                  []int32
	}{
		{32, 4, 1, []int32{8, 8, 8, 8}},
		{32, 3, 1, []int32{11, 11, 10}},
		{16, 3, 2, []int32{6, 6, 4}},
		{3, 3, 1, []int32{1, 1, 1}},
	} {
		got := falcon.Deal(c.total, c.replicas, c.unit)
		if !slices.Equal(got, c.want) {
			t.Errorf("%d micro-batches in units of %d over %d replicas: %v, want %v",
				c.total, c.unit, c.replicas, got, c.want)
		}
	}
}

// Ranks move up, and keep tensor coordinate, stage and device.
func TestKeepReplicas(t *testing.T) {
	l := falcon.Layout{TP: 2, DP: 3, PP: 2}
	p := falcon.Placement{
		"a.g0", "a.g1", "b.g0", "b.g1", "c.g0", "c.g1", "d.g0", "d.g1", "e.g0", "e.g1", "f.g0",
		"f.g1",
	}
	kept := []int{0, 2}
	now, on := l.KeepReplicas(p, kept)
	if now != (falcon.Layout{TP: 2, DP: 2, PP: 2}) || len(on) != now.World() {
		t.Fatalf("%v on %v", now, on)
	}
	for r, d := range on {
		at := now.Coord(falcon.Rank(r))
		at.DP = kept[at.DP]
		if home := p[l.RankOf(at)]; d != home {
			t.Errorf("rank %d is on %s, not on %s", r, d, home)
		}
	}
}
