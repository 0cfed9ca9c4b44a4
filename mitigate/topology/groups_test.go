package topology

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/failslow/falcon"
)

// bruteGroups is the least time over all permutations of the groups, with the best split.
func bruteGroups(p Problem) float64 {
	size := p.Model.Layout.TP
	n := len(p.Now) / size
	perm := make([]int, n)
	best := math.Inf(1)
	for i := range perm {
		perm[i] = i
	}
	var all func(k int)
	all = func(k int) {
		if k < n {
			for i := k; i < n; i++ {
				perm[k], perm[i] = perm[i], perm[k]
				all(k + 1)
				perm[k], perm[i] = perm[i], perm[k]
			}
			return
		}
		at := make(falcon.Placement, len(p.Now))
		for u, q := range perm {
			copy(at[u*size:(u+1)*size], p.Now[q*size:(q+1)*size])
		}
		best = min(best, bruteSplit(p, at))
	}
	all(0)
	return best
}

// The search for single groups rarely misses the best of all permutations, and never takes one
// for better than the model says.
func TestGroupsAgainstAllPermutations(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 3))
	played, missed, beaten := 0, 0, 0
	for played < 120 {
		p := random(r, 5)
		if n := len(p.Now) / p.Model.Layout.TP; n > 6 || n == len(p.Now.Nodes()) {
			continue
		}
		x, err := newExchange(p)
		if err != nil {
			t.Fatal(err)
		}
		played++
		x.run()
		plan := x.makePlan()
		want := bruteGroups(p)
		if got := bruteSplit(p, plan.Placement); approxCompare(got, plan.AfterSplitMs) != 0 {
			t.Fatalf("%+v\n%+v: %v ms by all splits", p, plan, got)
		}
		if approxCompare(plan.AfterSplitMs, want) != 0 {
			missed++
		}
		nodes, err := p.searchNodes()
		if err == nil && approxCompare(want, nodes.AfterSplitMs) < 0 ||
			errors.Is(err, ErrNoGain) && approxCompare(want, plan.BeforeSplitMs) < 0 {
			beaten++
		}
		checkGroups(t, p, plan)
	}
	t.Logf("%d of %d missed; single groups can do better than whole nodes in %d", missed, played, beaten)
	if missed*20 > played || beaten < 10 {
		t.Errorf("%d of %d missed, %d better than whole nodes", missed, played, beaten)
	}
}

// checkGroups: placement, blocks and swaps of a plan say the same.
func checkGroups(t *testing.T, p Problem, plan Plan) {
	t.Helper()
	size := p.Model.Layout.TP
	for q, u := range plan.Blocks {
		for i := range size {
			if plan.Placement[int(u)*size+i] != p.Now[q*size+i] {
				t.Fatalf("blocks %v, placement %v of %v", plan.Blocks, plan.Placement, p.Now)
			}
		}
	}
	at := slices.Clone(p.Now) // who holds which place, swapped pair by pair
	for _, s := range plan.Preview.Groups {
		a := slices.Index(p.Now, s[0])
		b := slices.Index(p.Now, s[1])
		for i := range size {
			at[a+i], at[b+i] = at[b+i], at[a+i]
		}
	}
	for q, u := range plan.Blocks { // the group on place q came from place u
		if at[q*size] != p.Now[int(u)*size] {
			t.Fatalf("swaps %v lead to %v, blocks %v", plan.Preview.Groups, at, plan.Blocks)
		}
	}
}

// On two nodes both orders are alike. Where gradients cross the slow link between them, single
// groups are exchanged until only activations do.
func TestTwoNodes(t *testing.T) {
	mesh, err := falcon.NewMesh(
		falcon.Dim{Name: falcon.DimPP, Size: 4},
		falcon.Dim{Name: falcon.DimDP, Size: 4},
	)
	if err != nil {
		t.Fatal(err)
	}
	p := square(4, 4, 8)
	p.Model.Layout = falcon.LayoutOf(mesh)
	for r := range p.Now {
		p.Now[r] = falcon.NewDevice(falcon.Node(fmt.Sprintf("n%d", r/8)), r%8)
	}
	p.Model.Links.IntraMBs = 100_000
	p.Model.Links.InterMBs = 1000
	p.Model.PPMB = 0.02
	p.MinGain = 0.03
	for s := range p.Model.DPMB {
		p.Model.DPMB[s] = 2
	}
	slow := p.slowDown(0, 8, 4)
	if _, err := p.searchNodes(); !errors.Is(err, ErrNoGain) {
		t.Errorf("whole nodes: %v", err)
	}
	plan, err := Search(p)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(plan.Preview.Left[falcon.DimDP], slow) ||
		len(plan.Preview.Swaps) != 0 ||
		len(plan.Preview.Groups) != 4 {
		t.Errorf("%+v", plan.Preview)
	}
	if healthy := p.healthyMs(); plan.AfterMs > healthy {
		t.Errorf("%.2f ms afterwards, %.2f when nothing is slow", plan.AfterMs, healthy)
	}
	// From there, nothing better; once the link is healthy, nothing worse than the way back.
	p.Now = plan.Placement
	if _, err := Search(p); !errors.Is(err, ErrNoGain) {
		t.Errorf("again: %v", err)
	}
}

// Groups that have traffic of their own within the data-parallel dimension stay together.
func TestGroupsThatStayTogether(t *testing.T) {
	p := square(4, 2, 8)
	p.Model.Layout.CP = 2
	for r := range p.Now {
		p.Now[r] = falcon.NewDevice(falcon.Node(fmt.Sprintf("n%d", r/4)), r%4)
	}
	if _, err := newExchange(p); !errors.Is(err, ErrShape) {
		t.Errorf("%v", err)
	}
}
