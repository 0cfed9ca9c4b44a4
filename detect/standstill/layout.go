package standstill

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/trace/hang"
)

// layout is the job as hang.Solve reads it, and the names for its answer.
type layout struct {
	job    Job
	calls  map[falcon.Rank]*Calls
	out    hang.Job
	index  map[uint64]int // group by id
	whole  []bool         // all members of the group are known
	active []bool         // some rank's newest calls are in the group
	seen   [][]entry      // by rank: its newest calls, in their order
	left   [][]bool       // aligned: the call has not ended

	sends, receives map[transfers]span
	awaited         map[opKey]bool // receives that have not ended

	// collectives that can't have ended, and are recorded by other members alone
	older map[falcon.Rank][]hang.Call
	// waits though all calls of all ranks are known that devices may be in, and its
	// own have what they need
	newest map[falcon.Rank]bool
	deep   bool // those calls are known
}

// span is the numbers of recorded transfers; both 0 = none.
type span struct{ oldest, newest uint64 }

// entry is one call of one rank.
type entry struct {
	hang.Call

	key    opKey
	shape  string
	stream uint32
	group  uint32
	number uint64
}

// opKey is one call across its members: a collective, or one transfer of a pair.
type opKey struct {
	group    int
	seq      int64
	src, dst falcon.Rank // -1 of a collective
}

// unknownPeer stands for a peer that is not known.
const unknownPeer falcon.Rank = -2

// layOut finds which calls can't have ended.
func layOut(job Job, calls map[falcon.Rank]*Calls) *layout {
	l := &layout{
		job:      job,
		calls:    calls,
		index:    map[uint64]int{},
		seen:     make([][]entry, len(job.Seats)),
		left:     make([][]bool, len(job.Seats)),
		sends:    map[transfers]span{},
		receives: map[transfers]span{},
		awaited:  map[opKey]bool{},
		older:    map[falcon.Rank][]hang.Call{},
		newest:   map[falcon.Rank]bool{},
	}
	for g, in := range job.Groups {
		l.index[in.ID] = g
		members := slices.DeleteFunc(slices.Clone(in.Places), func(r falcon.Rank) bool {
			return r < 0 || int(r) >= len(job.Seats)
		})
		l.whole = append(l.whole, len(members) == len(in.Places))
		slices.Sort(members)
		l.out.Groups = append(l.out.Groups, hang.Group{
			Name:    in.Name,
			Kind:    in.Kind,
			Members: slices.Compact(members),
		})
	}
	l.findActive()
	for r, seat := range job.Seats {
		m := hang.Member{Rank: falcon.Rank(r)}
		if c := calls[m.Rank]; c != nil && seat.Alive {
			l.enter(&m, c, seat)
		}
		l.out.Members = append(l.out.Members, m)
	}
	l.deep = l.isDeep()
	l.replay()
	l.findOlder()
	for r := range l.out.Members {
		if l.out.Members[r].Seen {
			l.settle(&l.out.Members[r])
		}
	}
	return l
}

// findActive finds the groups that are in use. What is not known of another one does not
// matter: no rank waits in it.
func (l *layout) findActive() {
	l.active = make([]bool, len(l.job.Groups))
	for _, c := range l.calls {
		for _, k := range c.Calls {
			if k.Comm < 0 || k.Comm >= len(c.Comms) {
				continue
			}
			if g, known := l.index[c.Comms[k.Comm].Comm]; known {
				l.active[g] = true
			}
		}
	}
}

// enter reads off one process's answer what it has asked for.
func (l *layout) enter(m *hang.Member, c *Calls, seat Seat) {
	m.Seen = true
	m.Whole = true
	m.Hidden = seat.Hidden
	m.Asked = map[int]int64{}
	m.Done = map[int]int64{}
	m.Calls = map[hang.Key]hang.Record{}
	for _, k := range c.Comms {
		g, known := l.index[k.Comm]
		switch {
		case !known:
		case !k.Known:
			m.Whole, m.Hidden = false, m.Hidden || l.active[g] || k.Inside > 0
		default:
			m.Asked[g] = int64(k.Collectives)
		}
	}
	m.Empty = len(c.Comms) == 0
	for i := range c.Calls {
		l.enterCall(m, c, &c.Calls[i])
	}
}

