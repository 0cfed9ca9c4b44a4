package mesh

import (
	"cmp"
	"slices"

	"github.com/failslow/falcon"
)

// What separates the calls of one kind from those of another.
const (
	// all-gathers for each reduce-scatter: FSDP has nearly 2, tensor parallel at most 1.5
	shardRatio    = 1.6
	sequenceRatio = 1.25 // the same: sequence parallel has 1.5, a shard that keeps what it has gathered 1
	farMore       = 8    // times the gradient's calls: inside the micro-batches
	more          = 2    // the same, where the calls have other marks of tensor parallel
	fewOf         = 4    // calls of which the gradient makes at most one
	mostlyAlike   = 0.8  // share of calls of one size: activations
	hardlyAlike   = 0.6  // below it: not activations alone
	// calls that have a size of their own: parameters. What is inside is done forward and backward
	ownSizes      = 2
	gradientCalls = 2 // inside a micro-batch there are more
)

// Infer is the mesh of a job of world ranks, from the communicators of each and what
// they carry in a steady iteration. Its error wraps ErrUnsure and is one sentence.
func Infer(
	world int,
	comms map[falcon.Rank][]falcon.Comm,
	traffic map[falcon.Rank][]falcon.Traffic,
) (falcon.Mesh, error) {
	in := reader{world: world, comms: comms, traffic: traffic}
	if err := in.readMembers(); err != nil {
		return falcon.Mesh{}, err
	}
	groups, err := in.readGroups()
	if err != nil {
		return falcon.Mesh{}, err
	}
	if len(groups) == 0 {
		return falcon.Mesh{}, unsure("they carry no tensors so far")
	}
	s := solver{world: world}
	for _, step := range []func([]*family) ([]*family, error){
		s.findPipeline,
		s.findMarked,
		s.findShards,
		s.splitRest,
	} {
		left, err := step(s.left(groups))
		if err != nil {
			return falcon.Mesh{}, err
		}
		s.open = left
	}
	return s.mesh()
}

// solver assigns families to dimensions.
type solver struct {
	world                int
	pp, tp, cp, ep, fsdp *family
	gradient             []*family
	gradientByPP         bool // pp is one only if there is a gradient elsewhere
	started              bool
	open                 []*family // not assigned so far
}

func (s *solver) left(groups []group) []*family {
	if !s.started {
		s.started, s.open = true, familiesOf(groups)
	}
	return s.open
}

// findPipeline finds the stages: everything else is within one.
func (s *solver) findPipeline(open []*family) ([]*family, error) {
	for _, f := range open {
		if f.sends == 0 || f.ring {
			continue
		}
		if f.size() == 2 && !f.coversAll(s.world) {
			f = chained(f)
		}
		if f == nil || s.pp != nil && within(f, s.pp) {
			continue
		}
		if f.size() == 2 &&
			slices.ContainsFunc(open, func(g *family) bool {
				return g.collectives() > 0 && g.contains(f)
			}) {
			continue // a pair whose gradients are reduced together is in one stage
		}
		if s.pp != nil && !within(s.pp, f) {
			return nil, unsure("%v and %v both send to each other in both directions", s.pp, f)
		}
		s.pp = f
	}
	if s.pp == nil {
		return open, nil
	}
	s.gradientByPP = s.pp.size() == 2 && s.pp.collectives() > 0
	if !s.pp.coversAll(s.world) {
		return nil, unsure("only some ranks send and receive as pipeline stages do, such as %v", s.pp)
	}
	stage := s.stages()
	var out []*family
	for _, f := range open {
		if within(f, s.pp) {
			continue // the pipeline itself, and embeddings that its ends share
		}
		for _, g := range f.groups {
			if slices.ContainsFunc(g.ranks, func(r falcon.Rank) bool {
				return stage[r] != stage[g.ranks[0]]
			}) {
				return nil, unsure("%v carry tensors between pipeline stages other than by sending", f)
			}
		}
		out = append(out, f)
	}
	return out, nil
}

// within reports whether f's groups are, group by group, among g's members.
func within(f, g *family) bool {
	return slices.Equal(f.offsets, g.offsets) || g.contains(f)
}

