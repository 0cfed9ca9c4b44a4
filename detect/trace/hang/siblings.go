package hang

import "slices"

// fewestVoters is the number of other ranks required to define the usual order.
const fewestVoters = 2

func (s *solver) gatherKinds() {
	s.kinds = map[string][]int{}
	s.turns = map[[2]int]turn{}
	s.votes = map[kindKey]map[string]int{}
	s.ofRank = make([][]int, len(s.job.Members))
	for g := range s.job.Groups {
		for _, r := range s.job.Groups[g].Members {
			if i, ok := s.byRank[r]; ok {
				s.ofRank[i] = append(s.ofRank[i], g)
			}
		}
		if kind := s.job.Groups[g].Kind; kind != "" {
			s.kinds[kind] = append(s.kinds[kind], g)
		}
	}
}

// kindKey is a collective's number in all groups of a kind.
type kindKey struct {
	kind string
	seq  int64
}

// siblingShape is the shape that the other groups of the kind call at the same
// number, if they agree, and if it is one of the given shapes, if any.
func (s *solver) siblingShape(k opKey, shapes map[string]int) string {
	kind := s.job.Groups[k.group].Kind
	votes, have := s.votes[kindKey{kind, k.seq}]
	if !have {
		votes = map[string]int{}
		for _, g := range s.kinds[kind] {
			s.countShapes(votes, Key{g, k.seq}, 1)
		}
		s.votes[kindKey{kind, k.seq}] = votes
	}
	if kind == "" {
		return ""
	}
	s.countShapes(votes, Key{k.group, k.seq}, -1)
	defer s.countShapes(votes, Key{k.group, k.seq}, 1)
	usual := ""
	for shape, n := range votes {
		if n > 0 && usual != "" {
			return ""
		}
		if n > 0 {
			usual = shape
		}
	}
	if votes[usual] < fewestVoters || len(shapes) > 0 && shapes[usual] == 0 {
		return ""
	}
	return usual
}

// countShapes adds the shapes that the members of a group call.
func (s *solver) countShapes(votes map[string]int, k Key, sign int) {
	for _, r := range s.job.Groups[k.Group].Members {
		if shape := s.shapeAt(s.byRank[r], k); shape != "" {
			votes[shape] += sign
		}
	}
}

func (s *solver) shapeAt(i int, k Key) string {
	return s.nodes[i].Calls[k].Shape
}

// outOfOrder finds the ranks of a circle that are in one call before another, while
// all other ranks with both calls, in groups of the same kinds, use the opposite
// order.
func (s *solver) outOfOrder(ranks, ops []int) []int {
	var out []int
	taken := map[int]bool{}
	for _, o := range ops {
		missed := &s.ops[o]
		if missed.call.Pair {
			continue
		}
		for _, i := range missed.behind {
			if _, in := slices.BinarySearch(ranks, i); !in || s.nodes[i].old || taken[i] {
				continue
			}
			for _, l := range s.nodes[i].links {
				if in := &s.ops[l]; !in.call.Pair && l != o && s.othersTurn(i, o, l) {
					taken[i] = true
					out = append(out, i)
					break
				}
			}
		}
	}
	slices.Sort(out)
	if 2*len(out) >= len(ranks) && len(ranks) > 2 {
		return nil
	}
	return out
}

// vote is the order of two operations in one rank's record.
type vote int8

const (
	abstains vote = iota
	agrees        // it called the first one before the second
	differs
)

// turn counts all ranks' votes on two operations.
type turn struct{ agree, differ int }

// othersTurn reports whether all others called the missed operation before the one
// that the rank is in.
func (s *solver) othersTurn(i, missed, in int) bool {
	key := [2]int{missed, in}
	t, have := s.turns[key]
	if !have {
		for j := range s.nodes {
			switch s.voteOf(j, &s.ops[missed], &s.ops[in]) {
			case agrees:
				t.agree++
			case differs:
				t.differ++
			}
		}
		s.turns[key] = t
	}
	switch s.voteOf(i, &s.ops[missed], &s.ops[in]) {
	case agrees:
		t.agree--
	case differs:
		t.differ--
	}
	return t.differ == 0 && t.agree >= fewestVoters
}

func (s *solver) voteOf(j int, missed, in *operation) vote {
	if !s.nodes[j].Seen {
		return abstains
	}
	first, firstKnown := s.sibling(j, missed)
	second, secondKnown := s.sibling(j, in)
	switch {
	case !firstKnown && !secondKnown:
		return abstains
	case firstKnown && secondKnown && first.At < second.At, firstKnown && !secondKnown && !s.hasAsked(j, in):
		return agrees
	case !firstKnown && s.hasAsked(j, missed): // it has completed, and its shape is not recorded
		return abstains
	}
	return differs
}

// hasAsked reports whether a rank has called an operation, or the one with the same
// number in its own group of the kind.
func (s *solver) hasAsked(j int, op *operation) bool {
	g := s.ownGroup(j, op)
	asked, ok := s.nodes[j].Asked[g]
	return ok && asked >= op.key.seq
}

// ownGroup is the operation's group if the rank is a member, else the rank's group of
// the same kind, or -1.
func (s *solver) ownGroup(j int, op *operation) int {
	groups := s.ofRank[j]
	if slices.Contains(groups, op.key.group) {
		return op.key.group
	}
	kind := s.job.Groups[op.key.group].Kind
	at := slices.IndexFunc(groups, func(g int) bool {
		return kind != "" && s.job.Groups[g].Kind == kind
	})
	if at < 0 {
		return -1
	}
	return groups[at]
}

// sibling is a rank's record of an operation, or of the operation with the same number
// and shape in the rank's own group of the kind.
func (s *solver) sibling(j int, op *operation) (Record, bool) {
	g := s.ownGroup(j, op)
	r, ok := s.nodes[j].Calls[Key{g, op.key.seq}]
	if !ok || g == op.key.group {
		return r, ok
	}
	shape := s.shapeAt(op.in[0], Key{op.key.group, op.key.seq})
	return r, r.Shape == shape && shape != ""
}