// enterCall adds one call, unless NCCL has not launched it.
func (l *layout) enterCall(m *hang.Member, c *Calls, k *Call) {
	if k.Comm < 0 || k.Comm >= len(c.Comms) {
		return
	}
	g, known := l.index[c.Comms[k.Comm].Comm]
	pair := k.Op >= falcon.OpSend
	switch {
	case !known:
		return
	case k.Open || k.Failed:
		if _, asked := m.Asked[g]; asked && !pair {
			m.Asked[g]--
		}
		return
	case k.Number == 0 || k.Captured || k.Op > falcon.OpRecv:
		m.Hidden = true
		return
	}
	e := l.entryOf(m.Rank, g, k, pair)
	if !pair {
		m.Calls[hang.Key{Group: g, Seq: e.Seq}] = hang.Record{
			Shape: e.shape,
			At:    len(l.seen[m.Rank]),
		}
	} else if e.Peer == unknownPeer {
		m.Hidden = true
		return
	}
	l.seen[m.Rank] = append(l.seen[m.Rank], e)
}

func (l *layout) entryOf(r falcon.Rank, g int, k *Call, pair bool) entry {
	e := entry{
		Call: hang.Call{
			Group:  g,
			Name:   k.Op.String(),
			Rooted: isRooted(k.Op),
			Pair:   pair,
			Send:   k.Op == falcon.OpSend,
		},
		stream: k.Stream,
		group:  k.Group,
		number: k.Number,
	}
	if !pair {
		e.Seq, e.shape = int64(k.Number), shapeOf(k)
		e.key = opKey{g, e.Seq, -1, -1}
		return e
	}
	e.Peer = unknownPeer
	places := l.job.Groups[g].Places
	if k.Peer >= 0 && k.Peer < len(places) && places[k.Peer] >= 0 {
		e.Peer = places[k.Peer]
	}
	e.Name = fmt.Sprintf("%s %d->%d", k.Op, r, e.Peer)
	e.key = opKey{g, int64(k.Number), r, e.Peer}
	if !e.Send {
		e.Name = fmt.Sprintf("%s %d<-%d", k.Op, r, e.Peer)
		e.key.src = e.Peer
		e.key.dst = r
	}
	return e
}

// isRooted reports whether members may leave a call before others are in it.
func isRooted(op falcon.Op) bool {
	switch op {
	case falcon.OpAllReduce, falcon.OpAllGather, falcon.OpReduceScatter, falcon.OpAlltoAll:
		return false
	}
	return true
}

var dtypeNames = [...]string{
	"int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
	"bfloat16", "float8e4m3", "float8e5m2",
}

// shapeOf is what all members of a collective must agree on.
func shapeOf(k *Call) string {
	name := fmt.Sprintf("type %d", k.Dtype)
	if int(k.Dtype) < len(dtypeNames) {
		name = dtypeNames[k.Dtype]
	}
	shape := fmt.Sprintf("%s of %d %s", k.Op, k.Count, name)
	if isRooted(k.Op) && k.Peer >= 0 {
		shape += fmt.Sprintf(" at root %d", k.Peer)
	}
	return shape
}

// freshMs is the age up to which a hook's report on its process is current: it beats every
// 100 ms.
const freshMs = 1500

// settle gives a member its pending calls, and what it has completed.
func (l *layout) settle(m *hang.Member) {
	r := m.Rank
	c := l.calls[m.Rank]
	m.Pending = append(m.Pending, l.older[r]...)
	idle := c.WaitingKnown && c.WaitingMs == 0
	for i, e := range l.seen[r] {
		if l.left[r][i] && !(idle && (e.Rooted && !e.Pair || e.Send)) {
			m.Pending = append(m.Pending, e.Call)
		}
	}
	l.addInside(m, c)
	if len(m.Pending) == 0 &&
		c.WaitingKnown &&
		c.WaitingMs > 0 &&
		c.HookAgeMs < freshMs {
		l.addNewest(m)
	}
	for g, asked := range m.Asked {
		m.Done[g] = asked
	}
	for _, p := range m.Pending {
		if !p.Pair {
			m.Done[p.Group] = min(m.Done[p.Group], p.Seq-1)
		}
	}
}

