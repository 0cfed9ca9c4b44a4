package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/failslow/falcon"
)

// ErrUnsure is wrapped by every answer that is no mesh.
var ErrUnsure = errors.New("the communicators do not show the layout")

func unsure(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnsure, fmt.Sprintf(format, args...))
}

// scalarBytes is the payload per call below which a communicator carries no tensors:
// norms, losses, counts and barriers.
const scalarBytes = 512

// carried is what a set of ranks, or a typical one of a family, carries in an
// iteration of one member.
type carried struct {
	allReduce, gather, scatter, allToAll, broadcast, sends int

	alike  float64 // share of the collective calls that have the most frequent size
	single int     // sizes that one collective call alone has
	varies bool    // sizes of collective calls change from iteration to iteration
	ring   bool    // sends go one way around
	even   bool    // what goes all-to-all is alike
}

// collectives are the calls that reduce or gather.
func (c carried) collectives() int {
	return c.allReduce + c.gather + c.scatter
}

// group is a set of ranks with communicators of its own.
type group struct {
	ranks []falcon.Rank // by rank in the communicator
	carried
}

// family is the groups with equal distances between their members.
type family struct {
	offsets []int // of the members, ascending, from the first
	groups  []group
	carried // median over the groups
}

// size is how many members a group has, 1 of no family.
func (f *family) size() int {
	if f == nil {
		return 1
	}
	return len(f.offsets)
}

// stride is the distance of neighbours, 0 where they are not evenly apart.
func (f *family) stride() int {
	for i, o := range f.offsets {
		if o != i*f.offsets[1] {
			return 0
		}
	}
	return f.offsets[1]
}

// contains reports whether g's members are, group by group, among f's, which has more.
func (f *family) contains(g *family) bool {
	return f.size() > g.size() &&
		!slices.ContainsFunc(g.offsets, func(o int) bool {
			return !slices.Contains(f.offsets, o)
		})
}

func (f *family) String() string {
	return fmt.Sprintf("ranks %v and their like", f.groups[0].ranks)
}

// reader gathers what the ranks report.
type reader struct {
	world   int
	comms   map[falcon.Rank][]falcon.Comm
	traffic map[falcon.Rank][]falcon.Traffic
	members map[uint64][]falcon.Rank // by communicator and rank in it; -1 = not reported
	alone   map[uint64]bool          // communicators of one rank
}

// readMembers finds who is in each communicator.
func (in *reader) readMembers() error {
	in.members = map[uint64][]falcon.Rank{}
	in.alone = map[uint64]bool{}
	for r := range falcon.Rank(in.world) {
		for i, c := range in.comms[r] {
			if c.Size < 2 {
				in.alone[c.ID] = true
				continue
			}
			again := slices.ContainsFunc(in.comms[r][:i], func(o falcon.Comm) bool {
				return o.ID == c.ID
			})
			m := in.members[c.ID]
			if m == nil {
				m = slices.Repeat([]falcon.Rank{-1}, min(c.Size, in.world))
				in.members[c.ID] = m
			}
			if c.Size != len(m) ||
				c.RankInComm < 0 ||
				c.RankInComm >= len(m) ||
				m[c.RankInComm] >= 0 ||
				again {
				return unsure("ranks %d and others disagree about communicator %x", r, c.ID)
			}
			m[c.RankInComm] = r
		}
	}
	return nil
}

