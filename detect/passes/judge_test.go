package passes

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
)

func link(from, to int, class falcon.LinkClass, ms float64) falcon.LinkResult {
	return falcon.LinkResult{
		From: falcon.Rank(from), To: falcon.Rank(to), FromDevice: falcon.NewDevice("n", from), ToDevice: falcon.NewDevice("n", to),
		Class: class, Bytes: 1 << 20, Ms: ms,
	}
}

func TestOneDirectionOfARing(t *testing.T) {
	var in []falcon.LinkResult
	for i := range 4 {
		in = append(in, link(i, (i+1)%4, falcon.LinkSameRail, 10), link((i+1)%4, i, falcon.LinkSameRail, 10))
	}
	in[2].Ms = 12.1
	in[3].Ms = 12
	in[5].Err = "aborted"
	in[5].Ms = 99
	Judge(in, nil)
	for i, l := range in {
		if l.Slow != (i == 2) {
			t.Errorf("%d: %+v", i, l)
		}
	}
	if in[2].BaseMs != 10 || in[2].Basis != "class" || in[5].Basis != "" {
		t.Errorf("%+v %+v", in[2], in[5])
	}
}

func TestSmallClassesHaveTheirOwnPast(t *testing.T) {
	in := []falcon.LinkResult{
		link(0, 1, falcon.LinkIntraNode, 2), link(1, 0, falcon.LinkIntraNode, 2),
		link(2, 3, falcon.LinkCrossRail, 20), link(3, 2, falcon.LinkCrossRail, 20),
	}
	own := func(from, _ falcon.Device, bytes int64) (float64, bool) { return 10, from == "n.g2" && bytes == 1<<20 }
	Judge(in, own)
	if !in[2].Slow || in[2].Basis != "own" || in[2].Ratio != 2 {
		t.Errorf("known link: %+v", in[2])
	}
	for _, i := range []int{0, 1, 3} {
		if in[i].Slow || in[i].Basis != "" || in[i].BaseMs != 0 {
			t.Errorf("nothing to compare with: %+v", in[i])
		}
	}
}

func TestClass(t *testing.T) {
	for _, c := range []struct {
		a, b falcon.Device
		x, y falcon.NIC
		want falcon.LinkClass
	}{
		{"n0.g0", "n0.g1", "n0.nic0", "n0.nic1", falcon.LinkIntraNode},
		{"n0.g0", "n1.g0", "n0.nic0", "n1.nic0", falcon.LinkSameRail},
		{"n0.g0", "n1.g1", "n0.nic0", "n1.nic1", falcon.LinkCrossRail},
		{"n0.g0", "n1.g1", "", "n1.nic1", falcon.LinkSameRail},
	} {
		if got := Class(c.a, c.b, c.x, c.y); got != c.want {
			t.Errorf("%v: %s", c, got)
		}
	}
}

func TestGEMM(t *testing.T) {
	for _, c := range []struct {
		ms   []float64
		slow []bool
	}{
		{nil, nil},
		{[]float64{5}, []bool{false}},
		{[]float64{5, 7}, []bool{false, true}},
		{[]float64{5, 5, 5, 10}, []bool{false, false, false, true}},
		{[]float64{5, 5, 6, 0}, []bool{false, false, false, false}},
	} {
		in := make([]falcon.GEMMResult, len(c.ms))
		for i, ms := range c.ms {
			in[i].Ms = ms
		}
		JudgeGEMM(in)
		for i, g := range in {
			if g.Slow != c.slow[i] {
				t.Errorf("%v: %+v", c.ms, g)
			}
		}
	}
}

// middle is the second, plain median: as many are below as above.
func middle(in []float64) float64 {
	lo, hi := math.Inf(-1), math.Inf(1)
	for _, x := range in {
		below, above := 0, 0
		for _, y := range in {
			if y < x {
				below++
			}
			if y > x {
				above++
			}
		}
		if 2*below <= len(in) && 2*above <= len(in) {
			lo, hi = max(lo, x), min(hi, x)
		}
	}
	return (lo + hi) / 2
}

func TestMedian(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(rapid.Map(rapid.IntRange(1, 20), func(i int) float64 { return float64(i) }), 1, 30).Draw(t, "values")
		was := slices.Clone(in)
		if got, want := falcon.Median(slices.Clone(in)), middle(in); got != want {
			t.Fatalf("median of %v is %v, not %v", in, want, got)
		}
		if !slices.Equal(in, was) {
			t.Fatal("the input was changed")
		}
	})
}
