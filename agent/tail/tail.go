// Package tail keeps the newest calls of one process, and how many it has asked for on
// each communicator: what tells, when a job stands still, who has not come to a call.
//
// It guarantees that a number it gives is the same on all members: collectives count
// from the communicator's creation, sends and receives from the first with the same
// peer. Where calls were not seen, there is no number. Memory is bounded, a call costs
// no allocation once its communicator and peer are known, and there is no clock,
// goroutine or I/O. It must not judge who is behind.
package tail

import (
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of what is kept.
const (
	callsMax = 256  // calls
	peersMax = 1024 // peers over all communicators
	commsMax = 256  // slots of the hook's table
	ringsMax = 8
)

// Tail is the newest calls of a process. The zero value is ready.
type Tail struct {
	calls   [callsMax]call
	n       int // calls so far
	comms   [commsMax]*comm
	peers   int
	groups  [ringsMax]uint32 // the open group of each calling thread, 0 = none
	group   uint32           // the newest
	newest  int64            // when the newest call was entered
	streams map[uint64]uint32
}

// call is one call as it is kept.
type call struct {
	record ring.Record
	id     uint64 // of the communicator
	number uint64
	group  uint32
	open   bool
}

// comm counts one communicator's calls.
type comm struct {
	id                       uint64
	calls, seen, collectives uint64
	pairs                    map[pair]uint64
	paired, crowded          bool
	newest                   int64
}

type pair struct {
	peer int32
	send bool
}

// Add takes the next record; id is its communicator's.
func (t *Tail) Add(r *ring.Record, id uint64) {
	if r.Comm == ring.CommNone {
		t.mark(r)
		return
	}
	if r.Comm >= commsMax {
		return
	}
	c := t.commOf(r.Comm, id)
	k := call{
		record: *r,
		id:     id,
		number: c.count(r, t),
		group:  t.groupOf(r),
	}
	k.open = k.group != 0
	t.calls[t.n%callsMax] = k
	t.n++
	t.newest = max(t.newest, r.EnterNs)
	c.newest = max(c.newest, r.EnterNs)
}

// Newest is when the newest call was entered, by the machine's monotonic clock; 0 = none was seen.
func (t *Tail) Newest() int64 { return t.newest }

// commOf is the count of a slot, begun again where another communicator has it.
func (t *Tail) commOf(slot uint32, id uint64) *comm {
	c := t.comms[slot]
	if c == nil || c.id != id {
		if c != nil {
			t.peers -= len(c.pairs)
		}
		c = &comm{id: id, pairs: map[pair]uint64{}}
		t.comms[slot] = c
	}
	return c
}

// count adds one call and returns its number, 0 where calls before it were not seen.
func (c *comm) count(r *ring.Record, t *Tail) uint64 {
	c.calls = max(c.calls, r.Ordinal+1)
	c.seen++
	if !isPair(r.Op) {
		c.collectives++
		return c.collective(r)
	}
	c.paired = true
	k := pair{r.Peer, r.Op == falcon.OpSend}
	if _, known := c.pairs[k]; !known {
		if t.peers >= peersMax {
			c.crowded = true
			return 0
		}
		t.peers++
	}
	c.pairs[k]++
	if !c.whole() || r.Peer < 0 || c.crowded {
		return 0
	}
	return c.pairs[k]
}

// collective is the number of a collective. Where nothing else was ever seen the
// call's own number tells, also to who came late.
func (c *comm) collective(r *ring.Record) uint64 {
	switch {
	case !c.paired:
		return r.Ordinal + 1
	case c.whole():
		return c.collectives
	}
	return 0
}

// asked is how many collectives were asked for, as far as that is known.
func (c *comm) asked() (n uint64, known bool) {
	switch {
	case !c.paired:
		return c.calls, true
	case c.whole():
		return c.collectives, true
	}
	return 0, false
}

func (c *comm) whole() bool { return c.seen == c.calls }

func isPair(op falcon.Op) bool { return op >= falcon.OpSend }

// groupOf is the open group of the thread that made a call.
func (t *Tail) groupOf(r *ring.Record) uint32 {
	if r.Flags&ring.FlagGrouped == 0 || int(r.Ring) >= ringsMax {
		return 0
	}
	if t.groups[r.Ring] == 0 {
		t.group++
		t.groups[r.Ring] = t.group
	}
	return t.groups[r.Ring]
}

// mark takes the end of a group: NCCL launches it with the outermost one.
func (t *Tail) mark(r *ring.Record) {
	if r.Op != falcon.OpGroupEnd || r.Depth != 0 || int(r.Ring) >= ringsMax {
		return
	}
	g := t.groups[r.Ring]
	t.groups[r.Ring] = 0
	if g == 0 {
		return
	}
	for i := t.n - 1; i >= max(0, t.n-callsMax); i-- {
		if k := &t.calls[i%callsMax]; k.group == g {
			k.open = false
		}
	}
}

// Report describes the process's calls, the newest ones up to most (0 = all that are
// kept); comms is the hook's table as it is now.
func (t *Tail) Report(comms []ring.Comm, monoNs int64, most int) *falconv1.RankCalls {
	if most <= 0 {
		most = callsMax
	}
	out := &falconv1.RankCalls{IdleMs: since(t.newest, monoNs)}
	place := map[uint64]uint32{}
	for _, c := range comms {
		if c.State == ring.CommLive && c.Slot < commsMax {
			place[c.ID] = uint32(len(out.Comms))
			out.Comms = append(out.Comms, t.describe(c, monoNs))
		}
	}
	t.streams = map[uint64]uint32{}
	for i := max(0, t.n-min(most, callsMax)); i < t.n; i++ {
		k := &t.calls[i%callsMax]
		if at, live := place[k.id]; live {
			out.Calls = append(out.Calls, k.message(at, t.streamOf(k.record.Stream)))
		}
	}
	return out
}

// describe is what was asked for on one communicator.
func (t *Tail) describe(c ring.Comm, monoNs int64) *falconv1.CommCalls {
	out := &falconv1.CommCalls{Comm: c.ID, Known: c.Calls == 0}
	k := t.comms[c.Slot]
	if k == nil || k.id != c.ID {
		return out
	}
	out.Collectives, out.Known = k.asked()
	out.Pairs, out.IdleMs = k.paired, since(k.newest, monoNs)
	if c.Calls > k.calls {
		out.Inside = uint32(min(c.Calls-k.calls, callsMax))
	}
	return out
}

// streamOf numbers the streams of a report.
func (t *Tail) streamOf(handle uint64) uint32 {
	n, known := t.streams[handle]
	if !known {
		n = uint32(len(t.streams)) + 1
		t.streams[handle] = n
	}
	return n
}

func (k *call) message(comm, stream uint32) *falconv1.Call {
	r := &k.record
	return &falconv1.Call{
		Comm:     comm,
		Number:   k.number,
		Op:       uint32(r.Op),
		Count:    r.Count,
		Dtype:    uint32(r.Dtype),
		Peer:     r.Peer,
		Stream:   stream,
		Group:    k.group,
		Open:     k.open,
		Failed:   r.Flags&ring.FlagFailed != 0,
		Captured: r.Flags&ring.FlagCapturing != 0,
	}
}

// since is a stretch until now in milliseconds, 0 where it has no begin.
func since(begin, now int64) float64 {
	if begin == 0 {
		return 0
	}
	return float64(max(now-begin, 0)) / float64(time.Millisecond)
}
