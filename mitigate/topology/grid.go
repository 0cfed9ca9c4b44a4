package topology

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/cost"
)

// grid is a problem in numbers. A node is named by the block that it holds
// now; a slot is one replica's part of one stage. Nodes that have neither a
// slow device nor a slow link are all alike: only the odd ones are placed, and
// what they displace goes where they came from.
type grid struct {
	p     Problem
	n     int           // nodes, and blocks
	size  int           // ranks of a block
	nodes []falcon.Node // by home block
	odd   []int         // home blocks of the nodes that differ, ascending
	oddAt []int         // by home block: index into odd, or −1

	slots   []slot      // by stage·DP + replica
	stages  [][]int     // by block, ascending
	members [][]int     // by block: replicas, ascending
	factor  [][]float64 // by odd node and place in the block
	ratio   [][]float64 // by odd node and odd node, at least 1
	linked  []bool      // by odd node: it is at an end of a slow link
	stateMB []float64   // by block
}

// slot is where a replica's part of a stage lies.
type slot struct {
	block int
	place int // first rank's place in the block; TP of them follow each other
}

func newGrid(p Problem) (*grid, error) {
	g := &grid{p: p}
	if err := g.cutBlocks(); err != nil {
		return nil, err
	}
	l := p.Model.Layout
	g.stages, g.members = make([][]int, g.n), make([][]int, g.n)
	for s := range l.PP {
		for d := range l.DP {
			first := int(l.RankOf(falcon.Coord{DP: d, PP: s}))
			b := first / g.size
			g.slots = append(g.slots, slot{b, first % g.size})
			g.stages[b], g.members[b] = joinNodes(g.stages[b], s), joinNodes(g.members[b], d)
		}
	}
	g.stateMB = make([]float64, g.n)
	for b := range g.stateMB {
		g.stateMB[b] = p.stateOf(b, g.size)
	}
	g.findOdd()
	return g, nil
}

func joinNodes(v []int, x int) []int {
	if slices.Contains(v, x) {
		return v
	}
	return append(v, x)
}

func sumCounts(v []float64) float64 {
	t := 0.0
	for _, x := range v {
		t += x
	}
	return t
}

// cutBlocks checks that every node holds one block of consecutive ranks, all of one
// size, and none but whole tensor-parallel groups.
func (g *grid) cutBlocks() error {
	now := g.p.Now
	seen := map[falcon.Node]bool{}
	for g.size < len(now) && now[g.size].Node() == now[0].Node() {
		g.size++
	}
	if len(now)%g.size != 0 || g.size%g.p.Model.Layout.TP != 0 {
		return fmt.Errorf("%w: %s holds %d of %d ranks, tensor-parallel groups have %d",
			ErrShape, now[0].Node(), g.size, len(now), g.p.Model.Layout.TP)
	}
	g.n = len(now) / g.size
	devices := map[falcon.Device]bool{}
	for b := range g.n {
		node := now[b*g.size].Node()
		if node == "" || seen[node] {
			return fmt.Errorf("%w: node %q holds ranks apart from each other", ErrShape, node)
		}
		seen[node] = true
		g.nodes = append(g.nodes, node)
		for r := b * g.size; r < (b+1)*g.size; r++ {
			if now[r].Node() != node {
				return fmt.Errorf("%w: rank %d is on %s, the other ranks of its block on %s",
					ErrShape, r, now[r].Node(), node)
			}
			if devices[now[r]] {
				return fmt.Errorf("%w: device %s holds two ranks", ErrShape, now[r])
			}
			devices[now[r]] = true
		}
	}
	return nil
}

// findOdd lists the nodes that differ.
func (g *grid) findOdd() {
	home := map[falcon.Node]int{}
	for b, n := range g.nodes {
		home[n] = b
	}
	isOdd := make([]bool, g.n)
	for r, d := range g.p.Now {
		isOdd[r/g.size] = isOdd[r/g.size] || g.p.Model.Slow[d] > 1
	}
	g.oddAt = make([]int, g.n)
	for _, l := range g.p.slowLinks() {
		isOdd[home[l.A]], isOdd[home[l.B]] = true, true
	}
	for b := range g.n {
		g.oddAt[b] = -1
		if isOdd[b] {
			g.oddAt[b] = len(g.odd)
			g.odd = append(g.odd, b)
		}
	}
	g.measureOdd()
}

func (g *grid) measureOdd() {
	for _, a := range g.odd {
		factors := make([]float64, g.size)
		ratios := make([]float64, len(g.odd))
		for i := range factors {
			factors[i] = cost.AtLeastHealthy(g.p.Model.Slow[g.p.Now[a*g.size+i]])
		}
		for j, b := range g.odd {
			ratios[j] = 1
			if a != b {
				ratios[j] = cost.AtLeastHealthy(g.p.Model.Links.Ratio[falcon.NewLink(g.nodes[a], g.nodes[b])])
			}
		}
		g.factor = append(g.factor, factors)
		g.ratio = append(g.ratio, ratios)
		g.linked = append(g.linked, slices.Max(ratios) > 1)
	}
}

