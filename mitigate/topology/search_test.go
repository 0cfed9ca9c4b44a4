package topology

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/cost"
)

// grid44 is FALCON's figure 16 in small: 4 DP × 4 PP, one rank a node; a
// gradient sum takes much longer than an activation.
func grid44() Problem {
	p := square(4, 4, 8)
	p.Model.Links.InterMBs = 1000
	p.Model.PPMB = 0.02
	p.MinGain = 0.03
	for s := range p.Model.DPMB {
		p.Model.DPMB[s] = 2
	}
	return p
}

func (p Problem) slowDown(from, to falcon.Rank, ratio float64) falcon.Link {
	l := falcon.NewLink(p.Now[from].Node(), p.Now[to].Node())
	p.Model.Links.Ratio[l] = ratio
	return l
}

// A congested link goes from the gradients to where it hurts less (figure 10).
func TestCongestedLinkLeavesItsRing(t *testing.T) {
	p := grid44()
	slow := p.slowDown(5, 6, 4) // replicas 1 and 2 of stage 1
	plan, err := Search(p)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(plan.Preview.Left[falcon.DimDP], slow) || len(plan.Preview.Swaps) != 1 {
		t.Errorf("%+v", plan.Preview)
	}
	healthy := p
	healthy.Model.Links.Ratio = nil
	want := healthy.Model.Iteration(p.Now, p.MicroBatches).IterationMs
	if approxCompare(plan.AfterMs, want) != 0 {
		t.Errorf("%.2f ms afterwards, healthy is %.2f, before %.2f", plan.AfterMs, want, plan.BeforeMs)
	}
}

// Links that are slow wherever they are used: no room (figure 16, all slow).
func TestAllLinksSlow(t *testing.T) {
	p := grid44()
	for a := range falcon.Rank(16) {
		for b := range a {
			p.slowDown(a, b, 4)
		}
	}
	if _, err := Search(p); !errors.Is(err, ErrNoGain) {
		t.Errorf("%v", err)
	}
}

func TestNothingIsSlow(t *testing.T) {
	if _, err := Search(grid44()); !errors.Is(err, ErrNoGain) {
		t.Errorf("%v", err)
	}
}

func TestMinGain(t *testing.T) {
	p := grid44()
	p.slowDown(5, 6, 4)
	plan, err := Search(p)
	if err != nil {
		t.Fatal(err)
	}
	share := plan.GainMs() / plan.BeforeMs
	p.MinGain = share * 0.99
	if _, err := Search(p); err != nil {
		t.Error(err)
	}
	p.MinGain = share * 1.01
	if _, err := Search(p); !errors.Is(err, ErrNoGain) {
		t.Errorf("a plan that gains less than asked: %v", err)
	}
}

// Stragglers in two stages: with splits fixed they go into one stage, inside
// the pipeline, as the paper has it.
func TestStragglersShareAnInteriorStage(t *testing.T) {
	p := square(4, 4, 8)
	p.Model.Work[0].BackwardMs, p.Model.Work[3].BackwardMs = 0.9, 0.9
	for i, r := range []falcon.Rank{1, 2, 8, 15} { // one in each replica
		p.Model.Slow[p.Now[r]] = 1.5 + 0.01*float64(i)
	}
	p.Bounds = Bounds{Min: []int32{8, 8, 8, 8}, Max: []int32{8, 8, 8, 8}}
	plan, err := Search(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range plan.Preview.Stages {
		if s == 0 || s == 3 {
			t.Errorf("slow devices in stages %v: %+v", plan.Preview.Stages, plan)
		}
	}
	if plan.AfterMs != plan.AfterSplitMs ||
		plan.AfterMs >= plan.BeforeMs ||
		!slices.Equal(plan.MicroBatches, p.MicroBatches) {
		t.Errorf("%+v", plan)
	}
}

func TestSplitsKeepTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := square(4, 2, 8)
		p.Model.Slow[p.Now[rapid.IntRange(0, 7).Draw(t, "first")]] = 3
		p.Model.Slow[p.Now[rapid.IntRange(0, 7).Draw(t, "second")]] = 2
		q := int32(rapid.IntRange(1, 2).Draw(t, "multiple"))
		p.Bounds.Multiple = q
		for range 4 {
			p.Bounds.Min = append(p.Bounds.Min, int32(rapid.IntRange(0, 6).Draw(t, "min")))
			p.Bounds.Max = append(p.Bounds.Max, int32(rapid.IntRange(8, 32).Draw(t, "max")))
		}
		plan, err := Search(p)
		if errors.Is(err, ErrNoGain) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		left := int32(32)
		for d, m := range plan.MicroBatches {
			left -= m
			if m < max(1, p.Bounds.Min[d]) || m > p.Bounds.Max[d] || m%q != 0 {
				t.Fatalf("%v is outside %+v", plan.MicroBatches, p.Bounds)
			}
		}
		if left != 0 {
			t.Fatalf("%v is not the batch of 32", plan.MicroBatches)
		}
	})
}

