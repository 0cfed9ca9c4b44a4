package topology

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/cost"
)

// fleet is a job of 1,024 nodes of eight GPUs: 8 TP × 128 DP × 8 PP, 16
// micro-batches a replica, with slow GPUs and links spread at random.
func fleet(slow, links int) Problem {
	l := falcon.Layout{TP: 8, DP: 128, PP: 8}
	p := Problem{
		Model: cost.Model{
			Layout: l,
			Slow:   map[falcon.Device]float64{},
			PPMB:   32,
			Links: cost.Links{
				IntraMBs: 200_000,
				InterMBs: 40_000,
				Ratio:    map[falcon.Link]float64{},
			},
		},
		MinGain: 0.01,
		CopyMBs: 10_000,
	}
	for s := range l.PP {
		w := cost.Stage{ForwardMs: 20, BackwardMs: 40}
		if s == 0 || s == l.PP-1 {
			w = cost.Stage{ForwardMs: 22, BackwardMs: 44}
		}
		p.Model.Work = append(p.Model.Work, w)
		p.Model.DPMB = append(p.Model.DPMB, 4000)
	}
	for i := range l.World() {
		p.Now = append(p.Now, falcon.NewDevice(falcon.Node(fmt.Sprintf("n%04d", i/8)), i%8))
		p.StateMB = append(p.StateMB, 20_000)
	}
	for range l.DP {
		p.MicroBatches = append(p.MicroBatches, 16)
	}
	r := rand.New(rand.NewPCG(11, 12))
	for range slow {
		p.Model.Slow[p.Now[r.IntN(l.World())]] = 1.2 + r.Float64()
	}
	for range links { // between neighbours of rings
		s := r.IntN(l.PP)
		d := r.IntN(l.DP - 1)
		a := p.Now[l.RankOf(falcon.Coord{DP: d, PP: s})].Node()
		b := p.Now[l.RankOf(falcon.Coord{DP: d + 1, PP: s})].Node()
		p.Model.Links.Ratio[falcon.NewLink(a, b)] = 2 + 6*r.Float64()
	}
	return p
}

func TestFleetIsPlannedAlike(t *testing.T) {
	first, err := Search(fleet(8, 2))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Search(fleet(8, 2))
	if err != nil || !reflect.DeepEqual(first, again) {
		t.Errorf("the same problem led to two plans (%v)", err)
	}
	if first.GainMs() < 0.1*first.BeforeMs {
		t.Errorf("before %.0f, split %.0f, after %.0f, with the split %.0f ms",
			first.BeforeMs, first.BeforeSplitMs, first.AfterMs, first.AfterSplitMs)
	}
}

func BenchmarkSearch1024Nodes(b *testing.B) {
	for _, c := range []struct{ slow, links int }{{1, 0}, {0, 2}, {8, 2}, {32, 8}, {256, 16}} {
		p := fleet(c.slow, c.links)
		b.Run(fmt.Sprintf("slow=%d/links=%d", c.slow, c.links), func(b *testing.B) {
			var plan Plan
			var err error
			for b.Loop() {
				plan, err = Search(p)
			}
			b.ReportMetric(plan.BeforeMs, "before_ms")
			b.ReportMetric(plan.BeforeSplitMs, "s2_ms")
			b.ReportMetric(plan.AfterMs, "after_ms")
			b.ReportMetric(plan.AfterSplitMs, "after_split_ms")
			b.ReportMetric(float64(plan.Evaluated), "priced")
			b.ReportMetric(float64(len(plan.Preview.Swaps)), "swaps")
			b.Log(err)
		})
	}
}

// BenchmarkSearchGroups: nodes of 8 GPUs, one slow link and one slow GPU, groups exchanged one by one.
func BenchmarkSearchGroups(b *testing.B) {
	for _, nodes := range []int{2, 8, 32} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			p := square(2*nodes, 4, 8)
			for r := range p.Now {
				p.Now[r] = falcon.NewDevice(falcon.Node(fmt.Sprintf("n%02d", r/8)), r%8)
			}
			p.Model.Slow[p.Now[9]] = 1.5
			p.Model.Links.IntraMBs = 100_000
			p.Model.Links.InterMBs = 1000
			p.Model.PPMB = 0.02
			for s := range p.Model.DPMB {
				p.Model.DPMB[s] = 2
			}
			p.slowDown(0, 8, 6)
			for b.Loop() {
				_, err := p.searchGroups(Plan{}, ErrNoGain)
				if err != nil && !errors.Is(err, ErrNoGain) {
					b.Fatal(err)
				}
			}
		})
	}
}
