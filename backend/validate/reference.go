package validate

import (
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/passes"
)

// What a test is compared with: where too few paths of a class are asked for,
// others are tested beside them. With as many as these, three slow ones are a
// minority.
const (
	pathsWanted   = 7
	devicesWanted = 5
	nodesLooked   = 24 // for references: pairs of them are many
)

// withReferences adds to what was asked for pairs and ranks to compare with, and
// names them.
func withReferences(ask falcon.ValidationAsk, r roster) (falcon.ValidationAsk, references) {
	f := newReferenceFinder(ask, r)
	refs := references{pairs: map[passes.Pair]bool{}, ranks: map[falcon.Rank]bool{}}
	ask.Pairs = slices.Clone(ask.Pairs)
	ask.GEMM = slices.Clone(ask.GEMM)
	for _, class := range f.classes {
		for _, p := range f.pairsFor(class) {
			refs.pairs[p] = true
			ask.Pairs = append(ask.Pairs, p)
		}
	}
	if len(ask.GEMM) == 0 {
		return ask, refs
	}
	for _, rank := range f.byDistance(ask.GEMM) {
		if len(ask.GEMM) < devicesWanted {
			refs.ranks[rank] = true
			ask.GEMM = append(ask.GEMM, rank)
		}
	}
	return ask, refs
}

// references are what is tested to compare with.
type references struct {
	pairs map[passes.Pair]bool
	ranks map[falcon.Rank]bool
}

// referenceFinder finds paths of the classes that are asked for.
type referenceFinder struct {
	roster  roster
	classes []falcon.LinkClass       // asked for, in order of the plan
	paths   map[falcon.LinkClass]int // tested
	tested  map[string]bool          // by path
	uses    map[falcon.Node]int      // pairs that a node is in
}

func newReferenceFinder(ask falcon.ValidationAsk, r roster) *referenceFinder {
	f := &referenceFinder{
		roster: r,
		paths:  map[falcon.LinkClass]int{},
		tested: map[string]bool{},
		uses:   map[falcon.Node]int{},
	}
	for _, pass := range passes.Plan(ask) {
		for _, p := range pass.Pairs {
			if !r.has(p[0]) || !r.has(p[1]) {
				continue
			}
			class := r.classOf(p)
			if !slices.Contains(f.classes, class) {
				f.classes = append(f.classes, class)
			}
			f.use(p, class)
		}
	}
	return f
}

func (f *referenceFinder) use(p passes.Pair, class falcon.LinkClass) {
	if path := f.roster.pathOf(p); !f.tested[path] {
		f.tested[path] = true
		f.paths[class]++
	}
	for _, rank := range p {
		f.uses[f.roster.nodeOf(rank)]++
	}
}

// pairsFor are the pairs that a class lacks, on the nodes that are used least:
// those exchange at the same time as the others.
func (f *referenceFinder) pairsFor(class falcon.LinkClass) []passes.Pair {
	var out []passes.Pair
	candidates := f.candidates(class)
	for f.paths[class] < pathsWanted {
		best := passes.Pair{}
		found := false
		for _, p := range candidates {
			if !f.tested[f.roster.pathOf(p)] && (!found || f.cost(p) < f.cost(best)) {
				best, found = p, true
			}
		}
		if !found {
			break
		}
		f.use(best, class)
		out = append(out, best)
	}
	return out
}

func (f *referenceFinder) cost(p passes.Pair) int {
	return f.uses[f.roster.nodeOf(p[0])] + f.uses[f.roster.nodeOf(p[1])]
}

// candidates are pairs of a class, one for each path, on a bounded number of nodes.
func (f *referenceFinder) candidates(class falcon.LinkClass) []passes.Pair {
	nodes := slices.Clone(f.roster.nodes)
	slices.SortStableFunc(nodes, func(a, b falcon.Node) int {
		return f.uses[a] - f.uses[b]
	})
	nodes = nodes[:min(len(nodes), nodesLooked)]
	var out []passes.Pair
	for i, a := range nodes {
		if class == falcon.LinkIntraNode {
			out = append(out, neighbours(f.roster.ranksOf[a])...)
			continue
		}
		for _, b := range nodes[i+1:] {
			if p, ok := f.roster.pairOf(a, b, class); ok {
				out = append(out, p)
			}
		}
	}
	return out
}

func neighbours(ranks []falcon.Rank) []passes.Pair {
	var out []passes.Pair
	for i := 0; i+1 < len(ranks); i++ {
		out = append(out, passes.NewPair(ranks[i], ranks[i+1]))
	}
	return out
}

// byDistance lists the ranks that are not named, those of other nodes first.
func (f *referenceFinder) byDistance(named []falcon.Rank) []falcon.Rank {
	nodes := map[falcon.Node]bool{}
	for _, r := range named {
		if f.roster.has(r) {
			nodes[f.roster.nodeOf(r)] = true
		}
	}
	var far, near []falcon.Rank
	for i := range f.roster.members {
		switch r := falcon.Rank(i); {
		case slices.Contains(named, r):
		case nodes[f.roster.nodeOf(r)]:
			near = append(near, r)
		case len(far) < devicesWanted:
			far = append(far, r)
		}
	}
	return append(far, near...)
}

// has reports whether a rank that was asked for is one of the job's.
func (r roster) has(rank falcon.Rank) bool {
	return rank >= 0 && int(rank) < len(r.members)
}

func (r roster) classOf(p passes.Pair) falcon.LinkClass {
	a := r.members[p[0]]
	b := r.members[p[1]]
	return passes.Class(a.Device, b.Device, a.NIC, b.NIC)
}

func (r roster) pathOf(p passes.Pair) string {
	return falcon.PathBetween(r.members[p[0]].Device, r.members[p[1]].Device)
}

// pairOf is a pair of ranks between two nodes that is of a class.
func (r roster) pairOf(a, b falcon.Node, class falcon.LinkClass) (passes.Pair, bool) {
	for _, x := range r.ranksOf[a] {
		for _, y := range r.ranksOf[b] {
			if p := passes.NewPair(x, y); r.classOf(p) == class {
				return p, true
			}
		}
	}
	return passes.Pair{}, false
}