// Names carry no meaning: other names, the same plan.
func TestNamesDontMatter(t *testing.T) {
	p := grid44()
	p.slowDown(5, 6, 4)
	p.slowDown(9, 10, 3)
	p.Model.Slow[p.Now[3]] = 2
	plan, err := Search(p)
	if err != nil {
		t.Fatal(err)
	}
	rename := func(n falcon.Node) falcon.Node {
		return falcon.Node("z" + string('z'-n[2]+'0') + string('z'-n[1]+'0'))
	}
	q := p
	q.Now = nil
	q.Model.Slow = map[falcon.Device]float64{}
	q.Model.Links.Ratio = map[falcon.Link]float64{}
	for _, d := range p.Now {
		q.Now = append(q.Now, falcon.NewDevice(rename(d.Node()), d.Index()))
	}
	for d, f := range p.Model.Slow {
		q.Model.Slow[falcon.NewDevice(rename(d.Node()), d.Index())] = f
	}
	for l, f := range p.Model.Links.Ratio {
		q.Model.Links.Ratio[falcon.NewLink(rename(l.A), rename(l.B))] = f
	}
	other, err := Search(q)
	if err != nil || !slices.Equal(plan.Blocks, other.Blocks) {
		t.Errorf("%v and %v (%v)", plan.Blocks, other.Blocks, err)
	}
}

// Whoever follows the blocks and whoever follows the swaps ends at one placement.
func TestBlocksAndSwapsAgree(t *testing.T) {
	p := square(4, 4, 8)
	for _, r := range []int{0, 5, 10} {
		p.Model.Slow[p.Now[r]] = 2
	}
	plan, err := Search(p)
	if err != nil {
		t.Fatal(err)
	}
	byBlocks := make(falcon.Placement, 16)
	bySwaps := slices.Clone(p.Now)
	for b, to := range plan.Blocks {
		byBlocks[to] = p.Now[b]
	}
	for _, w := range plan.Preview.Swaps {
		i, _ := bySwaps.Rank(falcon.NewDevice(w[0], 0))
		j, _ := bySwaps.Rank(falcon.NewDevice(w[1], 0))
		bySwaps[i], bySwaps[j] = bySwaps[j], bySwaps[i]
	}
	if !slices.Equal(byBlocks, plan.Placement) || !slices.Equal(bySwaps, plan.Placement) {
		t.Errorf("%v\n%v\n%v", plan.Placement, byBlocks, bySwaps)
	}
}

func TestSearchRefuses(t *testing.T) {
	for want, change := range map[string]func(*Problem){
		"holds ranks apart": func(p *Problem) {
			p.Model.Layout.CP = 2
			p.Now[0], p.Now[3] = "a.g0", "a.g1"
		},
		"the other ranks of its": func(p *Problem) {
			p.Model.Layout.CP = 2
			p.Now[0] = "a.g0"
			p.Now[1] = "a.g1"
			p.Now[2] = "b.g0"
			p.Now[3] = "c.g0"
		},
		"holds two ranks": func(p *Problem) {
			p.Now[0] = "a.g0"
			p.Now[1] = "a.g0"
			p.Now[2] = "b.g0"
			p.Now[3] = "b.g1"
		},
		"ranks are placed":     func(p *Problem) { p.Now = p.Now[1:] },
		"the model has":        func(p *Problem) { p.Model.Work = nil },
		"give at least 1":      func(p *Problem) { p.MicroBatches[0] = 0 },
		"the state of":         func(p *Problem) { p.StateMB = []float64{1} },
		"numbers that are not": func(p *Problem) { p.Model.Work[0].ForwardMs = -1 },
		"bounds allow": func(p *Problem) {
			p.Bounds.Max = []int32{1, 1}
		},
		"bounds of 1": func(p *Problem) { p.Bounds.Min = []int32{1} },
		"within its bounds": func(p *Problem) {
			p.Bounds.Min = []int32{9, 9}
			p.Bounds.Max = []int32{8, 8}
		},
		"steps of 3":      func(p *Problem) { p.Bounds.Multiple = 3 },
		"more than 65536": func(p *Problem) { p.MicroBatches[0] = 1 << 17 },
		"tensor-parallel groups ha": func(p *Problem) {
			p.Model.Layout = falcon.Layout{TP: 2, DP: 1, PP: 2}
			p.MicroBatches = []int32{8}
		},
	} {
		p := square(2, 2, 8)
		p.Model.Slow[p.Now[0]] = 2
		change(&p)
		_, err := Search(p)
		if err == nil ||
			!strings.Contains(err.Error(), want) ||
			!errors.Is(err, ErrShape) && !errors.Is(err, ErrProblem) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// One node can't change places with itself.
func TestOneNode(t *testing.T) {
	p := Problem{
		Model: cost.Model{
			Layout: falcon.Layout{TP: 1, DP: 2, PP: 1},
			Work:   []cost.Stage{{ForwardMs: 1, BackwardMs: 2}},
			DPMB:   []float64{0},
			Slow:   map[falcon.Device]float64{"n0.g1": 2},
		},
		Now:          falcon.Placement{"n0.g0", "n0.g1"},
		MicroBatches: []int32{4, 4},
	}
	if _, err := Search(p); !errors.Is(err, ErrNoGain) {
		t.Errorf("%v", err)
	}
}
