package topology

import (
	"cmp"
	"slices"
)

// startPlaces are placements from which the search climbs: stragglers together in few replicas, or
// in few stages (FALCON §5.3), and the ends of slow links likewise, in turns, most promising first.
func (s *search) startPlaces() [][]int {
	out := [][]int{s.g.homeBlocks()}
	slow := s.slowNodes()
	ends := s.linkEnds()
	inReplicas := s.replicasBySlow(slow)
	inStages := s.interiorFirst()
	byLinks := s.replicasBySlow(ends)
	l := s.g.p.Model.Layout
	kinds := []struct {
		nodes, order []int // order is of the parts
		parts        [][]int
		of           int
	}{
		{slow, inReplicas, s.g.members, l.DP},
		{slow, inStages, s.g.stages, l.PP},
		{ends, byLinks, s.g.members, l.DP},
		{ends, inStages, s.g.stages, l.PP},
	}
	for k := range max(len(inReplicas), len(inStages)) {
		for _, x := range kinds {
			if len(x.nodes) > 0 && k < len(x.order) {
				out = append(out, s.together(x.nodes, s.blocksFrom(x.order[k], x.of, x.parts)))
			}
		}
	}
	return out
}

// slowNodes lists odd nodes with a slow device, worst first.
func (s *search) slowNodes() []int {
	var out []int
	for i := range s.g.odd {
		if s.g.isSlow(i) {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int {
		return cmp.Compare(slices.Max(s.g.factor[b]), slices.Max(s.g.factor[a]))
	})
	return out
}

// linkEnds lists odd nodes at the ends of slow links.
func (s *search) linkEnds() []int {
	var out []int
	for i := range s.g.odd {
		if s.g.linked[i] {
			out = append(out, i)
		}
	}
	return out
}

// interiorFirst lists the stages with the first and last, which have more to do, at the end.
func (s *search) interiorFirst() []int {
	pp := s.g.p.Model.Layout.PP
	var out []int
	for st := 1; st < pp-1; st++ {
		out = append(out, st)
	}
	out = append(out, 0)
	if pp > 1 {
		out = append(out, pp-1)
	}
	return out[:min(len(out), startMost)]
}

// replicasBySlow lists replicas, those with most of the nodes first.
func (s *search) replicasBySlow(nodes []int) []int {
	dp := s.g.p.Model.Layout.DP
	has := make([]int, dp)
	for _, i := range nodes {
		for _, d := range s.g.members[s.g.odd[i]] {
			has[d]++
		}
	}
	out := make([]int, dp)
	for d := range out {
		out[d] = d
	}
	slices.SortStableFunc(out, func(a, b int) int {
		return cmp.Compare(has[b], has[a])
	})
	return out[:min(dp, startMost)]
}

// blocksFrom lists the blocks that touch part first of n (a stage or a
// replica), then those of the next part, and so on.
func (s *search) blocksFrom(first, n int, parts [][]int) []int {
	touch := make([][]int, n)
	for b, p := range parts {
		for _, x := range p {
			touch[x] = append(touch[x], b)
		}
	}
	var out []int
	seen := make([]bool, s.g.n)
	for k := range n {
		for _, b := range touch[(first+k)%n] {
			if !seen[b] {
				seen[b] = true
				out = append(out, b)
			}
		}
	}
	return out
}

// together puts the nodes on the first blocks of the list. Those that are on
// one of them stay; odd nodes that are displaced go to where room is left.
func (s *search) together(nodes, blocks []int) []int {
	at := s.g.homeBlocks()
	want := blocks[:len(nodes)]
	var free, come []int
	for _, b := range want {
		if i := s.g.oddAt[b]; i < 0 || !slices.Contains(nodes, i) {
			free = append(free, b)
		}
	}
	for _, i := range nodes {
		if !slices.Contains(want, at[i]) {
			come = append(come, i)
		}
	}
	for k, i := range come {
		s.moveNode(at, i, free[k])
	}
	return at
}