// chained joins pairs that overlap into the chains that they form; nil where they
// form none of one length.
func chained(f *family) *family {
	next := map[falcon.Rank]falcon.Rank{}
	second := map[falcon.Rank]bool{}
	for _, g := range f.groups {
		a := min(g.ranks[0], g.ranks[1])
		b := max(g.ranks[0], g.ranks[1])
		next[a], second[b] = b, true
	}
	out := &family{carried: f.carried}
	for _, g := range f.groups {
		at := min(g.ranks[0], g.ranks[1])
		if second[at] {
			continue
		}
		chain := []falcon.Rank{at}
		for to, ok := next[at]; ok; to, ok = next[to] {
			chain = append(chain, to)
		}
		if len(out.groups) > 0 && len(chain) != len(out.groups[0].ranks) {
			return nil
		}
		out.groups = append(out.groups, group{chain, g.carried})
	}
	for _, r := range out.groups[0].ranks {
		out.offsets = append(out.offsets, int(r-out.groups[0].ranks[0]))
	}
	return out
}

// stages is the stage of each rank.
func (s *solver) stages() []int {
	out := make([]int, s.world)
	for _, g := range s.pp.groups {
		members := slices.Sorted(slices.Values(g.ranks))
		for i, r := range members {
			out[r] = i
		}
	}
	return out
}

// findMarked finds the dimensions that their operations show: rings and all-to-all.
// Their ranks may reduce the gradient as well.
func (s *solver) findMarked(open []*family) ([]*family, error) {
	var out []*family
	for _, f := range open {
		if !f.coversAll(s.world) {
			return nil, unsure("%v carry tensors, and other ranks have no group like it", f)
		}
		var into **family
		switch {
		case f.allToAll > 0:
			into = &s.ep
		case f.sends > 0:
			into = &s.cp
		}
		if into != nil {
			if *into != nil {
				return nil, unsure("%v and %v carry the same operations", *into, f)
			}
			*into = f
		}
		if f.collectives() > 0 {
			out = append(out, f)
		}
	}
	return out, nil
}

// findShards finds FSDP's shard with HSDP's replicas, and context parallel by
// all-gathers.
func (s *solver) findShards(open []*family) ([]*family, error) {
	rest := slices.Clone(open)
	drop := func(f *family) {
		rest = slices.DeleteFunc(rest, func(o *family) bool { return o == f })
	}
	for _, f := range open {
		if f.scatter <= gradientCalls || float64(f.gather) < shardRatio*float64(f.scatter) {
			continue
		}
		whole := slices.IndexFunc(open, func(g *family) bool {
			return g.contains(f)
		})
		switch {
		case f.allReduce > 0 || f == s.ep || f == s.cp:
			return nil, unsure("%v gather and scatter as a shard does, and communicate in other ways", f)
		case whole >= 0 && s.cp == nil:
			s.cp = f
		case whole < 0 && s.fsdp == nil:
			s.fsdp = f
		default:
			return nil, unsure("%v gather and scatter twice as a shard does", f)
		}
		drop(f)
	}
	if s.fsdp == nil {
		return rest, nil
	}
	for _, g := range slices.Clone(rest) {
		if g.gather+g.scatter == 0 &&
			near(g.allReduce, s.fsdp.scatter) &&
			apart(g, s.fsdp) {
			s.gradient = append(s.gradient, g)
			drop(g)
		}
	}
	return rest, nil
}

// near reports whether two counts differ by an eighth at most.
func near(a, b int) bool {
	return 8*max(a-b, b-a) <= max(a, b, 8)
}

// apart reports whether two families' groups share one rank at most.
func apart(f, g *family) bool {
	return g == nil ||
		!slices.ContainsFunc(f.offsets[1:], func(o int) bool {
			return slices.Contains(g.offsets, o)
		})
}

// splitRest tells tensor parallel from the gradient.
func (s *solver) splitRest(open []*family) ([]*family, error) {
	slices.SortStableFunc(open, func(a, b *family) int {
		return cmp.Compare(b.collectives(), a.collectives())
	})
	inside := s.insideCalls()
	if len(open) > 0 && s.isTensor(open, inside) {
		s.tp, open = open[0], open[1:]
		inside = max(inside, s.tp.collectives())
	}
	for _, f := range open {
		if f.varies {
			return nil, unsure("%v call with sizes that change from iteration to iteration", f)
		}
		if !s.isGradient(f, inside, len(open) == 1) {
			return nil, unsure(
				"%v make %d calls in an iteration, which may be the gradient's or those inside micro-batches",
				f, f.collectives(),
			)
		}
		s.gradient = append(s.gradient, f)
	}
	return nil, nil
}

