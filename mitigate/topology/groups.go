package topology

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/cost"
	"github.com/failslow/falcon/mitigate/microbatch"
)

// Exchanging whole nodes leaves together what a node holds. Where nodes hold several
// tensor-parallel groups, an exchange of single groups can keep whole rings off a slow
// link, or bring slow devices of several nodes into one replica: on two nodes nothing
// else can, as both orders of the nodes are alike.

// Bounds of the search for single groups.
const (
	groupsMost     = 256    // tensor-parallel groups of a job whose exchange is looked for
	groupSpendMost = 96_000 // groups of all placements that are priced: under a second's work
	groupClimbMost = 4      // starts that are improved
)

// exchange looks for the best places of tensor-parallel groups. A place is where a group
// is now, and has its number.
type exchange struct {
	p       Problem
	size    int            // ranks of a group
	nodes   []falcon.Node  // by place
	odd     []bool         // by place: a slow device, or a node at an end of a slow link
	coords  []falcon.Coord // by group
	bounds  microbatch.Bounds
	most    int   // micro-batches of a replica that are priced
	share   int   // even share of the batch
	priced  int   // placements
	spent   int   // groups of them
	best    []int // by place: the group on it
	bestAt  groupValue
	stateMB []float64 // by group

	simulator cost.Simulator
}

// groupValue judges a placement of groups: lower is better, in this order.
type groupValue struct {
	ms      float64 // with the best split, without the model's rest
	unrest  float64 // stages' sums and replicas' times together: shows steps that the slowest one hides
	movedMB float64
	swaps   int
	split   []int
}

// newExchange returns an error where single groups can't be exchanged.
func newExchange(p Problem) (*exchange, error) {
	l := p.Model.Layout
	x := &exchange{
		p:     p,
		size:  l.TP,
		share: (p.totalCount() + l.DP - 1) / l.DP,
	}
	n := l.World() / l.TP
	switch {
	case n > groupsMost:
		return nil, fmt.Errorf("%w: %d groups, at most %d are exchanged one by one", ErrShape, n, groupsMost)
	case l.CP > 1 || l.EP > 1 || l.TP > 1 && l.RankOf(falcon.Coord{TP: 1}) != 1:
		return nil, fmt.Errorf("%w: groups within the data-parallel dimension would be torn apart", ErrShape)
	}
	for _, d := range l.Mesh.Dims() {
		if d.Size > 1 &&
			d.Name != falcon.DimTP &&
			d.Name != falcon.DimDP &&
			d.Name != falcon.DimPP {
			return nil, fmt.Errorf("%w: groups of dimension %s would be torn apart", ErrShape, d.Name)
		}
	}
	held := map[falcon.Device]bool{}
	for u := range n {
		first := p.Now[u*x.size]
		for _, d := range p.Now[u*x.size : (u+1)*x.size] {
			if d.Node() != first.Node() || d.Node() == "" || held[d] {
				return nil, fmt.Errorf(
					"%w: the tensor-parallel group of rank %d is on several nodes, or %s holds two ranks",
					ErrShape, u*x.size, d,
				)
			}
			held[d] = true
		}
		x.nodes = append(x.nodes, first.Node())
		x.coords = append(x.coords, l.Coord(falcon.Rank(u*x.size)))
		x.stateMB = append(x.stateMB, p.stateOf(u, x.size))
	}
	x.most = min(p.totalCount(), max(curveTimes*x.share, int(slices.Max(p.MicroBatches))))
	x.bounds = p.Bounds.forSolver(l.DP)
	x.findOdd()
	return x, nil
}

// forSolver are the bounds as package microbatch takes them.
func (b Bounds) forSolver(replicas int) microbatch.Bounds {
	ints := func(v []int32) (out []int) {
		for _, m := range v {
			out = append(out, int(m))
		}
		return out
	}
	out := microbatch.Bounds{Min: ints(b.Min), Max: ints(b.Max)}
	if b.Multiple > 1 {
		out.MultipleOf = slices.Repeat([]int{int(b.Multiple)}, replicas)
	}
	return out
}

