package topology

import (
	"slices"

	"github.com/failslow/falcon"
)

// makePlan spells out the places that the search found.
func (g *grid) makePlan(s *search) Plan {
	order := g.arrange(s.best)
	out := Plan{
		Placement:    g.placement(order),
		Blocks:       make([]int32, g.n),
		MicroBatches: s.bestSplit(s.best),
		Exact:        s.exact,
		Evaluated:    s.priced,
	}
	for b, node := range order {
		out.Blocks[node] = int32(b)
		out.Order = append(out.Order, g.nodes[node])
	}
	m := g.p.Model
	out.BeforeMs = m.Iteration(g.p.Now, g.p.MicroBatches).IterationMs
	out.AfterMs = m.Iteration(out.Placement, g.p.MicroBatches).IterationMs
	out.AfterSplitMs = m.Iteration(out.Placement, out.MicroBatches).IterationMs
	out.Preview = g.preview(order, out)
	return out
}

func (g *grid) preview(order []int, p Plan) falcon.Preview {
	out := g.p.previewOf(p)
	out.Swaps = g.nodeSwaps(order)
	return out
}

// previewOf is what a plan's placement changes, without who changes places.
func (p Problem) previewOf(plan Plan) falcon.Preview {
	out := falcon.Preview{
		Swaps:   [][2]falcon.Node{},
		Splits:  plan.MicroBatches,
		Left:    map[falcon.Dimension][]falcon.Link{},
		Joined:  map[falcon.Dimension][]falcon.Link{},
		Traffic: p.Model.Volumes(plan.Placement, p.MicroBatches),
	}
	for _, d := range []falcon.Dimension{falcon.DimDP, falcon.DimPP} {
		before := p.dimensionLinks(p.Now, d)
		after := p.dimensionLinks(plan.Placement, d)
		out.Left[d], out.Joined[d] = without(before, after), without(after, before)
	}
	out.Stages, out.Replicas = p.slowPlaces(plan.Placement)
	if p.StateMB != nil {
		out.MovedMB, out.CopyMs = p.copyCost(plan.Placement)
	}
	return out
}

// copyCost is the state that ranks move, 10⁶ bytes, and dump, swap and restore of the slowest of
// them: each copies its state to the host, exchanges it with the device that takes its place, and
// copies the new one to the device.
func (p Problem) copyCost(to falcon.Placement) (movedMB, ms float64) {
	dump, swap := 0.0, 0.0
	for r, mb := range p.StateMB {
		if p.Now[r] == to[r] {
			continue
		}
		movedMB += mb
		if p.CopyMBs > 0 {
			dump = max(dump, mb/p.CopyMBs*1e3)
		}
		swap = max(swap, p.Model.Links.TransferMs(p.Now[r].Node(), to[r].Node(), mb))
	}
	return movedMB, 2*dump + swap
}

// dimensionLinks are the neighbouring pairs of nodes in the dimension's rings or pipelines, ascending.
func (p Problem) dimensionLinks(at falcon.Placement, d falcon.Dimension) []falcon.Link {
	l := p.Model.Layout
	set := map[falcon.Link]bool{}
	for r := range falcon.Rank(l.World()) {
		c := l.Coord(r)
		switch {
		case d == falcon.DimDP:
			c.DP = (c.DP + 1) % l.DP
		case c.PP+1 < l.PP:
			c.PP++
		case p.Model.Chunks > 1:
			c.PP = 0
		}
		if a, b := at[r].Node(), at[l.RankOf(c)].Node(); a != b {
			set[falcon.NewLink(a, b)] = true
		}
	}
	out := make([]falcon.Link, 0, len(set))
	for k := range set {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b falcon.Link) int {
		return compareLinks(a, b)
	})
	return out
}

func compareLinks(a, b falcon.Link) int {
	if a.A != b.A {
		if a.A < b.A {
			return -1
		}
		return 1
	}
	switch {
	case a.B < b.B:
		return -1
	case a.B > b.B:
		return 1
	}
	return 0
}

// without lists what only a has; both ascend.
func without(a, b []falcon.Link) []falcon.Link {
	out := []falcon.Link{}
	for _, l := range a {
		if _, ok := slices.BinarySearchFunc(b, l, compareLinks); !ok {
			out = append(out, l)
		}
	}
	return out
}

// slowPlaces are the stages and replicas that hold a slow device.
func (p Problem) slowPlaces(at falcon.Placement) (stages, replicas []int) {
	for r, d := range at {
		if p.Model.Slow[d] > 1 {
			c := p.Model.Layout.Coord(falcon.Rank(r))
			stages, replicas = joinNodes(stages, c.PP), joinNodes(replicas, c.DP)
		}
	}
	slices.Sort(stages)
	slices.Sort(replicas)
	return stages, replicas
}