// isGradient reports whether a family's calls are so few that they are not inside the
// micro-batches. A shard that keeps what it has gathered calls as seldom as the
// gradient of a distributed optimizer does, for each layer.
func (s *solver) isGradient(f *family, inside int, alone bool) bool {
	calls := f.collectives()
	switch {
	case calls <= gradientCalls || s.pp != nil && calls < s.pp.sends:
		return true
	case f.gather+f.scatter > 0:
		return farMore*calls <= inside
	case inside == 0 && alone && f.single >= ownSizes:
		return true
	}
	return fewOf*calls <= inside || s.tp != nil && more*calls <= s.tp.collectives()
}

// insideCalls is how many calls the dimensions found so far make inside the
// micro-batches.
func (s *solver) insideCalls() int {
	out := 0
	for _, f := range []*family{s.cp, s.ep, s.fsdp} {
		if f != nil {
			out = max(out, f.allToAll, f.sends)
			if f == s.fsdp || f.sends == 0 && f == s.cp {
				out = max(out, f.gather)
			}
		}
	}
	return out
}

// isTensor reports whether the first of some families, which has most calls, is tensor
// parallel.
func (s *solver) isTensor(open []*family, inside int) bool {
	f := open[0]
	shard := f.scatter > 0 &&
		f.broadcast == 0 &&
		float64(f.gather) < sequenceRatio*float64(f.scatter)
	if f == s.ep || f == s.cp || f.stride() == 0 || shard {
		return false
	}
	next := 0
	if len(open) > 1 {
		next = open[1].collectives()
	}
	calls := f.collectives()
	switch {
	case next > 0 && calls >= farMore*next && f.alike >= hardlyAlike:
		return true
	case f.alike < mostlyAlike || calls < more*next || calls <= gradientCalls:
		return false
	case inside > 0 && calls > inside, f.broadcast > 0 && more*calls >= inside:
		return true
	}
	return next > 0 && f.stride() == 1
}

// axis is a dimension with where its ranks are.
type axis struct {
	name   falcon.Dimension
	stride int
	size   int
}

// mesh puts the dimensions together, and checks that they explain every group.
func (s *solver) mesh() (falcon.Mesh, error) {
	dense, edp, err := s.denseGradient()
	if err != nil {
		return falcon.Mesh{}, err
	}
	var axes []axis
	for name, f := range map[falcon.Dimension]*family{
		falcon.DimTP:   s.tp,
		falcon.DimCP:   s.cp,
		falcon.DimFSDP: s.fsdp,
		falcon.DimPP:   s.pp,
	} {
		if f == nil {
			continue
		}
		if f.stride() == 0 {
			return falcon.Mesh{}, unsure("%v are not evenly apart", f)
		}
		axes = append(axes, axis{name, f.stride(), f.size()})
	}
	if dense != nil {
		dp, ok := s.replicas(dense)
		if !ok {
			return falcon.Mesh{}, unsure("%v are not context-parallel groups evenly apart", dense)
		}
		axes = append(axes, dp...)
	}
	slices.SortFunc(axes, func(a, b axis) int {
		return cmp.Compare(a.stride, b.stride)
	})
	next := 1
	var dims []falcon.Dim
	for _, a := range axes {
		if a.stride != next {
			return falcon.Mesh{}, unsure("ranks %d and %d have no group that says how they are related",
				0, next)
		}
		next *= a.size
		dims = append(dims, falcon.Dim{Name: a.name, Size: a.size})
	}
	if next != s.world {
		return falcon.Mesh{}, unsure("they relate %d of %d ranks", next, s.world)
	}
	m, err := falcon.NewMesh(s.withExperts(dims)...)
	if err != nil {
		return falcon.Mesh{}, unsure("%v", err)
	}
	return m, s.verify(falcon.LayoutOf(m), dense, edp)
}

