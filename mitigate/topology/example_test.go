package topology

import (
	"fmt"
	"math"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/cost"
)

// square is a job of dp replicas and pp stages, one rank a node, 1 ms per
// micro-batch and stage, links that cost nothing.
func square(dp, pp, micro int) Problem {
	p := Problem{Model: cost.Model{
		Layout: falcon.Layout{TP: 1, DP: dp, PP: pp},
		Slow:   map[falcon.Device]float64{},
		Links:  cost.Links{Ratio: map[falcon.Link]float64{}},
		DPMB:   make([]float64, pp),
	}}
	for range pp {
		p.Model.Work = append(p.Model.Work, cost.Stage{
			ForwardMs:  1. / 3,
			BackwardMs: 2. / 3,
		})
	}
	for i := range dp * pp {
		p.Now = append(p.Now, falcon.NewDevice(falcon.Node(fmt.Sprintf("n%02d", i)), 0))
	}
	for range dp {
		p.MicroBatches = append(p.MicroBatches, int32(micro))
	}
	return p
}

// Four replicas of four stages, eight micro-batches each, the last stage's GPUs
// of two replicas at half speed: an even split takes 19, healthy is 11. They are
// in one stage already, as the paper would have them, and the best split there
// ends at 14; both in one replica, 13. In an interior stage, 13⅔; in interior
// stages of one replica, 12⅔, which is the plan.
func TestOneReplicaBeatsOneStage(t *testing.T) {
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s takes %.3f ms, want %.3f", what, got, want)
		}
	}
	p := square(4, 4, 8)
	near("healthy", p.Model.Iteration(p.Now, p.MicroBatches).IterationMs, 11)
	p.Model.Slow[p.Now[12]], p.Model.Slow[p.Now[13]] = 2, 2
	near("an even split", p.Model.Iteration(p.Now, p.MicroBatches).IterationMs, 19)
	g, err := newGrid(p)
	if err != nil {
		t.Fatal(err)
	}
	s := newSearch(g)
	near("one stage", s.pricePlaces([]int{12, 13}).ms, 14)
	near("one replica", s.pricePlaces([]int{12, 8}).ms, 13)
	near("one interior stage", s.pricePlaces([]int{4, 5}).ms, 14-1./3)
	plan, err := Search(p)
	if err != nil {
		t.Fatal(err)
	}
	near("S2 alone", plan.BeforeSplitMs, 14)
	near("the plan", plan.AfterSplitMs, 13-1./3)
	near("its gain", plan.GainMs(), 1+1./3)
	if len(plan.Preview.Replicas) != 1 ||
		len(plan.Preview.Swaps) > 2 ||
		!plan.Exact {
		t.Errorf("%+v", plan)
	}
}
