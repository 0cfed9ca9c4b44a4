package judge

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/hang"
)

// standstill converts dumps to the input of hang.Solve.
type standstill struct {
	job    hang.Job
	byName map[string][]int // groups by name; several if the members differ
	paired map[int]bool     // groups whose status also counts other calls than collectives
	joint  map[int]bool     // groups whose sends and receives are issued in batches
	listed map[int]bool     // groups whose members are listed in a dump
	ranks  map[falcon.Rank]bool
	sizes  map[int]int          // sizes of groups, if known from calls
	hidden map[falcon.Rank]bool // ranks whose dumps omit some of their calls
}

// newStandstill collects groups, ranks and pending calls from all dumps.
func newStandstill(dumps []trace.Dump) *standstill {
	s := &standstill{
		byName: map[string][]int{},
		paired: map[int]bool{},
		joint:  map[int]bool{},
		listed: map[int]bool{},
		ranks:  map[falcon.Rank]bool{},
		sizes:  map[int]int{},
		hidden: map[falcon.Rank]bool{},
	}
	for _, d := range dumps {
		for _, name := range slices.Sorted(maps.Keys(d.Groups)) {
			if g := d.Groups[name]; len(g.Ranks) > 0 && name != "" {
				s.addGroup(name, g)
			}
		}
	}
	for _, d := range dumps {
		for i := range d.Entries {
			s.meetEntry(d, &d.Entries[i])
		}
	}
	s.inferMembers(dumps)
	s.checkNumbers(dumps)
	for _, rank := range slices.Sorted(maps.Keys(s.ranks)) {
		s.job.Members = append(s.job.Members, hang.Member{Rank: rank})
	}
	for _, d := range dumps {
		s.fillMember(s.memberOf(falcon.Rank(d.Rank)), d)
	}
	for _, d := range dumps {
		s.reopenFailed(s.memberOf(falcon.Rank(d.Rank)), d)
	}
	return s
}