func (x *exchange) findOdd() {
	ends := map[falcon.Node]bool{}
	for _, l := range x.p.slowLinks() {
		ends[l.A], ends[l.B] = true, true
	}
	for q, n := range x.nodes {
		x.odd = append(x.odd, x.slowAt(q) > 1 || ends[n])
	}
}

// slowAt is how slow the slowest device of a place is.
func (x *exchange) slowAt(place int) float64 {
	worst := 1.0
	for _, d := range x.p.Now[place*x.size : (place+1)*x.size] {
		worst = max(worst, cost.AtLeastHealthy(x.p.Model.Slow[d]))
	}
	return worst
}

// home is every group where it is now.
func (x *exchange) home() []int {
	out := make([]int, len(x.nodes))
	for q := range out {
		out[q] = q
	}
	return out
}

// placement is the device of each rank with group at[q] on place q.
func (x *exchange) placement(at []int) falcon.Placement {
	out := make(falcon.Placement, len(x.p.Now))
	for q, u := range at {
		copy(out[u*x.size:(u+1)*x.size], x.p.Now[q*x.size:(q+1)*x.size])
	}
	return out
}

// price judges a placement by the whole model.
func (x *exchange) price(at []int) groupValue {
	x.priced++
	x.spent += len(at)
	m, placement := x.p.Model, x.placement(at)
	curves := m.CurvesBy(&x.simulator, placement, x.most)
	out := groupValue{ms: math.Inf(1), unrest: sumCounts(m.StageDPMs(placement))}
	split, ms, err := microbatch.SolveCurvesWithin(curves, x.p.totalCount(), x.bounds)
	if err == nil {
		out.ms, out.split = ms, split
	}
	for _, c := range curves {
		out.unrest += c[min(x.share, len(c)-1)] / float64(len(curves))
	}
	for q, u := range at {
		if q != u {
			out.movedMB += x.stateMB[u]
		}
	}
	out.swaps = len(swapsTo(at))
	return out
}

// compareGroups orders values.
func compareGroups(a, b groupValue) int {
	return cmp.Or(
		approxCompare(a.ms, b.ms),
		approxCompare(a.unrest, b.unrest),
		approxCompare(a.movedMB, b.movedMB),
	)
}

// try prices a placement and keeps the best: ties go to fewer bytes, fewer swaps, then to the
// order of places.
func (x *exchange) try(at []int) groupValue {
	v := x.price(at)
	better := cmp.Or(
		approxCompare(v.ms, x.bestAt.ms),
		approxCompare(v.movedMB, x.bestAt.movedMB),
		cmp.Compare(v.swaps, x.bestAt.swaps),
	)
	if x.best == nil ||
		better < 0 ||
		better == 0 && slices.Compare(at, x.best) < 0 {
		x.best = slices.Clone(at)
		x.bestAt = v
	}
	return v
}

// run looks for the best places, from where the groups are and from placements with a purpose.
func (x *exchange) run() {
	type start struct {
		at []int
		v  groupValue
	}
	var starts []start
	for _, at := range x.starts() {
		if x.spent < groupSpendMost/4 {
			starts = append(starts, start{at, x.try(at)})
		}
	}
	slices.SortStableFunc(starts, func(a, b start) int {
		return compareGroups(a.v, b.v)
	})
	for _, st := range starts[:min(groupClimbMost, len(starts))] {
		x.climb(st.at, st.v)
	}
	x.climbPerturbed()
	x.revertUnneeded()
	x.pairUp()
}

// climbPerturbed climbs again from the best placement with a few groups thrown elsewhere, always
// the same way: out of hollows from which no single exchange leads.
func (x *exchange) climbPerturbed() {
	r := rand.New(rand.NewPCG(1, 2))
	for range kickMost {
		at := slices.Clone(x.best)
		for range 2 + r.IntN(2) {
			a := r.IntN(len(at))
			b := r.IntN(len(at))
			at[a], at[b] = at[b], at[a]
		}
		x.climb(at, x.try(at))
	}
}

