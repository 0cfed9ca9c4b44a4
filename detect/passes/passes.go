package passes

import (
	"math/bits"
	"slices"

	"github.com/failslow/falcon"
)

// Pair is two ranks that exchange messages in both directions, lower rank first.
type Pair [2]falcon.Rank

// NewPair sorts the two ranks.
func NewPair(a, b falcon.Rank) Pair {
	return Pair{min(a, b), max(a, b)}
}

// Pass is a set of pairs that share no rank and exchange at the same time.
type Pass struct {
	Pairs []Pair
	Extra bool // only there because its pairs would share a port with others
}

// Ring covers every neighbouring pair of a ring: even positions with the next,
// odd positions with the next, and with an odd number of members the pair that
// closes the ring (FALCON §4.4, "Communication validation"). Members that are
// listed again are left out; fewer than two need no pass.
func Ring(members []falcon.Rank) []Pass {
	m := distinct(members)
	n := len(m)
	switch {
	case n < 2:
		return nil
	case n == 2:
		return []Pass{{Pairs: []Pair{NewPair(m[0], m[1])}}}
	}
	var even, odd Pass
	for i := 0; i+1 < n; i += 2 {
		even.Pairs = append(even.Pairs, NewPair(m[i], m[i+1]))
	}
	for i := 1; i+1 < n; i += 2 {
		odd.Pairs = append(odd.Pairs, NewPair(m[i], m[i+1]))
	}
	closing := NewPair(m[n-1], m[0])
	if n%2 == 0 {
		odd.Pairs = append(odd.Pairs, closing)
		return []Pass{even, odd}
	}
	return []Pass{even, odd, {Pairs: []Pair{closing}}}
}

// Tree covers every edge between a child and its parent in the binary tree
// over the members' positions: left children at even depths, right children at
// even depths, then both at odd depths (FALCON §4.4, figure 9). A child has one
// parent and a parent one child on each side, so a pass shares no rank. The
// tree is the one that NCCL builds over a group (position 0 at the root with
// one child, the others in order below it). Passes without pairs are left out.
func Tree(members []falcon.Rank) []Pass {
	m := distinct(members)
	out := make([]Pass, 4)
	for i := 1; i < len(m); i++ {
		up := treeParent(i, len(m))
		pass := 2 * (treeDepth(i, len(m)) % 2)
		if i > up && up != 0 {
			pass++
		}
		out[pass].Pairs = append(out[pass].Pairs, NewPair(m[i], m[up]))
	}
	return slices.DeleteFunc(out, func(p Pass) bool {
		return len(p.Pairs) == 0
	})
}

// treeParent is the position above i > 0 in the in-order tree of n positions:
// positions with k trailing zero bits hang under one with k+1, as long as that
// one exists, and otherwise under the one that their own subtree begins at.
func treeParent(i, n int) int {
	low := 1 << bits.TrailingZeros(uint(i))
	if up := (i ^ low) | low<<1; up < n {
		return up
	}
	return i ^ low
}

func treeDepth(i, n int) int {
	d := 0
	for ; i > 0; i = treeParent(i, n) {
		d++
	}
	return d
}

// Pairs spreads a list of pairs over passes, each pair into the first pass
// that has neither of its ranks: at most 2Δ−1 passes where no rank is in more
// than Δ pairs. Repeated pairs, and pairs of a rank with itself, are left out.
func Pairs(list []Pair) []Pass {
	seen := map[Pair]bool{}
	var out []*passRoom
	for _, p := range list {
		p = NewPair(p[0], p[1])
		if p[0] != p[1] && !seen[p] {
			seen[p] = true
			out = placePair(out, p, nil, false)
		}
	}
	return passesOf(out)
}

// passRoom is a pass in the making, with who and what takes part in it already.
type passRoom struct {
	pass  Pass
	ranks map[falcon.Rank]bool
	ports map[string]bool
}

func newRoom(extra bool) *passRoom {
	return &passRoom{
		pass:  Pass{Extra: extra},
		ranks: map[falcon.Rank]bool{},
		ports: map[string]bool{},
	}
}

func (x *passRoom) hasRoomFor(p Pair, ports []string) bool {
	return !x.ranks[p[0]] &&
		!x.ranks[p[1]] &&
		!slices.ContainsFunc(ports, func(n string) bool { return x.ports[n] })
}

func (x *passRoom) addPair(p Pair, ports []string) {
	x.pass.Pairs = append(x.pass.Pairs, p)
	x.ranks[p[0]], x.ranks[p[1]] = true, true
	for _, n := range ports {
		x.ports[n] = true
	}
}