// isSlow reports whether odd node i has a slow device.
func (g *grid) isSlow(i int) bool {
	return slices.Max(g.factor[i]) > 1
}

// homeBlocks is where the odd nodes are now.
func (g *grid) homeBlocks() []int { return slices.Clone(g.odd) }

// slotIndex is the slot of replica d at stage s.
func (g *grid) slotIndex(s, d int) slot {
	return g.slots[s*g.p.Model.Layout.DP+d]
}

// arrange is the node, by home block, that each block gets when the odd nodes go to at. The others
// stay; a displaced one goes where its chain of odd nodes began, which closes a cycle: no other way
// takes fewer swaps.
func (g *grid) arrange(at []int) []int {
	out := make([]int, g.n)
	for b := range out {
		out[b] = b
	}
	for i, b := range at {
		out[b] = g.odd[i]
	}
	held := make([]bool, g.n)
	for _, b := range at {
		held[b] = true
	}
	for i, home := range g.odd {
		if held[home] {
			continue
		}
		end := at[i] // follow who was displaced by whom, to the one that is not odd
		for j := g.oddAt[end]; j >= 0; j = g.oddAt[end] {
			end = at[j]
		}
		out[home] = end
	}
	return out
}

// placement is the device of each rank with node order[b] on block b.
func (g *grid) placement(order []int) falcon.Placement {
	out := make(falcon.Placement, len(g.p.Now))
	for b, node := range order {
		copy(out[b*g.size:(b+1)*g.size], g.p.Now[node*g.size:(node+1)*g.size])
	}
	return out
}

// nodeSwaps turns the present order into another by exchanging pairs of nodes.
func (g *grid) nodeSwaps(order []int) [][2]falcon.Node {
	out := [][2]falcon.Node{}
	for _, s := range swapsTo(order) {
		out = append(out, [2]falcon.Node{g.nodes[s.held[0]], g.nodes[s.held[1]]})
	}
	return out
}

// pipeline is replica d where who holds the odd node of each block, or −1.
func (g *grid) pipeline(d int, who []int, into *cost.Pipeline) {
	m := g.p.Model
	into.Chunks = m.Chunks
	into.Stages = into.Stages[:0]
	into.HopMs = into.HopMs[:0]
	for s := range m.Layout.PP {
		at := g.slotIndex(s, d)
		f := 1.0
		if i := who[at.block]; i >= 0 {
			f = slices.Max(g.factor[i][at.place : at.place+m.Layout.TP])
		}
		w := m.Work[s]
		into.Stages = append(into.Stages, cost.Stage{
			ForwardMs:  w.ForwardMs * f,
			BackwardMs: w.BackwardMs * f,
		})
	}
	boundaries := m.Layout.PP - 1
	if m.Chunks > 1 && m.Layout.PP > 1 {
		boundaries++
	}
	for b := range boundaries {
		from, to := g.slotIndex(b, d).block, g.slotIndex((b+1)%m.Layout.PP, d).block
		into.HopMs = append(into.HopMs, g.edgeTime(from, to, who, m.PPMB))
	}
}

// edgeTime is a message of so many 10⁶ bytes from block to block.
func (g *grid) edgeTime(from, to int, who []int, megabytes float64) float64 {
	links := g.p.Model.Links
	switch {
	case !(megabytes > 0):
		return 0
	case from == to && links.IntraMBs > 0:
		return megabytes * 1e3 / links.IntraMBs
	case from == to:
		return 0
	case links.InterMBs > 0:
		return megabytes*1e3/links.InterMBs*g.between(from, to, who) + links.LatencyMs
	}
	return links.LatencyMs
}

func (g *grid) between(a, b int, who []int) float64 {
	i, j := who[a], who[b]
	if i < 0 || j < 0 {
		return 1
	}
	return g.ratio[i][j]
}

// ringTime is stage s's gradient sum: see cost.Links.RingMs.
func (g *grid) ringTime(s int, who []int) float64 {
	m := g.p.Model
	k := m.Layout.DP
	if k < 2 || !(m.DPMB[s] > 0) {
		return 0
	}
	worst, latency := 0.0, 0.0
	for d := range k {
		a, b := g.slotIndex(s, d).block, g.slotIndex(s, (d+1)%k).block
		switch {
		case a == b && m.Links.IntraMBs > 0:
			worst = max(worst, 1e3/m.Links.IntraMBs)
		case a != b && m.Links.InterMBs > 0:
			worst = max(worst, 1e3/m.Links.InterMBs*g.between(a, b, who))
		}
		if a != b {
			latency = m.Links.LatencyMs
		}
	}
	return cost.RingSteps(k)*(m.DPMB[s]*worst/float64(k)) + cost.RingSteps(k)*latency
}