// climb exchanges the two groups that gain most until none do.
func (x *exchange) climb(at []int, v groupValue) {
	at = slices.Clone(at)
	for {
		a, b, better := -1, -1, v
		for q := range at {
			for r := range q {
				if !x.odd[q] && !x.odd[r] {
					continue
				}
				if x.spent >= groupSpendMost {
					return
				}
				at[q], at[r] = at[r], at[q]
				if w := x.try(at); compareGroups(w, better) < 0 {
					a = q
					b = r
					better = w
				}
				at[q], at[r] = at[r], at[q]
			}
		}
		if a < 0 {
			return
		}
		at[a], at[b] = at[b], at[a]
		v = better
	}
}

// littleShare is the share of the time that an exchange of two groups must bring to be worth
// the state that it moves.
const littleShare = 0.002

// revertUnneeded takes back exchanges that bring nothing, or so little that the best placement
// does without them.
func (x *exchange) revertUnneeded() {
	most := x.bestAt.ms * (1 + littleShare)
	for changed := true; changed; {
		changed = false
		for u := range x.best {
			if x.best[u] == u {
				continue
			}
			at := slices.Clone(x.best)
			r := slices.Index(at, u)
			at[u], at[r] = at[r], at[u]
			if v := x.price(at); v.ms <= most && v.movedMB < x.bestAt.movedMB {
				x.best = at
				x.bestAt = v
				changed = true
			}
		}
	}
}

// pairUp exchanges groups that have come to one node among themselves, where that takes fewer
// swaps: two groups that take each other's places are easier to follow than a cycle of many.
func (x *exchange) pairUp() {
	for changed := true; changed && x.spent < groupSpendMost; {
		changed = false
		for q := range x.best {
			for r := range q {
				if x.nodes[q] != x.nodes[r] || x.best[q] == q || x.best[r] == r {
					continue
				}
				at := slices.Clone(x.best)
				at[q], at[r] = at[r], at[q]
				if was := x.bestAt.swaps; len(swapsTo(at)) < was {
					x.try(at)
					changed = changed || x.bestAt.swaps < was
				}
			}
		}
	}
}

// starts are placements from which the search climbs: the present one, rings and pipelines
// gathered on the nodes at the ends of slow links, and slow devices in few replicas and stages.
func (x *exchange) starts() [][]int {
	out := [][]int{x.home()}
	for _, ends := range x.linkedNodes() {
		for _, order := range []func(falcon.Coord) [2]int{stageFirst, replicaFirst} {
			out = append(out, x.gathered(ends, order))
			slices.Reverse(ends)
			out = append(out, x.gathered(ends, order))
			slices.Reverse(ends)
		}
	}
	l := x.p.Model.Layout
	for k := range min(max(l.DP, l.PP), startMost) {
		out = append(out, x.slowIn(func(c falcon.Coord) int {
			return (c.DP - k + l.DP) % l.DP
		}), x.slowIn(func(c falcon.Coord) int {
			return (c.PP - k + l.PP) % l.PP
		}))
	}
	return out
}

func stageFirst(c falcon.Coord) [2]int {
	return [2]int{c.PP, c.DP}
}

func replicaFirst(c falcon.Coord) [2]int {
	return [2]int{c.DP, c.PP}
}

// linkedNodes are the two ends of each slow link that the job uses, and all of them together.
func (x *exchange) linkedNodes() [][]falcon.Node {
	var out [][]falcon.Node
	var all []falcon.Node
	for _, l := range x.p.slowLinks() {
		out = append(out, []falcon.Node{l.A, l.B})
		all = append(all, l.A, l.B)
	}
	if len(out) > 1 {
		slices.Sort(all)
		out = append(out[:min(len(out), startMost)], slices.Compact(all))
	}
	return out
}