// placePair puts a pair into the first pass with room for it, or a new one.
func placePair(list []*passRoom, p Pair, ports []string, extra bool) []*passRoom {
	i := slices.IndexFunc(list, func(x *passRoom) bool {
		return x.hasRoomFor(p, ports)
	})
	if i < 0 {
		i = len(list)
		list = append(list, newRoom(extra))
	}
	list[i].addPair(p, ports)
	return list
}

func passesOf(list []*passRoom) []Pass {
	var out []Pass
	for _, x := range list {
		out = append(out, x.pass)
	}
	return out
}

// Plan is the schedule of a whole request. Groups that share no rank run in
// the same passes, so that their number does not grow with the number of
// groups either; a pair that several groups have is tested once.
func Plan(ask falcon.ValidationAsk) []Pass {
	var b blocks
	for _, g := range ask.Rings {
		b.addSchedule(Ring(g))
	}
	for _, g := range ask.Trees {
		b.addSchedule(Tree(g))
	}
	list := make([]Pair, len(ask.Pairs))
	for i, p := range ask.Pairs {
		list[i] = Pair(p)
	}
	b.addSchedule(Pairs(list))
	return b.allPasses()
}

// block is a stretch of passes that several schedules run in side by side.
type block struct {
	ranks  map[falcon.Rank]bool
	passes []Pass
}

type blocks struct {
	list []*block
	seen map[Pair]bool
}

func (b *blocks) addSchedule(schedule []Pass) {
	schedule = b.uncoveredPairs(schedule)
	if len(schedule) == 0 {
		return
	}
	i := slices.IndexFunc(b.list, func(x *block) bool {
		return x.disjoint(schedule)
	})
	if i < 0 {
		i = len(b.list)
		b.list = append(b.list, &block{ranks: map[falcon.Rank]bool{}})
	}
	b.list[i].mergeSchedule(schedule)
}

// uncoveredPairs leaves out the pairs that an earlier schedule covers.
func (b *blocks) uncoveredPairs(schedule []Pass) []Pass {
	if b.seen == nil {
		b.seen = map[Pair]bool{}
	}
	var out []Pass
	for _, p := range schedule {
		p.Pairs = slices.DeleteFunc(p.Pairs, func(x Pair) bool {
			return b.seen[x]
		})
		if len(p.Pairs) > 0 {
			out = append(out, p)
		}
	}
	for _, p := range out {
		for _, x := range p.Pairs {
			b.seen[x] = true
		}
	}
	return out
}

func (x *block) disjoint(schedule []Pass) bool {
	for _, p := range schedule {
		for _, q := range p.Pairs {
			if x.ranks[q[0]] || x.ranks[q[1]] {
				return false
			}
		}
	}
	return true
}

func (x *block) mergeSchedule(schedule []Pass) {
	for i, p := range schedule {
		if i == len(x.passes) {
			x.passes = append(x.passes, Pass{})
		}
		x.passes[i].Pairs = append(x.passes[i].Pairs, p.Pairs...)
		for _, q := range p.Pairs {
			x.ranks[q[0]], x.ranks[q[1]] = true, true
		}
	}
}

func (b *blocks) allPasses() []Pass {
	var out []Pass
	for _, x := range b.list {
		out = append(out, x.passes...)
	}
	return out
}

func distinct(members []falcon.Rank) []falcon.Rank {
	seen := make(map[falcon.Rank]bool, len(members))
	out := make([]falcon.Rank, 0, len(members))
	for _, r := range members {
		if !seen[r] {
			seen[r] = true
			out = append(out, r)
		}
	}
	return out
}

// Split moves pairs that would share a network port with an earlier pair of
// their pass into extra passes behind all others. nic names the port that a
// rank's traffic leaves by ("n1.nic0"); a pair within one node needs none, and
// ranks with an empty name are taken to share nothing.
func Split(in []Pass, nic func(falcon.Rank) string) []Pass {
	var keep, extra []*passRoom
	for _, p := range in {
		x := newRoom(p.Extra)
		keep = append(keep, x)
		for _, q := range p.Pairs {
			if wants := pairPorts(q, nic); x.hasRoomFor(q, wants) {
				x.addPair(q, wants)
			} else {
				extra = placePair(extra, q, wants, true)
			}
		}
	}
	return passesOf(append(keep, extra...))
}

// pairPorts are the network ports that a pair's exchange goes through.
func pairPorts(x Pair, nic func(falcon.Rank) string) []string {
	a := nic(x[0])
	b := nic(x[1])
	if a != "" && b != "" && falcon.NIC(a).Node() == falcon.NIC(b).Node() {
		return nil
	}
	return slices.DeleteFunc([]string{a, b}, func(n string) bool { return n == "" })
}

// Extra counts the extra passes.
func Extra(in []Pass) int {
	n := 0
	for _, p := range in {
		if p.Extra {
			n++
		}
	}
	return n
}