// addInside adds a call that has begun and not returned. Its operation is not recorded
// so far; where the communicator carries collectives alone its number is known.
func (l *layout) addInside(m *hang.Member, c *Calls) {
	for _, k := range c.Comms {
		g, known := l.index[k.Comm]
		switch {
		case !known || k.Inside == 0:
		case k.Pairs || !k.Known:
			m.Hidden = true // of which operation it is, or which number, is not known
		default:
			m.Asked[g]++
			m.Pending = append(m.Pending, hang.Call{
				Group: g,
				Seq:   m.Asked[g],
				Name:  l.nameOf(g, m.Asked[g]),
			})
		}
	}
}

// nameOf is what another member calls there.
func (l *layout) nameOf(g int, seq int64) string {
	for _, r := range l.out.Groups[g].Members {
		for _, e := range l.seen[r] {
			if e.Group == g && e.Seq == seq && !e.Pair {
				return e.Name
			}
		}
	}
	return "a call that has not returned"
}

// aheadMost is how many calls a host is ahead of its device at most: CUDA takes some
// thousand kernels before it blocks, and most are not NCCL's.
const aheadMost = 256

// isDeep reports whether of all ranks all calls are recorded that their devices may be in.
func (l *layout) isDeep() bool {
	for r := range l.out.Members {
		c := l.calls[falcon.Rank(r)]
		m := &l.out.Members[r]
		if !m.Seen ||
			m.Hidden ||
			len(c.Calls) < aheadMost && uint64(len(c.Calls)) < c.Sign.Calls {
			return false
		}
	}
	return true
}

// addNewest has a rank that waits, though all its calls have what they need, wait in a
// send that no rank has received so far, else in its newest call.
func (l *layout) addNewest(m *hang.Member) {
	l.newest[m.Rank] = l.deep
	list := l.seen[m.Rank]
	for _, e := range list {
		if e.Send && !l.received(e) {
			m.Pending = append(m.Pending, e.Call)
		}
	}
	if n := len(list); len(m.Pending) == 0 && n > 0 {
		for _, e := range list {
			last := list[n-1]
			if e.key == last.key || e.group == last.group && e.group != 0 {
				m.Pending = append(m.Pending, e.Call)
			}
		}
	}
}

// findOlder finds members that wait in a collective without having recorded it: they
// have asked for many calls since, and another member has not come to it. It notes the
// receives that wait as well.
func (l *layout) findOlder() {
	known := map[hang.Key]bool{}
	for r := range l.seen {
		for i, e := range l.seen[r] {
			k := hang.Key{Group: e.Group, Seq: e.Seq}
			if e.Pair && !e.Send && l.left[r][i] {
				l.awaited[e.key] = true
			}
			if e.Pair || e.Rooted || !l.left[r][i] || known[k] {
				continue
			}
			known[k] = true
			for _, o := range l.out.Groups[e.Group].Members {
				m := &l.out.Members[o]
				_, recorded := m.Calls[k]
				if m.Seen && !recorded && m.Asked[e.Group] >= e.Seq {
					l.older[o] = append(l.older[o], e.Call)
				}
			}
		}
	}
}

// received reports whether the device of a send's peer has come to the receive.
func (l *layout) received(send entry) bool {
	return l.receives[transfers{send.Group, send.key.src, send.key.dst}].newest >= send.number &&
		!l.awaited[send.key]
}

// note remembers which transfers are recorded.
func (l *layout) note(e *entry) {
	in := l.receives
	switch {
	case !e.Pair:
		return
	case e.Send:
		in = l.sends
	}
	k := transfers{e.Group, e.key.src, e.key.dst}
	s := in[k]
	if s.newest == 0 {
		s.oldest = e.number
	}
	s.oldest = min(s.oldest, e.number)
	s.newest = max(s.newest, e.number)
	in[k] = s
}