func ranksOf(in []int) []falcon.Rank {
	out := make([]falcon.Rank, len(in))
	for i, r := range in {
		out[i] = falcon.Rank(r)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *standstill) addGroup(name string, g trace.DumpGroup) {
	members := ranksOf(g.Ranks)
	for _, at := range s.byName[name] {
		if slices.Equal(s.job.Groups[at].Members, members) {
			return
		}
	}
	at := s.newGroup(name, g.Desc)
	s.job.Groups[at].Members, s.listed[at] = members, true
	if strings.Contains(strings.ToUpper(g.Desc), "PIPELINE") {
		s.paired[at] = true
	}
}

func (s *standstill) newGroup(name, desc string) int {
	at := len(s.job.Groups)
	s.byName[name] = append(s.byName[name], at)
	if desc != "" && desc != "undefined" {
		name += " (" + desc + ")"
	}
	s.job.Groups = append(s.job.Groups, hang.Group{Name: name})
	return at
}

// groupOf returns the group of a rank by name, -1 if it is not known.
func (s *standstill) groupOf(name string, rank falcon.Rank) int {
	for _, at := range s.byName[name] {
		if _, in := slices.BinarySearch(s.job.Groups[at].Members, rank); in {
			return at
		}
	}
	return -1
}

// meetEntry updates the group of an entry. If the members of the group are not
// listed, the ranks that call in it are its members.
func (s *standstill) meetEntry(d trace.Dump, e *trace.Entry) {
	rank := falcon.Rank(d.Rank)
	at := s.groupOf(e.Group, rank)
	if at < 0 {
		for _, other := range s.byName[e.Group] {
			if !s.listed[other] {
				at = other
			}
		}
		if at < 0 {
			at = s.newGroup(e.Group, e.GroupDesc)
		}
		g := &s.job.Groups[at]
		g.Members = append(g.Members, rank)
		slices.Sort(g.Members)
	}
	s.noteKind(at, e)
	s.noteSize(at, e)
	s.paired[at] = s.paired[at] || e.PointToPnt
	s.joint[at] = s.joint[at] || isCoalesced(e)
}

// checkNumbers finds groups whose status and entries count differently. If the
// status counts more, the dump omits calls, such as sends and receives of gloo.
func (s *standstill) checkNumbers(dumps []trace.Dump) {
	var odd []int
	for _, d := range dumps {
		newest := map[int]int64{}
		full := false
		for i := range d.Entries {
			e := &d.Entries[i]
			raise(newest, s.groupOf(e.Group, falcon.Rank(d.Rank)), e.Seq)
			full = full || e.State == trace.EntryCompleted
		}
		for name, st := range d.Status {
			g := s.groupOf(name, falcon.Rank(d.Rank))
			seq, ok := newest[g]
			if ok && g >= 0 && (seq > st.Enqueued || full && seq != st.Enqueued) {
				s.hidden[falcon.Rank(d.Rank)] = s.hidden[falcon.Rank(d.Rank)] ||
					!s.paired[g] && seq < st.Enqueued
				odd = append(odd, g)
			}
		}
	}
	for _, g := range odd {
		s.paired[g] = true
	}
}

// isCoalesced reports whether an entry is the end of a batch: the calls of a
// batch share its number, and their own state is never updated.
func isCoalesced(e *trace.Entry) bool {
	return strings.HasSuffix(e.Name, ":coalesced")
}

func (s *standstill) memberOf(rank falcon.Rank) *hang.Member {
	at, _ := slices.BinarySearchFunc(s.job.Members, rank, func(m hang.Member, r falcon.Rank) int {
		return int(m.Rank - r)
	})
	return &s.job.Members[at]
}

// fillMember reads the progress of a rank from its dump.
func (s *standstill) fillMember(m *hang.Member, d trace.Dump) {
	m.Seen = true
	m.Empty = len(d.Entries) == 0 && len(d.Status) == 0
	m.Whole, m.Hidden = !m.Empty && lostNothing(d), s.hidden[m.Rank]
	m.Asked = map[int]int64{}
	m.Done = map[int]int64{}
	m.Calls = map[hang.Key]hang.Record{}
	batches := gatherBatches(d)
	open := map[int]int64{} // oldest pending collective
	for i := range d.Entries {
		e := &d.Entries[i]
		g := s.groupOf(e.Group, m.Rank)
		raise(m.Asked, g, e.Seq)
		b := batches[batchOf(e)]
		over := e.State == trace.EntryCompleted || b.over || s.isStaleBatch(g, e, d)
		switch {
		case e.PointToPnt && isCoalesced(e):
		case e.PointToPnt && !over:
			m.Pending = append(m.Pending, s.pairCall(g, e))
		case e.PointToPnt:
		case over:
			raise(m.Done, g, e.Seq)
			m.Calls[hang.Key{Group: g, Seq: e.Seq}] = hang.Record{
				Shape: shapeOf(e, b),
				At:    i,
			}
		default:
			if first, have := open[g]; !have || e.Seq < first {
				open[g] = e.Seq
			}
			m.Calls[hang.Key{Group: g, Seq: e.Seq}] = hang.Record{
				Shape: shapeOf(e, b),
				At:    i,
			}
			m.Pending = append(m.Pending, hang.Call{
				Group:  g,
				Seq:    e.Seq,
				Name:   e.Name,
				Rooted: isRooted(e),
				Place:  e.Frame,
			})
		}
	}
	for name, st := range d.Status {
		g := s.groupOf(name, m.Rank)
		if g < 0 || s.paired[g] {
			continue
		}
		raise(m.Asked, g, st.Enqueued)
		raise(m.Done, g, st.Completed)
	}
	for g, seq := range open {
		if m.Done[g] >= seq {
			m.Done[g] = seq - 1 // the entry is more reliable than the status
		}
	}
}

func raise(in map[int]int64, g int, seq int64) {
	if have, ok := in[g]; !ok || seq > have {
		in[g] = seq
	}
}

// batch describes calls that share a number.
type batch struct {
	ended, over bool // it has an entry for its end; it has completed
	calls       int
}

type batchKey struct {
	group string
	pair  bool
	seq   int64
}

func batchOf(e *trace.Entry) batchKey {
	if e.PointToPnt {
		return batchKey{e.Group, true, e.PairSeq}
	}
	return batchKey{e.Group, false, e.Seq}
}

func gatherBatches(d trace.Dump) map[batchKey]batch {
	out := map[batchKey]batch{}
	for i := range d.Entries {
		e := &d.Entries[i]
		b := out[batchOf(e)]
		b.calls++
		if isCoalesced(e) {
			b.ended = true
			b.over = e.State == trace.EntryCompleted
		}
		out[batchOf(e)] = b
	}
	return out
}

// isStaleBatch reports whether a send or receive belongs to a completed batch whose
// end the dump omits, as it omits completed calls.
func (s *standstill) isStaleBatch(g int, e *trace.Entry, d trace.Dump) bool {
	if !e.PointToPnt || !s.joint[g] {
		return false
	}
	st, ok := d.Status[e.Group]
	return ok && st.Enqueued == st.Completed
}

// shapeOf returns the parameters that all members of a collective must agree on. The
// calls of a batch are not compared.
func shapeOf(e *trace.Entry, b batch) string {
	if b.calls > 1 || isCoalesced(e) {
		return ""
	}
	return describe(*e)
}

// isRooted reports whether members may complete a call before others are in it.
// Unknown calls are assumed to be rooted.
func isRooted(e *trace.Entry) bool {
	switch e.Op {
	case falcon.OpAllReduce, falcon.OpAllGather, falcon.OpReduceScatter, falcon.OpAlltoAll:
		return false
	}
	return true
}

// unknownPeer is a peer that the dumps do not identify.
const unknownPeer falcon.Rank = -2

// pairCall parses "nccl:send 0->3" and "nccl:recv 3<-0", whose numbers are positions
// in the group.
func (s *standstill) pairCall(g int, e *trace.Entry) hang.Call {
	c := hang.Call{
		Group: g,
		Seq:   e.Seq,
		Name:  e.Name,
		Pair:  true,
		Peer:  unknownPeer,
		Place: e.Frame,
	}
	c.Send = e.Op == falcon.OpSend
	sep := "<-"
	if c.Send {
		sep = "->"
	}
	_, peer, ok := strings.Cut(e.Name, sep)
	at, err := strconv.Atoi(peer)
	members := s.job.Groups[g].Members
	if ok && err == nil && at >= 0 && at < len(members) {
		c.Peer = members[at]
	}
	return c
}

// groupText formats a group with its members.
func (s *standstill) groupText(g int) string {
	if g < 0 {
		return "an unknown group"
	}
	return fmt.Sprintf("group %s of %s", s.job.Groups[g].Name, subject(s.job.Groups[g].Members))
}

// subject formats ranks with a verb in singular or plural.
func subject(ranks []falcon.Rank, verb ...string) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d%s", ranks[0], first(verb, 0))
	}
	return "ranks " + ranksText(ranks) + first(verb, 1)
}

func first(verbs []string, i int) string {
	if i < len(verbs) {
		return " " + verbs[i]
	}
	return ""
}

// ranksText formats ranks as 0-3, 7.
func ranksText(ranks []falcon.Rank) string {
	const most = 16
	var parts []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		if len(parts) == most {
			return strings.Join(parts, ", ") + fmt.Sprintf(" and %d more", len(ranks)-i)
		}
		switch j {
		case i:
			parts = append(parts, fmt.Sprint(ranks[i]))
		case i + 1:
			parts = append(parts, fmt.Sprint(ranks[i]), fmt.Sprint(ranks[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", ranks[i], ranks[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
