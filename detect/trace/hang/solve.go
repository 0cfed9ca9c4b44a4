package hang

import (
	"slices"

	"github.com/failslow/falcon"
)

// slack is how many calls a member may complete that another member has not called,
// such as broadcasts, before the other's record counts as old.
const slack = 8

// opKey is one call across its members: a collective, or the sends from one
// rank to another.
type opKey struct {
	group    int
	seq      int64
	src, dst falcon.Rank // -1 for a collective
}

// operation is a call that a rank waits in.
type operation struct {
	key          opKey
	call         Call
	in           []int // nodes that have called it and wait
	done, behind []int
	absent       []int
	odd          []int          // nodes in the minority of a mismatch
	shapes       map[string]int // set if members disagree
	targets      []int          // nodes that it waits for
	first        int            // smallest number of pending calls before it on a member
	soft         bool           // the targets have called it and are blocked by an earlier call
}

// node is one rank in the graph.
type node struct {
	*Member
	at      map[opKey]int // index of the pending call
	stopped int           // index of the first pending call that its peers completed; len(Pending) if none
	stale   opKey
	blind   bool // it has not completed calls that its peers completed with it
	odd     bool
	old     bool
	links   []int // operations it waits in
}

type solver struct {
	job    Job
	nodes  []node
	byRank map[falcon.Rank]int
	ops    []operation
	byKey  map[opKey]int
	kinds  map[string][]int // groups by kind
	ofRank [][]int          // groups by node
	turns  map[[2]int]turn
	votes  map[kindKey]map[string]int // shapes called, over all groups of a kind

	linked  []bool        // operations that some rank waits in
	waiters [][]int       // by node: operations that wait for it
	passed  map[int]int64 // newest collective that any member completed, by group
}

// Solve finds the causes of the hang.
func Solve(job Job) Answer {
	s := &solver{
		job:    job,
		byRank: map[falcon.Rank]int{},
		byKey:  map[opKey]int{},
		passed: map[int]int64{},
	}
	for i := range job.Members {
		s.byRank[job.Members[i].Rank] = i
	}
	s.gatherKinds()
	s.nodes = make([]node, len(job.Members))
	for i := range s.nodes {
		s.nodes[i] = newNode(&job.Members[i])
		for g, seq := range job.Members[i].Done {
			s.passed[g] = max(s.passed[g], seq)
		}
	}
	s.markOld()
	s.gatherOperations()
	s.markOdd()
	s.markStopped()
	for i := range s.ops {
		s.aim(&s.ops[i])
	}
	for i := range s.nodes {
		s.link(i)
	}
	return s.answer()
}

func newNode(m *Member) node {
	n := node{
		Member:  m,
		at:      make(map[opKey]int, len(m.Pending)),
		stopped: len(m.Pending),
	}
	for i, c := range m.Pending {
		k := keyOf(m.Rank, c)
		if _, have := n.at[k]; !have {
			n.at[k] = i
		}
	}
	return n
}

func keyOf(rank falcon.Rank, c Call) opKey {
	switch {
	case c.Pair && c.Send:
		return opKey{group: c.Group, src: rank, dst: c.Peer}
	case c.Pair:
		return opKey{group: c.Group, src: c.Peer, dst: rank}
	}
	return opKey{
		group: c.Group,
		seq:   c.Seq,
		src:   -1,
		dst:   -1,
	}
}

// markOld finds records that were taken while the job was running: others completed
// calls that the rank had not called.
func (s *solver) markOld() {
	for i := range s.nodes {
		n := &s.nodes[i]
		for g, asked := range n.Asked {
			if asked+slack < s.passed[g] {
				n.old = true
			}
		}
	}
}

// gatherOperations finds each rank's first pending call of every stream, and the
// state of its members. Later calls of a stream wait for the first.
func (s *solver) gatherOperations() {
	for i := range s.nodes {
		seen := map[opKey]bool{}
		for _, c := range s.nodes[i].Pending {
			k := keyOf(s.nodes[i].Rank, c)
			stream := k
			stream.seq = 0
			if seen[stream] {
				continue
			}
			seen[stream] = true
			if _, have := s.byKey[k]; !have {
				s.byKey[k] = len(s.ops)
				s.ops = append(s.ops, s.newOperation(k, c))
			}
		}
	}
}

func (s *solver) newOperation(k opKey, c Call) operation {
	op := operation{key: k, call: c}
	if c.Pair {
		for _, r := range []falcon.Rank{k.src, k.dst} {
			if i, ok := s.byRank[r]; ok {
				s.placePair(&op, i)
			}
		}
		return op
	}
	for _, r := range s.job.Groups[k.group].Members {
		if i, ok := s.byRank[r]; ok {
			s.place(&op, i)
		}
	}
	return op
}

func (s *solver) placePair(op *operation, i int) {
	switch _, in := s.nodes[i].at[op.key]; {
	case in:
		op.in = append(op.in, i)
	case !s.nodes[i].Seen:
		op.absent = append(op.absent, i)
	default:
		op.behind = append(op.behind, i)
	}
}

