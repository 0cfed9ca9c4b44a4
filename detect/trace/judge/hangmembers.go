package judge

import (
	"maps"
	"slices"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/hang"
)

// noteKind sets the kind of a group. Groups of a kind do the same on different ranks:
// they have the same description, or else the same number on their ranks.
func (s *standstill) noteKind(at int, e *trace.Entry) {
	kind := e.GroupDesc
	if kind == "" || kind == "undefined" {
		kind = "#" + e.GroupID
	}
	switch g := &s.job.Groups[at]; g.Kind {
	case kind:
	case "":
		g.Kind = kind
	default:
		g.Kind = "?" + g.Name // members disagree: a kind of its own
	}
}

// noteSize derives the size of a group from calls with one share per member.
func (s *standstill) noteSize(at int, e *trace.Entry) {
	whole, share := e.Out, e.Elements
	if e.Op == falcon.OpReduceScatter {
		whole, share = share, whole
	}
	if e.Op != falcon.OpAllGather && e.Op != falcon.OpReduceScatter ||
		share <= 0 ||
		whole%share != 0 {
		return
	}
	if n := whole / share; n <= trace.MaxWorld {
		s.sizes[at] = max(s.sizes[at], int(n))
	}
}

// inferMembers completes groups that no dump lists. The first group has all ranks. If
// one group of a kind lacks members, they are the ranks that are in no group of it.
func (s *standstill) inferMembers(dumps []trace.Dump) {
	for _, d := range dumps {
		s.ranks[falcon.Rank(d.Rank)] = true
		for name, g := range d.Groups {
			for _, r := range g.Ranks {
				if name != "" { // gloo's group without a name numbers its members from 0
					s.ranks[falcon.Rank(r)] = true
				}
			}
		}
	}
	s.fillGaps()
	kinds := map[string][]int{}
	for at := range s.job.Groups {
		g := &s.job.Groups[at]
		if s.isFirst(at) {
			g.Members = g.Members[:0]
			for r := range s.ranks {
				g.Members = append(g.Members, r)
			}
			slices.Sort(g.Members)
		} else if !s.listed[at] && g.Kind != "" {
			kinds[g.Kind] = append(kinds[g.Kind], at)
		}
	}
	hints := map[int]bool{}
	for _, d := range dumps {
		if g, ok := d.Groups[""]; ok {
			hints[len(g.Ranks)] = true
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		s.completeKind(kinds[kind], hints)
	}
}

// fillGaps adds missing ranks if the group of all ranks is not listed: ranks are
// numbered from 0 without gaps, up to the size known from calls.
func (s *standstill) fillGaps() {
	world, unlisted := 0, false
	for r := range s.ranks {
		world = max(world, int(r)+1)
	}
	for at := range s.job.Groups {
		if s.isFirst(at) {
			world = max(world, s.sizes[at])
			unlisted = true
		}
	}
	if !unlisted || world > 4*len(s.ranks)+8 {
		return // so many missing ranks mean a misread number
	}
	for r := range world {
		s.ranks[falcon.Rank(r)] = true
	}
}

// isFirst reports whether a group is the group of all ranks and is not listed.
func (s *standstill) isFirst(at int) bool {
	g := &s.job.Groups[at]
	return !s.listed[at] && (g.Name == "0" || strings.HasSuffix(g.Name, "(default_pg)"))
}

// completeKind completes the only group of a kind that lacks members with the ranks
// that are in no group of the kind. If there are none and the size of the group is
// known from its calls or a recorded size, a rank is missing that no dump names: it
// gets the next number.
func (s *standstill) completeKind(groups []int, hints map[int]bool) {
	size := 0
	in := map[falcon.Rank]bool{}
	for _, at := range groups {
		size = max(size, s.sizes[at], len(s.job.Groups[at].Members))
		for _, r := range s.job.Groups[at].Members {
			in[r] = true
		}
	}
	var short []int
	for _, at := range groups {
		if len(s.job.Groups[at].Members) < size {
			short = append(short, at)
		}
	}
	var outside []falcon.Rank
	for r := range s.ranks {
		if !in[r] {
			outside = append(outside, r)
		}
	}
	if len(short) != 1 {
		return
	}
	g := &s.job.Groups[short[0]]
	need := size - len(g.Members)
	if len(outside) == 0 &&
		need == 1 &&
		(s.sizes[short[0]] == size || hints[size]) {
		next := falcon.Rank(len(s.ranks))
		s.addRank(next)
		outside = append(outside, next)
	}
	if len(outside) != need {
		return
	}
	g.Members = append(g.Members, outside...)
	slices.Sort(g.Members)
}

// addRank adds a rank to the job and to the groups of all ranks.
func (s *standstill) addRank(r falcon.Rank) {
	s.ranks[r] = true
	for at := range s.job.Groups {
		if s.isFirst(at) {
			s.job.Groups[at].Members = append(s.job.Groups[at].Members, r)
		}
	}
}

// reopenFailed marks a rank's last call as pending if the backend retires calls
// without a result, as gloo does, and the call can't have completed or a member of
// it is missing.
func (s *standstill) reopenFailed(m *hang.Member, d trace.Dump) {
	if len(m.Pending) > 0 || len(d.Entries) == 0 {
		return
	}
	e := &d.Entries[len(d.Entries)-1]
	if e.State != trace.EntryCompleted ||
		!e.Retired ||
		e.EndedNs > 0 ||
		strings.HasPrefix(e.Name, "nccl:") ||
		e.PointToPnt {
		return
	}
	g := s.groupOf(e.Group, m.Rank)
	for _, r := range s.job.Groups[g].Members {
		o := s.memberOf(r)
		if !o.Seen || !isRooted(e) && o.Asked[g] < e.Seq {
			m.Pending = append(m.Pending, hang.Call{
				Group:  g,
				Seq:    e.Seq,
				Name:   e.Name,
				Rooted: isRooted(e),
				Failed: true,
				Place:  e.Frame,
			})
			m.Done[g] = e.Seq - 1
			return
		}
	}
}