// readGroups are the sets of ranks that carry tensors between them, by their members.
func (in *reader) readGroups() ([]group, error) {
	byComm := map[uint64][]share{}
	for r := range falcon.Rank(in.world) {
		if len(in.traffic[r]) == 0 {
			return nil, unsure("rank %d has not reported what it communicates in an iteration", r)
		}
		for _, t := range in.traffic[r] {
			if t.Calls > 0 && t.Bytes/int64(t.Calls) >= scalarBytes {
				byComm[t.Comm] = append(byComm[t.Comm], share{r, t})
			}
		}
	}
	bySet := map[string][]share{}
	ranks := map[string][]falcon.Rank{}
	for _, id := range slices.Sorted(maps.Keys(byComm)) {
		m := in.members[id]
		switch {
		case m == nil && in.alone[id]:
			continue
		case m == nil:
			return nil, unsure("rank %d calls on communicator %x, which is not known", byComm[id][0].rank, id)
		case slices.Contains(m, -1):
			return nil, unsure("communicator %x has %d ranks that are not known",
				id,
				len(slices.DeleteFunc(slices.Clone(m), func(r falcon.Rank) bool { return r >= 0 })))
		}
		key := fmt.Sprint(slices.Sorted(slices.Values(m)))
		if ranks[key] == nil {
			ranks[key] = m
		}
		for _, s := range byComm[id] {
			if !slices.Equal(m, ranks[key]) {
				s.traffic.Peers = inOrderOf(ranks[key], m, s.traffic.Peers)
			}
			bySet[key] = append(bySet[key], s)
		}
	}
	var out []group
	for _, key := range slices.Sorted(maps.Keys(bySet)) {
		c, err := sumShares(ranks[key], bySet[key])
		if err != nil {
			return nil, err
		}
		if c.collectives()+c.allToAll+c.sends > 0 {
			out = append(out, group{ranks[key], c})
		}
	}
	slices.SortFunc(out, func(a, b group) int {
		return cmp.Compare(slices.Min(a.ranks), slices.Min(b.ranks))
	})
	return out, nil
}

// inOrderOf are peers of one communicator as ranks in another one of the same members.
func inOrderOf(to, from []falcon.Rank, peers []int) []int {
	var out []int
	for _, p := range peers {
		if p >= 0 && p < len(from) {
			out = append(out, slices.Index(to, from[p]))
		}
	}
	slices.Sort(out)
	return out
}

// share is what one rank reports of one communicator and operation.
type share struct {
	rank    falcon.Rank
	traffic falcon.Traffic
}

// sumShares is what a group carries. All members make the same collective calls.
func sumShares(ranks []falcon.Rank, shares []share) (carried, error) {
	var c carried
	calls := map[falcon.Op]map[falcon.Rank]int{}
	peers := map[uint64]map[falcon.Rank][]int{}
	total, alike, sends, evenSends := 0, 0, 0, 0
	for _, s := range shares {
		if calls[s.traffic.Op] == nil {
			calls[s.traffic.Op] = map[falcon.Rank]int{}
		}
		calls[s.traffic.Op][s.rank] += s.traffic.Calls
		switch s.traffic.Op {
		case falcon.OpSend:
			if peers[s.traffic.Comm] == nil {
				peers[s.traffic.Comm] = map[falcon.Rank][]int{}
			}
			peers[s.traffic.Comm][s.rank] = append(peers[s.traffic.Comm][s.rank], s.traffic.Peers...)
			sends += s.traffic.Calls
			evenSends += s.traffic.Alike
		case falcon.OpAllReduce, falcon.OpAllGather, falcon.OpReduceScatter:
			total += s.traffic.Calls
			alike += s.traffic.Alike
			c.single = max(c.single, s.traffic.Single)
			c.varies = c.varies || s.traffic.Alike == 0
		}
	}
	if total > 0 {
		c.alike = float64(alike) / float64(total)
	}
	for op, into := range map[falcon.Op]*int{
		falcon.OpAllReduce:     &c.allReduce,
		falcon.OpAllGather:     &c.gather,
		falcon.OpReduceScatter: &c.scatter,
		falcon.OpAlltoAll:      &c.allToAll,
		falcon.OpBroadcast:     &c.broadcast,
	} {
		n, most := leastAndMost(calls[op], len(ranks))
		if most > n+n/8+1 {
			return c, unsure("ranks %v count %d to %d calls of %s in an iteration", ranks, n, most, op)
		}
		*into = n
	}
	_, c.sends = leastAndMost(calls[falcon.OpSend], len(ranks))
	c.even = float64(evenSends) >= mostlyAlike*float64(sends)
	c.ring = c.sends > 0
	toAll := 0
	for _, p := range peers {
		c.ring = c.ring && isRing(ranks, p)
		if sendsToItself(ranks, p) {
			toAll++
		}
	}
	switch {
	case toAll > 0 && toAll < len(peers):
		return c, unsure("ranks %v exchange all-to-all, and in another way", ranks)
	case toAll > 0:
		c.allToAll += c.sends / len(ranks)
		c.sends = 0
	}
	return c, nil
}