// gathered puts the groups of some nodes in an order, and fills the nodes with them one after
// the other. A group that stays on its node keeps its place.
func (x *exchange) gathered(on []falcon.Node, order func(falcon.Coord) [2]int) []int {
	var groups []int
	places := map[falcon.Node][]int{}
	for q, n := range x.nodes {
		if slices.Contains(on, n) {
			groups, places[n] = append(groups, q), append(places[n], q)
		}
	}
	slices.SortStableFunc(groups, func(a, b int) int {
		ka := order(x.coords[a])
		kb := order(x.coords[b])
		return cmp.Or(cmp.Compare(ka[0], kb[0]), cmp.Compare(ka[1], kb[1]))
	})
	at := x.home()
	for _, n := range on {
		mine := groups[:len(places[n])]
		groups = groups[len(places[n]):]
		come := slices.DeleteFunc(slices.Clone(mine), func(u int) bool {
			return x.nodes[u] == n
		})
		for _, q := range places[n] {
			if !slices.Contains(mine, q) {
				at[q], come = come[0], come[1:]
			}
		}
	}
	return at
}

// slowIn puts the groups that come first by a rank of theirs on the places with slow devices,
// in exchange for those that are there.
func (x *exchange) slowIn(rank func(falcon.Coord) int) []int {
	groups := x.home()
	slices.SortStableFunc(groups, func(a, b int) int {
		return cmp.Compare(rank(x.coords[a]), rank(x.coords[b]))
	})
	var slow []int
	for q := range x.nodes {
		if x.slowAt(q) > 1 {
			slow = append(slow, q)
		}
	}
	want := groups[:len(slow)]
	at := x.home()
	for _, q := range slow {
		if slices.Contains(want, at[q]) {
			continue
		}
		for r, u := range at {
			if slices.Contains(want, u) && !slices.Contains(slow, r) {
				at[q], at[r] = at[r], at[q]
				break
			}
		}
	}
	return at
}

// makePlan spells out what was found.
func (x *exchange) makePlan() Plan {
	m := x.p.Model
	out := Plan{
		Placement: x.placement(x.best),
		Blocks:    make([]int32, len(x.best)),
		Evaluated: x.priced,
	}
	for q, u := range x.best {
		out.Blocks[q] = int32(u) //#nosec G115 -- at most groupsMost
	}
	for _, k := range x.bestAt.split {
		out.MicroBatches = append(out.MicroBatches, int32(k)) //#nosec G115 -- at most totalMost
	}
	out.BeforeMs = m.Iteration(x.p.Now, x.p.MicroBatches).IterationMs
	out.BeforeSplitMs = x.price(x.home()).ms + m.RestMs
	out.AfterMs = m.Iteration(out.Placement, x.p.MicroBatches).IterationMs
	out.AfterSplitMs = x.bestAt.ms + m.RestMs
	out.Preview = x.p.previewOf(out)
	out.Preview.Groups = x.groupSwaps()
	return out
}

// groupSwaps names the groups that are exchanged by the first devices of their places.
func (x *exchange) groupSwaps() [][2]falcon.Device {
	var out [][2]falcon.Device
	for _, s := range swapsTo(x.best) {
		out = append(out, [2]falcon.Device{x.p.Now[s.places[0]*x.size], x.p.Now[s.places[1]*x.size]})
	}
	return out
}

// exchanged are two places and what is on them, a node's block or a group, before they change.
type exchanged struct{ places, held [2]int }

// swapsTo turns the present order, in which all is on its own place, into another by exchanging
// what is on pairs of places.
func swapsTo(at []int) []exchanged {
	// what is on each place, and the reverse
	now := make([]int, len(at))
	where := make([]int, len(at))
	for q := range at {
		now[q], where[q] = q, q
	}
	var out []exchanged
	for q, want := range at {
		have, r := now[q], where[want]
		if have == want {
			continue
		}
		out = append(out, exchanged{places: [2]int{q, r}, held: [2]int{have, want}})
		now[q], now[r] = want, have
		where[want], where[have] = q, r
	}
	return out
}
