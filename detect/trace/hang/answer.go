package hang

import (
	"cmp"
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// fewMissing is the largest number of missing records for which ranks are named. More
// suggest that the records were not collected.
func fewMissing(world int) int { return max(1, world/4) }

// answer finds the ends of the graph.
func (s *solver) answer() Answer {
	var a Answer
	for i := range s.nodes {
		if len(s.nodes[i].links) > 0 {
			a.Waiting++
		}
		if s.nodes[i].old {
			a.Old = append(a.Old, s.nodes[i].Rank)
		}
	}
	s.gatherWaiters()
	var missing, together []int
	for _, part := range findComponents(len(s.nodes)+len(s.ops), s.edgesOf) {
		if !part.ends {
			continue
		}
		ranks, ops := s.splitPart(part)
		switch {
		case len(ranks) == 0:
			if s.linked[ops[0]] {
				together = append(together, ops[0])
			}
		case len(ranks) == 1 && len(ops) == 0:
			if i := ranks[0]; len(s.waiters[i]) == 0 {
				continue
			} else if s.nodes[i].Seen {
				s.judgeEnd(&a, i)
			} else {
				missing = append(missing, i)
			}
		default:
			s.judgeCircle(&a, ranks, ops)
		}
	}
	for _, o := range together {
		s.addTogether(&a, &s.ops[o])
	}
	s.judgeMissing(&a, missing)
	a.Culprits, a.Candidates = s.finish(a.Culprits), s.finish(a.Candidates)
	return a
}

// gatherWaiters finds the operations that a rank waits in directly, and for each rank
// the operations that wait for it.
func (s *solver) gatherWaiters() {
	s.linked = make([]bool, len(s.ops))
	s.waiters = make([][]int, len(s.nodes))
	for i := range s.nodes {
		for _, o := range s.nodes[i].links {
			s.linked[o] = true
		}
	}
	for o := range s.ops {
		op := &s.ops[o]
		op.first = math.MaxInt
		for _, i := range op.in {
			op.first = min(op.first, s.nodes[i].at[op.key])
		}
		for _, i := range op.targets {
			if s.linked[o] {
				s.waiters[i] = append(s.waiters[i], o)
			}
		}
	}
}

func (s *solver) edgesOf(v int) []int {
	if v >= len(s.nodes) {
		return s.ops[v-len(s.nodes)].targets
	}
	out := make([]int, 0, len(s.nodes[v].links))
	for _, o := range s.nodes[v].links {
		out = append(out, len(s.nodes)+o)
	}
	return out
}

func (s *solver) splitPart(part component) (ranks, ops []int) {
	for _, v := range part.nodes {
		if v < len(s.nodes) {
			ranks = append(ranks, v)
		} else {
			ops = append(ops, v-len(s.nodes))
		}
	}
	slices.Sort(ranks)
	slices.Sort(ops)
	return ranks, ops
}

// judgeEnd judges a rank with a record that others wait for and that does not wait.
func (s *solver) judgeEnd(a *Answer, i int) {
	n := &s.nodes[i]
	f := s.findingOf(i)
	switch {
	case f.op == nil:
	case n.odd:
		f.Kind = Mismatch
	case n.stopped < len(n.Pending):
		f.Kind = Device
		f.Group = n.stale.group
		f.Seq = n.stale.seq
		f.Call = n.Pending[n.stopped].Name
		f.Peers = s.peersDone(i, n.stale)
		f.Asked = n.Asked[f.Group]
	}
	if n.old ||
		f.Kind == Behind && (n.Empty || n.Hidden || s.mayHaveDone(n, f) || s.mayHaveAnswered(a, n, f)) {
		a.Candidates = append(a.Candidates, f)
		return
	}
	a.Culprits = append(a.Culprits, f)
}

// mayHaveAnswered reports whether a rank may have answered the send or receive that
// others wait in, although they have not completed it: few ranks wait, or the rank
// has progressed further than they have.
func (s *solver) mayHaveAnswered(a *Answer, n *node, f Finding) bool {
	if !f.Pair {
		return false
	}
	for _, i := range f.op.in {
		for g, asked := range s.nodes[i].Asked {
			if mine, ok := n.Asked[g]; ok && mine > asked {
				return true
			}
		}
	}
	return 4*a.Waiting < 3*len(s.nodes)
}

// mayHaveDone reports whether a rank may have completed the call that others wait
// in: its record is incomplete, and a single waiting rank may itself have stopped.
func (s *solver) mayHaveDone(n *node, f Finding) bool {
	_, known := n.Asked[f.Group]
	return !f.Pair && !known && !n.Whole && f.op != nil && len(f.op.in) < 2
}

// findingOf describes a rank by the most informative call that waits for it.
func (s *solver) findingOf(i int) Finding {
	best := -1
	for _, o := range s.waiters[i] {
		if best < 0 || s.prefers(&s.ops[o], &s.ops[best], i) {
			best = o
		}
	}
	f := Finding{
		Kind:  Behind,
		Ranks: []falcon.Rank{s.nodes[i].Rank},
		Group: -1,
		Asked: -1,
	}
	if best < 0 {
		return f
	}
	f.name(&s.ops[best])
	if asked, ok := s.nodes[i].Asked[f.Group]; ok && !f.Pair {
		f.Asked = asked
	}
	return f
}

// prefers orders operations by how informative they are about a rank: a mismatch
// first, then collectives, then the earliest call.
func (s *solver) prefers(a, b *operation, i int) bool {
	return cmp.Or(
		-cmp.Compare(boolInt(slices.Contains(a.odd, i)), boolInt(slices.Contains(b.odd, i))),
		cmp.Compare(boolInt(a.call.Pair), boolInt(b.call.Pair)),
		cmp.Compare(a.first, b.first),
		-cmp.Compare(len(a.in), len(b.in)),
		cmp.Compare(a.key.group, b.key.group),
		cmp.Compare(a.key.seq, b.key.seq)) < 0
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// name sets the call of a finding.
func (f *Finding) name(op *operation) {
	f.op = op
	f.Group = op.key.group
	f.Seq = op.key.seq
	f.Pair = op.call.Pair
	f.Call = op.call.Name
	f.Place = op.call.Place
}

// judgeCircle judges ranks that wait for each other. Ranks whose order of calls
// differs from that of all other ranks are named. The graph alone is not enough,
// because a rank can be late to the majority's call because of its neighbour.
func (s *solver) judgeCircle(a *Answer, ranks, ops []int) {
	if senders := s.sendersOnly(ranks, ops); len(senders) > 0 {
		for _, i := range senders {
			a.Culprits = append(a.Culprits, s.findingOf(i))
		}
		return
	}
	culprits := s.outOfOrder(ranks, ops)
	if len(culprits) == 0 {
		culprits = s.fewerElsewhere(ranks, ops)
	}
	if len(culprits) > 0 {
		for _, i := range culprits {
			f := s.findingOf(i)
			f.Kind = Order
			a.Culprits = append(a.Culprits, f)
		}
		return
	}
	f := Finding{Kind: Circle, Group: -1, Asked: -1}
	for _, i := range ranks {
		f.Ranks = append(f.Ranks, s.nodes[i].Rank)
	}
	f.name(&s.ops[ops[0]])
	a.Candidates = append(a.Candidates, f)
}

// fewerElsewhere finds the ranks in the smaller of two collectives of the same
// members that wait for each other.
func (s *solver) fewerElsewhere(ranks, ops []int) []int {
	if len(ops) != 2 {
		return nil
	}
	a := &s.ops[ops[0]]
	b := &s.ops[ops[1]]
	if len(a.in) < len(b.in) {
		a, b = b, a
	}
	same := slices.Equal(s.job.Groups[a.key.group].Members, s.job.Groups[b.key.group].Members)
	if a.call.Pair ||
		b.call.Pair ||
		!same ||
		len(a.in) <= len(b.in) ||
		len(a.in)+len(b.in) != len(ranks) ||
		!slices.Equal(a.behind, b.in) {
		return nil
	}
	return b.in
}

// sendersOnly are the ranks of a circle that have stopped after sending: they are only
// in sends, which do not block the host because others went on after theirs, and a
// collective waits for them.
func (s *solver) sendersOnly(ranks, ops []int) []int {
	var out []int
	for _, i := range ranks {
		n := &s.nodes[i]
		blocks := slices.ContainsFunc(n.links, func(o int) bool {
			op := &s.ops[o]
			return !op.call.Pair || op.key.src != n.Rank
		})
		awaited := slices.ContainsFunc(ops, func(o int) bool {
			op := &s.ops[o]
			return !op.call.Pair &&
				!op.soft &&
				slices.Contains(op.behind, i) &&
				s.wentOnAfterSending(op)
		})
		if !blocks && awaited && !n.old {
			out = append(out, i)
		}
	}
	return out
}

// wentOnAfterSending reports whether all ranks in an operation called it while an
// earlier send of theirs was pending.
func (s *solver) wentOnAfterSending(op *operation) bool {
	return !slices.ContainsFunc(op.in, func(i int) bool {
		n := &s.nodes[i]
		return !slices.ContainsFunc(n.Pending[:n.at[op.key]], func(c Call) bool {
			return c.Pair && c.Send
		})
	})
}

// addTogether adds a call that all members are in and none finished, or in which
// they differ without a majority.
func (s *solver) addTogether(a *Answer, op *operation) {
	f := Finding{Kind: Together, Asked: -1}
	if len(op.shapes) > 1 {
		f.Kind = Mismatch
	}
	f.name(op)
	for _, i := range op.in {
		f.Ranks = append(f.Ranks, s.nodes[i].Rank)
	}
	a.Candidates = append(a.Candidates, f)
}

// judgeMissing judges ranks without a record that others wait for. They may wait
// themselves, so they are named only if no other rank is and few are missing.
func (s *solver) judgeMissing(a *Answer, missing []int) {
	all := 0
	for i := range s.nodes {
		if !s.nodes[i].Seen {
			all++
		}
	}
	sure := len(missing) > 0 &&
		len(a.Culprits) == 0 &&
		all <= fewMissing(len(s.nodes)) &&
		!s.failedOddly()
	for _, i := range missing {
		f := s.findingOf(i)
		f.Kind = Missing
		if sure {
			a.Culprits = append(a.Culprits, f)
		} else {
			a.Candidates = append(a.Candidates, f)
		}
	}
}

// failedOddly reports whether a failed call has another shape than all groups of its
// kind: it may have killed the missing peer.
func (s *solver) failedOddly() bool {
	for o := range s.ops {
		op := &s.ops[o]
		if !op.call.Failed {
			continue
		}
		usual := s.siblingShape(op.key, nil)
		if usual != "" &&
			slices.ContainsFunc(op.in, func(i int) bool {
				return s.shapeAt(i, Key{op.key.group, op.key.seq}) != usual
			}) {
			return true
		}
	}
	return false
}

// alike is the key by which findings are merged.
type alike struct {
	kind         Kind
	group        int
	seq          int64
	asked, peers int64
}

// finish merges findings of the same call, and adds the ranks in the call and the
// shapes of its members.
func (s *solver) finish(in []Finding) []Finding {
	var out []Finding
	known := map[alike]int{}
	for _, f := range in {
		key := alike{f.Kind, f.Group, f.Seq, f.Asked, f.Peers}
		if at, have := known[key]; have && !f.Pair && f.Kind != Circle {
			out[at].Ranks = append(out[at].Ranks, f.Ranks...)
			continue
		}
		known[key] = len(out)
		out = append(out, f)
	}
	for i := range out {
		s.finishOne(&out[i])
	}
	slices.SortFunc(out, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(a.Kind, b.Kind),
			slices.Compare(a.Ranks, b.Ranks),
			cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.Seq, b.Seq),
		)
	})
	return out
}

func (s *solver) finishOne(f *Finding) {
	slices.Sort(f.Ranks)
	f.Ranks = slices.Compact(f.Ranks)
	op := f.op
	if op == nil {
		return
	}
	f.Shapes = op.shapes
	for _, i := range op.in {
		rank := s.nodes[i].Rank
		_, self := slices.BinarySearch(f.Ranks, rank)
		if !self || f.Kind == Together || f.Kind == Circle {
			f.Waiting = append(f.Waiting, rank)
		}
	}
	for _, i := range op.odd {
		if f.Odd == nil {
			f.Odd = map[string]bool{}
		}
		f.Odd[s.shapeAt(i, Key{f.Group, f.Seq})] = true
	}
}