// denseGradient are the families that reduce the gradients of all layers but the
// experts, and of the experts.
func (s *solver) denseGradient() (dense, edp *family, err error) {
	stage, inner := s.world/s.pp.size(), s.tp.size()*s.fsdp.size()
	for _, f := range s.gradient {
		switch {
		case dense == nil && f.size()*inner == stage && apart(f, s.tp):
			dense = f
		case s.ep != nil && edp == nil && apart(f, s.ep):
			edp = f
		default:
			return nil, nil, unsure("%v reduce, and it is not clear which gradients", f)
		}
	}
	switch {
	case s.ep != nil && dense == nil:
		return nil, nil, unsure(
			"%v exchange all-to-all, and no ranks reduce the gradients of the other layers",
			s.ep,
		)
	case s.ep != nil &&
		edp == nil &&
		(s.ep.size()*max(s.ep.stride(), 1) != stage || s.ep.even && dense == s.ep):
		return nil, nil, unsure("%v exchange all-to-all: experts, or parts of the context", s.ep)
	case s.cp != nil && dense != s.cp && (dense == nil || !dense.contains(s.cp)):
		return nil, nil, unsure(
			"%v exchange as context-parallel ranks do, and do not reduce gradients together",
			s.cp,
		)
	case s.gradientByPP && dense == nil:
		return nil, nil, unsure("%v send to each other and reduce: two stages, or one", s.pp)
	}
	return dense, edp, nil
}

// replicas is the dp axis of a gradient family, without what is context parallel in it.
func (s *solver) replicas(dense *family) ([]axis, bool) {
	inner := []int{0}
	if s.cp != nil {
		inner = s.cp.offsets
	}
	n := dense.size() / len(inner)
	if n == 1 {
		return nil, true
	}
	first := slices.IndexFunc(dense.offsets, func(o int) bool {
		return !slices.Contains(inner, o)
	})
	a := axis{falcon.DimDP, dense.offsets[first], n}
	var sums []int
	for i := range n {
		for _, o := range inner {
			sums = append(sums, o+i*a.stride)
		}
	}
	slices.Sort(sums)
	return []axis{a}, slices.Equal(sums, dense.offsets)
}

// withExperts adds ep, and etp where it is not tp, behind the dimensions that experts
// are spread over.
func (s *solver) withExperts(dims []falcon.Dim) []falcon.Dim {
	if s.ep == nil {
		return dims
	}
	at := 0
	for i, d := range dims {
		if d.Name == falcon.DimTP || d.Name == falcon.DimCP {
			at = i + 1
		}
	}
	return slices.Insert(
		slices.Clone(dims),
		at,
		falcon.Dim{Name: falcon.DimETP, Size: max(1, s.ep.stride())},
		falcon.Dim{Name: falcon.DimEP, Size: s.ep.size()},
	)
}

// verify checks that every group is one of the layout, and that no unit of it talks
// with another inside a micro-batch.
func (s *solver) verify(l falcon.Layout, dense, edp *family) error {
	for name, f := range map[falcon.Dimension]*family{
		falcon.DimTP:   s.tp,
		falcon.DimCP:   s.cp,
		falcon.DimFSDP: s.fsdp,
		falcon.DimPP:   s.pp,
		falcon.DimEP:   s.ep,
		falcon.DimEDP:  edp,
	} {
		if f == nil {
			continue
		}
		for _, g := range f.groups {
			members := slices.Sorted(slices.Values(g.ranks))
			if !slices.Equal(l.Peers(members[0], name), members) {
				return unsure("ranks %v are no group of %s in %v", g.ranks, name, l)
			}
			apart := slices.ContainsFunc(members, func(r falcon.Rank) bool {
				return l.Replica(r) != l.Replica(members[0])
			})
			if apart && name != falcon.DimEDP {
				return unsure("ranks %v talk inside a micro-batch, and are in several replicas of %v",
					g.ranks, l)
			}
		}
	}
	if dense != nil {
		for _, g := range dense.groups {
			got := slices.Sorted(slices.Values(g.ranks))
			want := gradientRanks(l, g.ranks[0])
			if !slices.Equal(got, want) {
				return unsure("ranks %v reduce gradients, in %v these are %v", got, l, want)
			}
		}
	}
	return nil
}

// gradientRanks are those that reduce gradients with r: along dp and cp.
func gradientRanks(l falcon.Layout, r falcon.Rank) []falcon.Rank {
	var out []falcon.Rank
	for _, p := range l.Peers(r, falcon.DimDP) {
		out = append(out, l.Peers(p, falcon.DimCP)...)
	}
	slices.Sort(out)
	return out
}
