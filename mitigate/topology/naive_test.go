package topology

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/cost"
)

// random is a job on few nodes, with whole numbers wherever times come from, so
// that ties are ties.
func random(r *rand.Rand, nodesMost int) Problem {
	for {
		l := falcon.Layout{
			TP: 1 + r.IntN(2),
			DP: 1 + r.IntN(4),
			PP: 1 + r.IntN(3),
		}
		size := l.TP * (1 + r.IntN(3))
		if l.World()%size != 0 || l.World()/size > nodesMost || l.World()/size < 2 {
			continue
		}
		p := Problem{
			Model: cost.Model{
				Layout: l,
				Slow:   map[falcon.Device]float64{},
				PPMB:   float64(r.IntN(3)),
				Links: cost.Links{
					IntraMBs: 4000,
					InterMBs: 500,
					Ratio:    map[falcon.Link]float64{},
				},
			},
			MinGain: 1e-6,
		}
		for range l.PP {
			p.Model.Work = append(p.Model.Work, cost.Stage{
				ForwardMs:  float64(4 + r.IntN(3)),
				BackwardMs: float64(8 + r.IntN(3)),
			})
			p.Model.DPMB = append(p.Model.DPMB, float64(r.IntN(3))*float64(l.DP))
		}
		for i := range l.World() {
			p.Now = append(p.Now, falcon.NewDevice(falcon.Node(fmt.Sprintf("n%d", 9-i/size)), i%size))
			p.StateMB = append(p.StateMB, float64(1+r.IntN(2)))
		}
		for range 1 + r.IntN(3) {
			p.Model.Slow[p.Now[r.IntN(len(p.Now))]] = float64(2 + r.IntN(2))
		}
		for range r.IntN(3) {
			a := p.Now[r.IntN(len(p.Now))].Node()
			b := p.Now[r.IntN(len(p.Now))].Node()
			p.Model.Links.Ratio[falcon.NewLink(a, b)] = float64(2 + r.IntN(4))
		}
		for range l.DP {
			p.MicroBatches = append(p.MicroBatches, int32(1+r.IntN(4)))
		}
		return p
	}
}

// bruteSplit is the least time over all splits, each by the whole model.
func bruteSplit(p Problem, at falcon.Placement) float64 {
	best, m := math.Inf(1), make([]int32, p.Model.Layout.DP)
	var place func(d, left int)
	place = func(d, left int) {
		if d == len(m)-1 {
			m[d] = int32(left)
			best = min(best, p.Model.Iteration(at, m).IterationMs)
			return
		}
		for k := 1; k <= left-(len(m)-1-d); k++ {
			m[d] = int32(k)
			place(d+1, left-k)
		}
	}
	place(0, p.totalCount())
	return best
}

// brute tries every permutation of the nodes.
func brute(p Problem, g *grid) (order []int, ms, movedMB float64, swaps int) {
	ms = math.Inf(1)
	perm := make([]int, g.n)
	for i := range perm {
		perm[i] = i
	}
	var all func(k int)
	all = func(k int) {
		if k < g.n {
			for i := k; i < g.n; i++ {
				perm[k], perm[i] = perm[i], perm[k]
				all(k + 1)
				perm[k], perm[i] = perm[i], perm[k]
			}
			return
		}
		var at falcon.Placement
		mb := 0.0
		seen := make([]bool, g.n)
		cycles := 0
		for b, node := range perm {
			at = append(at, p.Now[node*g.size:(node+1)*g.size]...)
			for i := range g.size {
				if b != node {
					mb += p.StateMB[b*g.size+i]
				}
			}
			for c, fresh := b, !seen[b]; !seen[c]; c = perm[c] {
				seen[c] = true
				if fresh {
					cycles++
					fresh = false
				}
			}
		}
		t, n := bruteSplit(p, at), g.n-cycles
		c := approxCompare(t, ms)
		if order == nil ||
			c < 0 ||
			c == 0 &&
				(mb < movedMB ||
					mb == movedMB && (n < swaps || n == swaps && slices.Compare(perm, order) < 0)) {
			order = slices.Clone(perm)
			ms = t
			movedMB = mb
			swaps = n
		}
	}
	all(0)
	return order, ms, movedMB, swaps
}

func TestSearchAgainstAllPermutations(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 2))
	found := 0
	for range 80 {
		p := random(r, 5)
		g, err := newGrid(p)
		if err != nil {
			t.Fatal(err)
		}
		order, ms, mb, swaps := brute(p, g)
		plan, err := p.searchNodes()
		if errors.Is(err, ErrNoGain) {
			before := min(p.Model.Iteration(p.Now, p.MicroBatches).IterationMs, bruteSplit(p, p.Now))
			if gain := before - ms; gain > 1e-5*before {
				t.Fatalf("%+v: no plan (%v), but %v gains %v ms", p, err, order, gain)
			}
			continue
		}
		found++
		if err != nil ||
			approxCompare(plan.AfterSplitMs, ms) != 0 ||
			approxCompare(plan.Preview.MovedMB, mb) != 0 ||
			len(plan.Preview.Swaps) != swaps {
			t.Fatalf("%+v\ngot %+v (%v)\nwant order %v, %v ms, %v MB, %d swaps",
				p, plan, err, order, ms, mb, swaps)
		}
		for b, node := range order {
			if plan.Order[b] != g.nodes[node] || plan.Blocks[node] != int32(b) {
				t.Fatalf("%+v: order %v, want %v", p, plan.Order, order)
			}
		}
	}
	if found < 30 {
		t.Errorf("%d plans only: the cases test little", found)
	}
}

// Where there are too many placements to price them all, the search climbs: it
// must rarely miss the best one of small jobs, and never by much.
func TestClimbAgainstAllPlacements(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	missed, worst, n := 0, 0.0, 0
	for range 400 {
		p := random(r, 8)
		g, err := newGrid(p)
		if err != nil {
			t.Fatal(err)
		}
		exact := newSearch(g)
		climbed := newSearch(g)
		if exact.placements() > 2000 {
			continue
		}
		n++
		exact.runFromHome()
		climbed.climbFromStarts()
		if c := approxCompare(climbed.bestAt.ms, exact.bestAt.ms); c != 0 {
			missed++
			worst = max(worst, climbed.bestAt.ms/exact.bestAt.ms-1)
		}
	}
	t.Logf("%d of %d missed, by at most %.1f %%", missed, n, 100*worst)
	if missed*20 > n || worst > 0.1 {
		t.Errorf("%d of %d missed, by up to %.1f %%", missed, n, 100*worst)
	}
}
