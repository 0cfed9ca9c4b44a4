package sim

import (
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// optimum is the best of all plans of a kind, found by playing each of them without noise.
type optimum struct {
	ms     float64
	played int
	all    bool // none was left out
}

// splitBox is how far from an even share of the rest all but the slowest
// replica's counts go where all splits are too many: beyond four replicas.
const splitBox = 2

// bestSplit plays all splits of the batch. Replicas whose stages are equally slow
// are alike, and only one order of their counts is played.
func (s Shape) bestSplit(active []Fault) optimum {
	j := NewJob(s, nil)
	j.Disturb(active)
	slow := make([][]float64, s.Layout.DP) // by replica: of its ranks, in order
	for r := range j.Placement {
		d := s.Layout.Replica(falcon.Rank(r))
		slow[d] = append(slow[d], j.slow[r])
	}
	w := splitWalk{job: j, best: optimum{ms: math.Inf(1)}}
	for d := range slow {
		w.order = append(w.order, d)
	}
	slices.SortStableFunc(w.order, func(a, b int) int {
		return -slices.Compare(slow[a], slow[b])
	})
	for i, d := range w.order {
		w.likeLast = append(w.likeLast, i > 0 && slices.Equal(slow[d], slow[w.order[i-1]]))
	}
	w.boxed = s.Layout.DP > 4
	w.best.all = !w.boxed
	w.walk(0, s.Micro*s.Layout.DP)
	return w.best
}

type splitWalk struct {
	job      *Job
	order    []int  // replicas, the slowest first
	likeLast []bool // by place in order: as slow as the one before it
	boxed    bool
	best     optimum
}

func (w *splitWalk) walk(i, left int) {
	d, behind := w.order[i], len(w.order)-1-i
	if behind == 0 {
		w.job.Split[d] = int32(left)
		if w.isOrdered(i) && left >= 1 {
			w.best.played++
			w.best.ms = min(w.best.ms, w.job.Play(false).ms)
		}
		return
	}
	low, high := 1, left-behind
	if w.boxed && i > 0 {
		share := left / (behind + 1)
		low, high = max(low, share-splitBox), min(high, share+splitBox)
	}
	for m := low; m <= high; m++ {
		w.job.Split[d] = int32(m)
		if w.isOrdered(i) {
			w.walk(i+1, left-m)
		}
	}
}

// isOrdered reports whether replica i of the order has at least as many as the
// one before it, where both are alike.
func (w *splitWalk) isOrdered(i int) bool {
	return !w.likeLast[i] || w.job.Split[w.order[i]] >= w.job.Split[w.order[i-1]]
}

// bestNodes plays all orders of the nodes that differ by a slow link or GPU; the
// other nodes are alike. The first of them stays in the first replica: rings have
// no beginning. Beyond four nodes that differ there is none.
func (s Shape) bestNodes(active []Fault) (optimum, bool) {
	home := s.home()
	nodes := home.Nodes()
	var odd []int
	for i, n := range nodes {
		for _, f := range active {
			if f.Device.Node() == n && f.Device != "" ||
				f.Link.A == n ||
				f.Link.B == n {
				odd = append(odd, i)
				break
			}
		}
	}
	if len(odd) > 4 || s.GPUsPerNode != 1 {
		return optimum{}, false
	}
	j := NewJob(s, nil)
	j.Disturb(active)
	best := optimum{ms: math.Inf(1), all: true}
	at := make([]int, 0, len(odd)) // by odd node: its block
	var walk func()
	walk = func() {
		if len(at) == len(odd) {
			j.Move(placedAt(home, odd, at))
			best.played++
			best.ms = min(best.ms, j.Play(false).ms)
			return
		}
		for b := range nodes {
			if slices.Contains(at, b) || len(at) == 0 && s.Layout.Replica(falcon.Rank(b)) != 0 {
				continue
			}
			at = append(at, b)
			walk()
			at = at[:len(at)-1]
		}
	}
	walk()
	return best, true
}

// placedAt puts the odd nodes at their blocks and the others into what is left, in order.
func placedAt(home falcon.Placement, odd, at []int) falcon.Placement {
	out := make(falcon.Placement, len(home))
	for i, b := range at {
		out[b] = home[odd[i]]
	}
	next := 0
	for i, d := range home {
		if slices.Contains(odd, i) {
			continue
		}
		for out[next] != "" {
			next++
		}
		out[next] = d
	}
	return out
}

// bestDivision plays all ways of dividing the ranks over two nodes whose GPUs are
// alike: what an exchange of single ranks could reach.
func (s Shape) bestDivision(active []Fault) optimum {
	world := s.Layout.World()
	j := NewJob(s, nil)
	j.Disturb(active)
	best := optimum{ms: math.Inf(1), all: true}
	first := []int{0} // ranks on the first node: rank 0 is, as the nodes are alike
	var walk func(next int)
	walk = func(next int) {
		if len(first) == world/2 {
			j.Move(dividedOver(world, first))
			best.played++
			best.ms = min(best.ms, j.Play(false).ms)
			return
		}
		for r := next; r < world; r++ {
			first = append(first, r)
			walk(r + 1)
			first = first[:len(first)-1]
		}
	}
	walk(1)
	return best
}

func dividedOver(world int, first []int) falcon.Placement {
	out := make(falcon.Placement, world)
	count := [2]int{}
	for r := range out {
		node := 1
		if slices.Contains(first, r) {
			node = 0
		}
		out[r] = falcon.NewDevice(nodeName(node), count[node])
		count[node]++
	}
	return out
}