// place records the state of a member in a collective. A member that has called it
// without a pending call has completed it.
func (s *solver) place(op *operation, i int) {
	n := &s.nodes[i]
	asked, known := n.Asked[op.key.group]
	done, over := n.Done[op.key.group]
	switch _, in := n.at[op.key]; {
	case in:
		op.in = append(op.in, i)
	case !n.Seen:
		op.absent = append(op.absent, i)
	case over && done >= op.key.seq, known && asked >= op.key.seq:
		op.done = append(op.done, i)
	default:
		op.behind = append(op.behind, i)
	}
}

// markOdd compares the shapes of each operation. If one has a strict majority, or all
// groups of the kind call it, members with other shapes are odd.
func (s *solver) markOdd() {
	for o := range s.ops {
		op := &s.ops[o]
		if op.call.Pair {
			continue
		}
		shapes := map[string]int{}
		k := Key{op.key.group, op.key.seq}
		all := slices.Concat(op.in, op.done)
		known := 0
		for _, i := range all {
			if shape := s.nodes[i].Calls[k].Shape; shape != "" {
				shapes[shape]++
				known++
			}
		}
		if len(shapes) < 2 {
			continue
		}
		op.shapes = shapes
		usual := majority(shapes, known)
		if usual == "" {
			usual = s.siblingShape(op.key, shapes)
		}
		for _, i := range all {
			shape := s.nodes[i].Calls[k].Shape
			if shape != "" && usual != "" && shape != usual {
				op.odd = append(op.odd, i)
				s.nodes[i].odd = true
			}
		}
	}
}

// majority is the shape of more than half of the calls, or empty.
func majority(shapes map[string]int, total int) string {
	for shape, n := range shapes {
		if 2*n > total {
			return shape
		}
	}
	return ""
}

// markStopped finds ranks whose device or watchdog thread has stopped. A collective
// needs all members, so if peers completed it and later ones, it ran on this rank
// too, but the rank has not completed it.
func (s *solver) markStopped() {
	for i := range s.nodes {
		n := &s.nodes[i]
		if n.old {
			continue
		}
		for at, c := range n.Pending {
			k := keyOf(n.Rank, c)
			o, have := s.byKey[k]
			if !have || c.Pair || c.Rooted {
				continue
			}
			op := &s.ops[o]
			if len(op.done) == 0 || len(op.shapes) > 1 {
				continue
			}
			ahead := s.peersDone(i, k) - k.seq
			deep := ahead > 1 || ahead > 0 && len(op.in) <= len(op.done)
			if deep || len(op.in) == 1 && len(op.absent) == 0 {
				n.stopped, n.stale = at, k
				if deep {
					n.blind = true // its pending calls are not evidence
				}
				break
			}
		}
	}
}

// peersDone is the newest collective of the group that another member completed.
func (s *solver) peersDone(i int, k opKey) int64 {
	newest := int64(-1)
	for _, j := range s.ops[s.byKey[k]].done {
		if j != i {
			newest = max(newest, s.nodes[j].Done[k.group])
		}
	}
	return newest
}

// aim finds the targets of an operation: members with an odd shape, else members that
// have not called it, are missing or have a stopped device, else members that an
// earlier call blocks.
func (s *solver) aim(op *operation) {
	if len(op.shapes) > 1 {
		op.targets = op.odd
		return
	}
	op.targets = slices.Concat(op.behind, op.absent)
	for _, i := range op.in {
		n := &s.nodes[i]
		if n.blind || n.stopped < len(n.Pending) && n.at[op.key] >= n.stopped {
			op.targets = append(op.targets, i)
		}
	}
	if len(op.targets) > 0 {
		return
	}
	op.soft = true
	for _, i := range op.in {
		if s.heldEarlier(i, op) {
			op.targets = append(op.targets, i)
		}
	}
}

// heldEarlier reports whether a rank waits in an earlier call of another stream.
func (s *solver) heldEarlier(i int, op *operation) bool {
	n := &s.nodes[i]
	for at := range n.at[op.key] {
		k := keyOf(n.Rank, n.Pending[at])
		if o, have := s.byKey[k]; have && k != op.key && len(s.ops[o].done) == 0 {
			return true
		}
	}
	return false
}

// link finds the operations that a rank waits in. Operations that lack a member take
// precedence over those that have all. A receive after other pending calls may have
// been answered already.
func (s *solver) link(i int) {
	n := &s.nodes[i]
	if n.odd || n.blind {
		return
	}
	var firm, soft, together []int
	for at, c := range n.Pending[:n.stopped] {
		o, have := s.byKey[keyOf(n.Rank, c)]
		if !have || n.at[s.ops[o].key] != at {
			continue
		}
		op := &s.ops[o]
		others := slices.ContainsFunc(op.targets, func(t int) bool { return t != i })
		switch {
		case others && !op.soft && (!c.Pair || at == 0):
			firm = append(firm, o)
		case others:
			soft = append(soft, o)
		default:
			together = append(together, o)
		}
	}
	switch {
	case len(firm) > 0:
		n.links = firm
	case len(soft) > 0:
		n.links = soft
	default:
		n.links = together
	}
}
