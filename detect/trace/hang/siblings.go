package hang

import "slices"

// fewestVoters is how many other ranks must show what is usual.
const fewestVoters = 2

func (s *solver) gatherKinds() {
	s.kinds = map[string][]int{}
	for g := range s.job.Groups {
		if kind := s.job.Groups[g].Kind; kind != "" {
			s.kinds[kind] = append(s.kinds[kind], g)
		}
	}
}

// siblingShape is what the other groups of the kind call at the same number,
// where they agree, and where it is one of the shapes in doubt, if any are.
func (s *solver) siblingShape(k opKey, shapes map[string]int) string {
	usual, voters := "", 0
	for _, g := range s.kinds[s.job.Groups[k.group].Kind] {
		if g == k.group {
			continue
		}
		for _, r := range s.job.Groups[g].Members {
			shape := s.shapeAt(s.byRank[r], Key{g, k.seq})
			if shape == "" {
				continue
			}
			if usual != "" && shape != usual {
				return ""
			}
			usual, voters = shape, voters+1
		}
	}
	if voters < fewestVoters || len(shapes) > 0 && shapes[usual] == 0 {
		return ""
	}
	return usual
}

func (s *solver) shapeAt(i int, k Key) string { return s.nodes[i].Calls[k].Shape }

// outOfOrder finds the ranks of a circle that are in one call before another,
// where all other ranks that do both, in groups of the same kinds, do it the
// other way round.
func (s *solver) outOfOrder(ranks, ops []int) []int {
	var out []int
	for _, o := range ops {
		missed := &s.ops[o]
		if missed.call.Pair {
			continue
		}
		for _, i := range missed.behind {
			if s.nodes[i].old || !slices.Contains(ranks, i) || slices.Contains(out, i) {
				continue
			}
			for _, l := range s.nodes[i].links {
				if in := &s.ops[l]; !in.call.Pair && l != o && s.othersTurn(i, missed, in) {
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

// othersTurn reports whether all others asked for the missed call before the
// one that the rank is in.
func (s *solver) othersTurn(i int, missed, in *operation) bool {
	voters := 0
	for j := range s.nodes {
		if j == i || !s.nodes[j].Seen {
			continue
		}
		first, firstKnown := s.sibling(j, missed)
		second, secondKnown := s.sibling(j, in)
		firstAsked, secondAsked := firstKnown || s.hasAsked(j, missed), secondKnown || s.hasAsked(j, in)
		switch {
		case !firstKnown && !secondKnown:
		case firstKnown && secondKnown && first.At < second.At, firstKnown && !secondAsked:
			voters++
		case !firstKnown && firstAsked: // it is over, and of what shape is not recorded
		default:
			return false
		}
	}
	return voters >= fewestVoters
}

// hasAsked reports whether a rank has asked for an operation, or for the one of
// its number in its own group of the kind.
func (s *solver) hasAsked(j int, op *operation) bool {
	return slices.ContainsFunc(s.likeGroups(op), func(g int) bool {
		asked, ok := s.nodes[j].Asked[g]
		return ok && asked >= op.key.seq
	})
}

// likeGroups are an operation's group and those of its kind.
func (s *solver) likeGroups(op *operation) []int {
	if kind := s.job.Groups[op.key.group].Kind; kind != "" {
		return s.kinds[kind]
	}
	return []int{op.key.group}
}

// sibling is a rank's record of an operation, or of the one that is its like in
// the rank's own group of the kind: of the same number and shape.
func (s *solver) sibling(j int, op *operation) (Record, bool) {
	shape := s.shapeAt(op.in[0], Key{op.key.group, op.key.seq})
	for _, g := range s.likeGroups(op) {
		if r, ok := s.nodes[j].Calls[Key{g, op.key.seq}]; ok && (g == op.key.group || r.Shape == shape && shape != "") {
			return r, true
		}
	}
	return Record{}, false
}
