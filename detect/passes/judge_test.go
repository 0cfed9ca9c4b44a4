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
		From:       falcon.Rank(from),
		To:         falcon.Rank(to),
		FromDevice: falcon.NewDevice("n", from),
		ToDevice:   falcon.NewDevice("n", to),
		Class:      class,
		Bytes:      1 << 20,
		Ms:         ms,
	}
}

func TestOneDirectionOfARing(t *testing.T) {
	var in []falcon.LinkResult
	for i := range 4 {
		in = append(in,
			link(i, (i+1)%4, falcon.LinkSameRail, 10),
			link((i+1)%4, i, falcon.LinkSameRail, 10),
		)
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
	own := func(from, _ falcon.Device, bytes int64) Earlier {
		return Earlier{
			Ms:    10,
			From:  "VAL-0001",
			Fine:  true,
			Known: from == "n.g2" && bytes == 1<<20,
		}
	}
	Judge(in, own)
	if !in[2].Slow ||
		in[2].Basis != "own" ||
		in[2].Ratio != 2 ||
		in[2].BaseFrom != "VAL-0001" ||
		in[2].Unjudged != "" {
		t.Errorf("known link: %+v", in[2])
	}
	for _, i := range []int{0, 1, 3} {
		if in[i].Slow ||
			in[i].Basis != "" ||
			in[i].BaseMs != 0 ||
			in[i].Unjudged != falcon.NothingToCompare {
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
		{[]float64{5, 7}, []bool{false, false}}, // two show little of how much GPUs differ by chance
		{[]float64{5, 8}, []bool{false, true}},
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

// Times of 16 bit numbers do not compare with those of 32 bit ones, as which the result of an
// older hook counts.
func TestGEMMOfTwoPrecisions(t *testing.T) {
	in := []falcon.GEMMResult{
		{Ms: 1, Bits: 16},
		{Ms: 1, Bits: 16},
		{Ms: 1, Bits: 16},
		{Ms: 2, Bits: 16},
		{Ms: 8, Bits: 32},
		{Ms: 8},
		{Ms: 8, Bits: 32},
	}
	JudgeGEMM(in)
	for i, g := range in {
		if g.Slow != (i == 3) ||
			g.Unjudged != "" ||
			g.MedianMs != map[bool]float64{true: 1, false: 8}[i < 4] {
			t.Errorf("%d: %+v", i, g)
		}
	}
}

// middle is the second, plain median: as many are below as above.
func middle(in []float64) float64 {
	lo := math.Inf(-1)
	hi := math.Inf(1)
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
			lo = max(lo, x)
			hi = min(hi, x)
		}
	}
	return (lo + hi) / 2
}

func TestMedian(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(
			rapid.Map(rapid.IntRange(1, 20), func(i int) float64 { return float64(i) }),
			1,
			30,
		).Draw(t, "values")
		was := slices.Clone(in)
		if got, want := falcon.Median(slices.Clone(in)), middle(in); got != want {
			t.Fatalf("median of %v is %v, not %v", in, want, got)
		}
		if !slices.Equal(in, was) {
			t.Fatal("the input was changed")
		}
	})
}

// What does not show that something is healthy does not say so: one path, two,
// paths that all share one pair of nodes, times below the floor, and a class of
// which one member is much faster than the others.
func TestWhatIsNotJudged(t *testing.T) {
	rail := func(a, b string, rank int, ms float64) falcon.LinkResult {
		return falcon.LinkResult{
			From:       falcon.Rank(rank),
			To:         falcon.Rank(rank + 100),
			FromDevice: falcon.Device(a),
			ToDevice:   falcon.Device(b),
			Class:      falcon.LinkSameRail,
			Bytes:      1 << 20,
			Ms:         ms,
			BestMs:     ms,
		}
	}
	for name, in := range map[string][]falcon.LinkResult{
		"one link":  {rail("n0.g0", "n1.g0", 0, 10), rail("n1.g0", "n0.g0", 0, 10)},
		"two links": {rail("n0.g0", "n1.g0", 0, 10), rail("n1.g0", "n2.g0", 1, 10)},
		"four rails of one": {
			rail("n0.g0", "n1.g0", 0, 10),
			rail("n0.g1", "n1.g1", 1, 10),
			rail("n0.g2", "n1.g2", 2, 10),
			rail("n0.g3", "n1.g3", 3, 10),
		},
		"most of four slow": {
			rail("n0.g0", "n1.g0", 0, 50),
			rail("n1.g0", "n2.g0", 1, 50),
			rail("n2.g0", "n3.g0", 2, 50),
			rail("n0.g0", "n3.g0", 3, 10),
		},
		"microseconds": {
			rail("n0.g0", "n1.g0", 0, 0.02),
			rail("n1.g0", "n2.g0", 1, 0.15),
			rail("n2.g0", "n3.g0", 2, 0.03),
			rail("n0.g0", "n3.g0", 3, 0.03),
		},
		"repeats that differ": {
			rail("n0.g0", "n1.g0", 0, 30),
			rail("n1.g0", "n2.g0", 1, 10),
			rail("n2.g0", "n3.g0", 2, 10),
			rail("n0.g0", "n3.g0", 3, 10),
		},
	} {
		if name == "repeats that differ" {
			in[0].BestMs = 10
		}
		Judge(in, nil)
		for i, l := range in {
			fine := name == "most of four slow" && i == 3 || name == "repeats that differ" && i > 0
			if l.Slow || fine != (l.Unjudged == "") {
				t.Errorf("%s: %d: slow %v, unjudged %q", name, i, l.Slow, l.Unjudged)
			}
		}
	}
}

// An earlier time that was not judged may have been slow: it accuses, it does not clear.
func TestAnEarlierTimeThatWasNotJudged(t *testing.T) {
	for _, fine := range []bool{false, true} {
		in := []falcon.LinkResult{link(0, 1, falcon.LinkSameRail, 10), link(1, 0, falcon.LinkSameRail, 50)}
		Judge(in, func(_, _ falcon.Device, _ int64) Earlier {
			return Earlier{
				Ms:    10,
				From:  "VAL-0001",
				Fine:  fine,
				Known: true,
			}
		})
		if in[0].Slow || (in[0].Unjudged == "") != fine {
			t.Errorf("fine %v: as fast as then: %+v", fine, in[0])
		}
		if !in[1].Slow || in[1].Ratio != 5 || in[1].Basis != "own" {
			t.Errorf("fine %v: slower than then: %+v", fine, in[1])
		}
	}
}

// Where hosts are busier than in an earlier test, all paths within nodes are slower
// than then: that accuses none of them, whatever the noise of one.
func TestBusierHostsAreNoSlowPath(t *testing.T) {
	var in []falcon.LinkResult
	for i, ms := range []float64{12.75, 19.8, 43, 11.1} { // of n0 to n3, in a lab on a busy machine
		l := link(2*i, 2*i+1, falcon.LinkIntraNode, ms)
		l.BestMs = min(ms, 13)
		in = append(in, l)
	}
	in[1].BestMs = 19
	Judge(in, func(_, _ falcon.Device, _ int64) Earlier {
		return Earlier{
			Ms:    5.6,
			From:  "VAL-0005",
			Fine:  true,
			Known: true,
		}
	})
	for i, l := range in {
		if l.Slow {
			t.Errorf("%d: %+v", i, l)
		}
	}
}
