package cost

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
)

// job is a model of a layout whose nodes hold size ranks each, and its placement.
func job(l falcon.Layout, size int) (Model, falcon.Placement) {
	m := Model{
		Layout: l,
		Slow:   map[falcon.Device]float64{},
		PPMB:   2,
		TPMB:   3,
		RestMs: 5,
		Links: Links{
			IntraMBs:  5000,
			InterMBs:  500,
			LatencyMs: 0.25,
			Ratio:     map[falcon.Link]float64{},
		},
	}
	for s := range l.PP {
		m.Work = append(m.Work, Stage{
			ForwardMs:  10 + float64(s%2),
			BackwardMs: 20 + 2*float64(s%2),
		})
		m.DPMB = append(m.DPMB, 40)
	}
	var p falcon.Placement
	for i := range l.World() {
		p = append(p, falcon.NewDevice(falcon.Node(fmt.Sprintf("n%d", i/size)), i%size))
	}
	return m, p
}

func even(dp, m int) []int32 {
	return slices.Repeat([]int32{int32(m)}, dp)
}

// By hand: two replicas of two stages, one micro-batch, one rank a node.
func TestIterationByHand(t *testing.T) {
	m, p := job(falcon.Layout{TP: 1, DP: 2, PP: 2}, 1)
	m.Slow[p[1]] = 2                              // replica 1, stage 0
	m.Links.Ratio[falcon.NewLink("n2", "n3")] = 3 // the ring of stage 1
	got := m.Iteration(p, even(2, 1))
	hop := 2./500*1e3 + 0.25                 // 4.25 ms
	ring := 2 * (40. / 500 * 1e3 / 2 * 1)    // 80 ms, and two steps of latency
	slowRing := 2*(40./500*1e3/2*3) + 2*0.25 // 240.5
	// of replica 1; the last stage sends its gradient
	end0 := 20 + hop + 11 + 22 + hop + 40
	end1 := 20 + hop + 11 + 22 + hop
	want := Prediction{
		RestMs:     5,
		PipelineMs: end0,
		StageDPMs:  []float64{ring + 0.5, slowRing},
		ReplicaMs:  []float64{10 + hop + 33 + hop + slowRing, max(end0+ring+0.5, end1+slowRing)},
	}
	want.IterationMs = want.ReplicaMs[1] + 5
	want.DPMs = want.ReplicaMs[1] - end0
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"iteration", got.IterationMs, want.IterationMs},
		{"pipeline", got.PipelineMs, want.PipelineMs},
		{"sum", got.DPMs, want.DPMs},
		{"replica 0", got.ReplicaMs[0], want.ReplicaMs[0]},
		{"replica 1", got.ReplicaMs[1], want.ReplicaMs[1]},
		{"ring 0", got.StageDPMs[0], want.StageDPMs[0]},
		{"ring 1", got.StageDPMs[1], want.StageDPMs[1]},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s: %.4f ms, want %.4f", c.what, c.got, c.want)
		}
	}
}

// drawn is a job of rapid's choice.
func drawn(t *rapid.T) (Model, falcon.Placement, []int32) {
	l := falcon.Layout{
		TP: rapid.IntRange(1, 2).Draw(t, "tp"),
		DP: rapid.IntRange(1, 4).Draw(t, "dp"),
		PP: rapid.IntRange(1, 4).Draw(t, "pp"),
	}
	m, p := job(l, l.TP)
	for range rapid.IntRange(0, 3).Draw(t, "slow") {
		m.Slow[rapid.SampledFrom(p).Draw(t, "device")] = rapid.Float64Range(1, 4).Draw(t, "factor")
	}
	for range rapid.IntRange(0, 3).Draw(t, "links") {
		a := rapid.SampledFrom(p).Draw(t, "from").Node()
		b := rapid.SampledFrom(p).Draw(t, "to").Node()
		m.Links.Ratio[falcon.NewLink(a, b)] = rapid.Float64Range(1, 9).Draw(t, "ratio")
	}
	var micro []int32
	for range l.DP {
		micro = append(micro, int32(rapid.IntRange(1, 9).Draw(t, "micro")))
	}
	return m, p, micro
}

func TestIterationKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, p, micro := drawn(t)
		got := m.Iteration(p, micro)
		for r, d := range p {
			c := m.Layout.Coord(falcon.Rank(r))
			least := m.Work[c.PP].Ms()*max(1, m.Slow[d])*float64(micro[c.DP]) + m.RestMs
			if got.IterationMs < least-1e-9 {
				t.Fatalf("%.3f ms, but rank %d works %.3f ms", got.IterationMs, r, least)
			}
		}
		curves := m.Curves(p, 9)
		worst := 0.0
		for d, c := range curves {
			if !slices.IsSorted(c) {
				t.Fatalf("replica %d: %v decreases", d, c)
			}
			worst = max(worst, c[micro[d]])
		}
		if math.Abs(worst+m.RestMs-got.IterationMs) > 1e-6*worst {
			t.Fatalf("curves say %.6f ms, the iteration takes %.6f", worst+m.RestMs, got.IterationMs)
		}
	})
}

// Names carry no meaning.
func TestNamesDontMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, p, micro := drawn(t)
		other := m
		q := slices.Clone(p)
		other.Slow = map[falcon.Device]float64{}
		other.Links.Ratio = map[falcon.Link]float64{}
		rename := func(n falcon.Node) falcon.Node { return "x" + n + "y" }
		for i, d := range p {
			q[i] = falcon.NewDevice(rename(d.Node()), d.Index())
		}
		for d, f := range m.Slow {
			other.Slow[falcon.NewDevice(rename(d.Node()), d.Index())] = f
		}
		for l, f := range m.Links.Ratio {
			other.Links.Ratio[falcon.NewLink(rename(l.A), rename(l.B))] = f
		}
		a := m.Iteration(p, micro)
		b := other.Iteration(q, micro)
		if a.IterationMs != b.IterationMs {
			t.Fatalf("%v and %v ms", a.IterationMs, b.IterationMs)
		}
	})
}

// Every byte that crosses between nodes, message by message.
func TestVolumesByCounting(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 1))
	for range 200 {
		l := falcon.Layout{
			TP: 1 + r.IntN(3),
			DP: 1 + r.IntN(4),
			PP: 1 + r.IntN(4),
		}
		m, p := job(l, 1+r.IntN(4))
		r.Shuffle(len(p), func(i, j int) { p[i], p[j] = p[j], p[i] })
		micro := even(l.DP, 1+r.IntN(5))
		want := map[falcon.Dimension]float64{}
		count := func(d falcon.Dimension, from, to falcon.Rank, mb float64) {
			if p[from].Node() != p[to].Node() {
				want[d] += mb
			}
		}
		for _, g := range l.Groups(falcon.DimDP) {
			for step := range 2 * (len(g.Ranks) - 1) {
				for i, from := range g.Ranks {
					_ = step
					count(
						falcon.DimDP,
						from,
						g.Ranks[(i+1)%len(g.Ranks)],
						40/float64(len(g.Ranks)),
					)
				}
			}
		}
		for _, g := range l.Groups(falcon.DimTP) {
			for i, from := range g.Ranks {
				for range micro[l.Replica(from)] {
					if len(g.Ranks) > 1 {
						count(falcon.DimTP, from, g.Ranks[(i+1)%len(g.Ranks)], 3)
					}
				}
			}
		}
		for _, g := range l.Groups(falcon.DimPP) {
			for i := range len(g.Ranks) - 1 {
				for range micro[l.Replica(g.Ranks[0])] {
					count(falcon.DimPP, g.Ranks[i], g.Ranks[i+1], 2)
					count(falcon.DimPP, g.Ranks[i+1], g.Ranks[i], 2)
				}
			}
		}
		got := m.Volumes(p, micro)
		for _, d := range []falcon.Dimension{falcon.DimTP, falcon.DimDP, falcon.DimPP} {
			if math.Abs(got[d]-want[d]) > 1e-9 {
				t.Fatalf("%v %v: %s moves %v MB, counted %v", l, p, d, got[d], want[d])
			}
		}
	}
}