func leastAndMost(by map[falcon.Rank]int, members int) (least, most int) {
	for _, n := range by {
		if most == 0 || n < least {
			least = n
		}
		most = max(most, n)
	}
	if len(by) < members {
		least = 0
	}
	return least, most
}

// sendsToItself reports whether every member sends to all, itself among them.
func sendsToItself(ranks []falcon.Rank, peers map[falcon.Rank][]int) bool {
	for i, r := range ranks {
		if !slices.Contains(peers[r], i) {
			return false
		}
	}
	return true
}

// isRing reports whether every member sends to the next one alone, or every one to the
// one before. Of two members that can't be known.
func isRing(ranks []falcon.Rank, peers map[falcon.Rank][]int) bool {
	n := len(ranks)
	only := func(step int) bool {
		for i, r := range ranks {
			p := slices.Compact(slices.Sorted(slices.Values(peers[r])))
			if len(p) != 1 || p[0] != (i+step+n)%n {
				return false
			}
		}
		return true
	}
	return n > 2 && (only(1) || only(-1))
}

// familiesOf sorts groups into families.
func familiesOf(groups []group) []*family {
	by := map[string]*family{}
	for _, g := range groups {
		members := slices.Sorted(slices.Values(g.ranks))
		offsets := make([]int, len(members))
		for i, r := range members {
			offsets[i] = int(r - members[0])
		}
		key := fmt.Sprint(offsets)
		if by[key] == nil {
			by[key] = &family{offsets: offsets}
		}
		by[key].groups = append(by[key].groups, g)
	}
	var out []*family
	for _, f := range by {
		f.summarize()
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b *family) int {
		return cmp.Or(cmp.Compare(a.size(), b.size()), slices.Compare(a.offsets, b.offsets))
	})
	return out
}

// summarize takes the median of what the groups carry: the first and the last stage
// have a little more than the others.
func (f *family) summarize() {
	median := func(of func(carried) int) int {
		v := make([]int, len(f.groups))
		for i, g := range f.groups {
			v[i] = of(g.carried)
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	f.carried = carried{
		allReduce: median(func(c carried) int { return c.allReduce }),
		gather:    median(func(c carried) int { return c.gather }),
		scatter:   median(func(c carried) int { return c.scatter }),
		allToAll:  median(func(c carried) int { return c.allToAll }),
		broadcast: median(func(c carried) int { return c.broadcast }),
		sends:     median(func(c carried) int { return c.sends }),
		single:    median(func(c carried) int { return c.single }),
		varies:    slices.ContainsFunc(f.groups, func(g group) bool { return g.varies }),
		even:      !slices.ContainsFunc(f.groups, func(g group) bool { return !g.even }),
		ring:      !slices.ContainsFunc(f.groups, func(g group) bool { return !g.ring }),
	}
	for _, g := range f.groups {
		f.alike += g.alike / float64(len(f.groups))
	}
}

// coversAll reports whether every rank is in one group.
func (f *family) coversAll(world int) bool {
	seen := make([]bool, world)
	n := 0
	for _, g := range f.groups {
		for _, r := range g.ranks {
			if !seen[r] {
				seen[r] = true
				n++
			}
		}
	}
	return n == world && len(f.groups)*f.size() == world
}
