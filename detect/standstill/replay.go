package standstill

import (
	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/trace/hang"
)

// The hook sees which calls a rank has asked for, not which its device has ended. What
// can't have ended follows from all ranks together: a stream runs its calls one after
// the other, a collective needs all members, a receive its send. So the calls are run
// through: what is left at the end waits for something that no rank has asked for.

// unit is what a stream runs at once: a call, or those of a group.
type unit struct {
	rank  falcon.Rank
	calls []int // into layout.seen
	left  int   // of them that have not ended
}

// operation is one call across its members.
type operation struct {
	missing int // members, or the send, that have not come to it
	shape   string
	mixed   bool // members disagree: it never ends
	at      []*unit
}

// run is the state of a replay.
type run struct {
	*layout

	ops    map[opKey]*operation
	queues map[lane][]*unit
	ready  []lane // whose first unit is to begin
}

// transfers are the sends, or receives, of one rank with another.
type transfers struct {
	group    int
	src, dst falcon.Rank
}

// lane is one stream of one rank.
type lane struct {
	rank   falcon.Rank
	stream uint32
}

func (l *layout) replay() {
	x := &run{
		layout: l,
		ops:    map[opKey]*operation{},
		queues: map[lane][]*unit{},
	}
	for r := range l.seen {
		l.left[r] = make([]bool, len(l.seen[r]))
		x.queue(falcon.Rank(r))
	}
	for len(x.ready) > 0 {
		at := x.ready[len(x.ready)-1]
		x.ready = x.ready[:len(x.ready)-1]
		if q := x.queues[at]; len(q) > 0 {
			x.begin(q[0])
		}
	}
}

// queue lays a rank's calls out in its streams.
func (x *run) queue(r falcon.Rank) {
	open := map[[2]uint32]*unit{}
	for i, e := range x.seen[r] {
		x.left[r][i] = true
		x.note(&e)
		at := lane{r, e.stream}
		k := [2]uint32{e.stream, e.group}
		u := open[k]
		if u == nil || e.group == 0 {
			u = &unit{rank: r}
			open[k] = u
			if len(x.queues[at]) == 0 {
				x.ready = append(x.ready, at)
			}
			x.queues[at] = append(x.queues[at], u)
		}
		u.calls = append(u.calls, i)
		u.left++
	}
}

// begin has a unit's calls come to their operations.
func (x *run) begin(u *unit) {
	for _, i := range u.calls {
		e := &x.seen[u.rank][i]
		op := x.operationOf(e)
		switch {
		case e.Send: // it may end before it is received
			op.missing = 0
			x.end(u, e)
			x.wake(e.key, op)
			continue
		case !e.Pair:
			op.missing--
			op.compare(e.shape)
		}
		op.at = append(op.at, u)
		x.wake(e.key, op)
	}
}

func (op *operation) compare(shape string) {
	op.mixed = op.mixed || op.shape != "" && shape != op.shape
	op.shape = shape
}

// operationOf counts who has to come: all members that have not asked for it in calls
// that are recorded no more.
func (x *run) operationOf(e *entry) *operation {
	if op := x.ops[e.key]; op != nil {
		return op
	}
	op := &operation{missing: 1}
	x.ops[e.key] = op
	switch {
	case e.Pair && !e.Send && x.sentBefore(e):
		op.missing = 0
	case !e.Pair && !x.whole[e.Group]:
		op.missing = 0 // who has to come is not known
	case !e.Pair:
		op.missing = 0
		for _, r := range x.out.Groups[e.Group].Members {
			if !x.past(r, hang.Key{Group: e.Group, Seq: e.Seq}) {
				op.missing++
			}
		}
	}
	return op
}

// past reports whether a member has asked for a collective, in a call that is too old
// to be recorded, or may have where its count is not known.
func (x *run) past(r falcon.Rank, k hang.Key) bool {
	m := &x.out.Members[r]
	if !m.Seen {
		return false
	}
	if _, recorded := m.Calls[k]; recorded {
		return false
	}
	asked, known := m.Asked[k.Group]
	return !known || asked >= k.Seq
}

// sentBefore reports whether the send of a receive is older than what its rank recorded,
// or may be where the rank has calls that are not seen.
func (x *run) sentBefore(e *entry) bool {
	m := &x.out.Members[e.Peer]
	if !m.Seen {
		return false
	}
	t := x.sends[transfers{e.Group, e.key.src, e.key.dst}]
	return e.number < t.oldest || t.newest == 0 && m.Hidden
}

// wake ends an operation that has all it needs.
func (x *run) wake(k opKey, op *operation) {
	if op.missing > 0 || op.mixed {
		return
	}
	at := op.at
	op.at = nil
	for _, u := range at {
		for _, i := range u.calls {
			if e := &x.seen[u.rank][i]; e.key == k && !e.Send {
				x.end(u, e)
			}
		}
	}
}

// end ends one call of a unit; with the last one its stream goes on.
func (x *run) end(u *unit, e *entry) {
	for _, i := range u.calls {
		if &x.seen[u.rank][i] != e || !x.left[u.rank][i] {
			continue
		}
		x.left[u.rank][i] = false
		if u.left--; u.left == 0 {
			at := lane{u.rank, e.stream}
			x.queues[at] = x.queues[at][1:]
			x.ready = append(x.ready, at)
		}
	}
}
