package hang

import "slices"

// fewestVoters is how many other ranks must show what is usual.
const fewestVoters = 2

func (s *solver) gatherKinds() {
	s.kinds, s.turns, s.votes = map[string][]int{}, map[[2]int]turn{}, map[kindKey]map[string]int{}
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

// kindKey is one number in all groups of a kind.
type kindKey struct {
	kind string
	seq  int64
}

// siblingShape is what the other groups of the kind call at the same number,
// where they agree, and where it is one of the shapes in doubt, if any are.
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

// countShapes adds what the members of a group call.
func (s *solver) countShapes(votes map[string]int, k Key, sign int) {
	for _, r := range s.job.Groups[k.Group].Members {
		if shape := s.shapeAt(s.byRank[r], k); shape != "" {
			votes[shape] += sign
		}
	}
}

func (s *solver) shapeAt(i int, k Key) string { return s.nodes[i].Calls[k].Shape }

// outOfOrder finds the ranks of a circle that are in one call before another,
// where all other ranks that do both, in groups of the same kinds, do it the
// other way round.
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

// vote is what one rank's record says of the order of two operations.
type vote int8

const (
	abstains vote = iota
	agrees        // it asked for the first one before the second
	differs
)

// turn are all ranks' votes on two operations.
type turn struct{ agree, differ int }

// othersTurn reports whether all others asked for the missed call before the
// one that the rank is in.
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
	case !firstKnown && s.hasAsked(j, missed): // it is over, and of what shape is not recorded
		return abstains
	}
	return differs
}

// hasAsked reports whether a rank has asked for an operation, or for the one of
// its number in its own group of the kind.
func (s *solver) hasAsked(j int, op *operation) bool {
	g := s.ownGroup(j, op)
	asked, ok := s.nodes[j].Asked[g]
	return ok && asked >= op.key.seq
}

// ownGroup is the operation's group where the rank is a member, else the rank's
// group of the same kind, -1 where it has none.
func (s *solver) ownGroup(j int, op *operation) int {
	groups := s.ofRank[j]
	if slices.Contains(groups, op.key.group) {
		return op.key.group
	}
	kind := s.job.Groups[op.key.group].Kind
	at := slices.IndexFunc(groups, func(g int) bool { return kind != "" && s.job.Groups[g].Kind == kind })
	if at < 0 {
		return -1
	}
	return groups[at]
}

// sibling is a rank's record of an operation, or of the one that is its like in
// the rank's own group of the kind: of the same number and shape.
func (s *solver) sibling(j int, op *operation) (Record, bool) {
	g := s.ownGroup(j, op)
	r, ok := s.nodes[j].Calls[Key{g, op.key.seq}]
	if !ok || g == op.key.group {
		return r, ok
	}
	shape := s.shapeAt(op.in[0], Key{op.key.group, op.key.seq})
	return r, r.Shape == shape && shape != ""
}
