package replica

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/failslow/falcon"
)

// draw plays failures, at a cost that grows only with the failures in a trial.
type draw struct {
	rng           *rand.Rand
	sharedDomains [][]int // nodes, by rack and other domain
	nodes         int
	setsByNode    [][]int // sets, by node
	size          []int   // nodes, by set

	trial  int
	failed []int // trial in which a node failed last, by node
	seen   []int // trial that count is of, by set
	count  []int // failed nodes, by set
}

func newDraw(q Query, sets [][]int, more []Domain, rng *rand.Rand) *draw {
	index := q.nodeIndex()
	n := len(index)
	d := &draw{rng: rng, nodes: n, setsByNode: make([][]int, n), failed: make([]int, n), seen: make([]int, len(sets)), count: make([]int, len(sets))}
	for i, set := range sets {
		d.size = append(d.size, len(set))
		for _, v := range set {
			d.setsByNode[v] = append(d.setsByNode[v], i)
		}
	}
	nodes := slices.SortedFunc(maps.Keys(index), func(a, b falcon.Node) int { return index[a] - index[b] })
	for _, dom := range append(q.domains(nodes), more...) {
		if dom.Kind != KindNode {
			d.sharedDomains = append(d.sharedDomains, indexes(dom.Nodes, index))
		}
	}
	return d
}

// indexes are the numbers of those nodes that hold ranks.
func indexes(nodes []falcon.Node, index map[falcon.Node]int) []int {
	var out []int
	for _, n := range nodes {
		if i, ok := index[n]; ok {
			out = append(out, i)
		}
	}
	return out
}

// losesShard plays one trial.
func (d *draw) losesShard(h Hazard) bool {
	d.trial++
	lost := false
	d.forEachFailed(len(d.sharedDomains), h.Domain, func(i int) {
		for _, v := range d.sharedDomains[i] {
			lost = d.failNode(v) || lost
		}
	})
	d.forEachFailed(d.nodes, h.Node, func(v int) { lost = d.failNode(v) || lost })
	return lost
}

// forEachFailed calls f for those of n things that fail with probability p, by geometric gaps.
func (d *draw) forEachFailed(n int, p float64, f func(i int)) {
	if p <= 0 {
		return
	}
	log := math.Log1p(-p)
	for i := 0; ; i++ {
		gap := math.Log(1-d.rng.Float64()) / log
		if gap >= float64(n-i) {
			return
		}
		i += int(gap)
		f(i)
	}
}

// failNode takes node v away and reports whether a set is lost with it.
func (d *draw) failNode(v int) bool {
	if d.failed[v] == d.trial {
		return false
	}
	d.failed[v] = d.trial
	lost := false
	for _, i := range d.setsByNode[v] {
		if d.seen[i] != d.trial {
			d.seen[i], d.count[i] = d.trial, 0
		}
		d.count[i]++
		lost = lost || d.count[i] == d.size[i]
	}
	return lost
}
