// Package survey counts one process's calls by communicator and peer, and keeps the
// counts at the start of its newest iterations: what a consistent cut of a pause is
// made of.
//
// It guarantees that a count is exact, or marked as not steady (the last three
// iterations differ) or not whole (calls were not seen). A record that comes late, from
// another thread, still counts to the iteration that it names; after a loss no boundary
// before it is reported. Memory is bounded, a known communicator and peer costs no
// allocation, and there is no clock, goroutine or I/O. It must not decide where a job
// is held.
package survey

import (
	"cmp"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/iterate"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of a survey's memory.
const (
	iterationsCompared = 3                      // that must be alike for a count to be steady
	startsMax          = iterationsCompared + 1 // starts of iterations remembered
	peersMax           = 8192                   // peers of a process, over all its communicators
)

// Counter counts one process's calls. Boundaries come from the step in each record
// (exact), else from Begin, by which the owner reports the inferred ones.
type Counter struct {
	comms  [256]*commCounts // by slot
	peers  int              // over all comms
	starts []int64          // iterations whose start is known, newest first
	newest int64            // iteration begun last
	some   bool             // newest is known
	marked int64            // newest step mark, which may be older than the records
}

// counts are those of one communicator; ordinals tell calls even where records
// were lost, the rest was seen one by one.
type counts struct{ calls, seen, collectives uint64 }

// commCounts holds the counts now at 0, at the start of the newest iteration at
// 1, and so on.
type commCounts struct {
	at      [1 + startsMax]counts
	peers   []peerCounts // by peer
	crowded bool         // a peer found no room: those counts are of no use
}

type peerCounts struct {
	peer int32
	at   [1 + startsMax]struct{ sends, recvs uint64 }
}

// Add counts one record; step is the iteration that it names, or
// iterate.UnknownIteration.
func (s *Counter) Add(r *ring.Record, step int64) {
	if int(r.Comm) >= len(s.comms) {
		return
	}
	if step > s.newest || (!s.some && step != iterate.UnknownIteration) {
		s.Begin(step)
	}
	c := s.comms[r.Comm]
	if c == nil || (r.Ordinal == 0 && c.at[0].calls > 0) { // a new life of the slot
		c = s.newLife(r)
	}
	s.countRecord(c, r, 0)
	for i, start := range s.starts {
		if step != iterate.UnknownIteration && step < start {
			s.countRecord(c, r, i+1)
		}
	}
}

// newLife begins to count a communicator. The calls before the first one seen came
// before every start that is remembered, as none was lost since.
func (s *Counter) newLife(r *ring.Record) *commCounts {
	c := &commCounts{}
	if old := s.comms[r.Comm]; old != nil {
		s.peers -= len(old.peers)
	}
	for i := range 1 + len(s.starts) {
		c.at[i].calls = r.Ordinal
	}
	s.comms[r.Comm] = c
	return c
}

func (s *Counter) countRecord(c *commCounts, r *ring.Record, i int) {
	n := &c.at[i]
	n.calls = max(n.calls, r.Ordinal+1)
	n.seen++
	switch r.Op {
	case falcon.OpSend:
		if p := s.countsOfPeer(c, r.Peer); p != nil {
			p.at[i].sends++
		}
	case falcon.OpRecv:
		if p := s.countsOfPeer(c, r.Peer); p != nil {
			p.at[i].recvs++
		}
	default:
		if r.Op >= falcon.OpAllReduce && r.Op <= falcon.OpScatter {
			n.collectives++
		}
	}
}

func (s *Counter) countsOfPeer(c *commCounts, peer int32) *peerCounts {
	i, ok := slices.BinarySearchFunc(c.peers, peer, func(p peerCounts, peer int32) int {
		return cmp.Compare(p.peer, peer)
	})
	if !ok {
		if s.peers >= peersMax {
			c.crowded = true
			return nil
		}
		s.peers++
		c.peers = slices.Insert(c.peers, i, peerCounts{peer: peer})
	}
	return &c.peers[i]
}

// Begin notes that an iteration has begun: what was counted so far came before
// it. The first one known and one after a jump have no start that could be
// known.
func (s *Counter) Begin(iteration int64) {
	next := s.some && iteration == s.newest+1
	if !next {
		s.starts = s.starts[:0]
	}
	s.newest, s.some = iteration, true
	if !next {
		return
	}
	if s.starts = slices.Insert(s.starts, 0, iteration); len(s.starts) > startsMax {
		s.starts = s.starts[:startsMax]
	}
	for _, c := range s.comms {
		if c == nil {
			continue
		}
		copy(c.at[1:], c.at[:startsMax])
		for i := range c.peers {
			p := &c.peers[i]
			copy(p.at[1:], p.at[:startsMax])
		}
	}
}

// Forget drops the boundaries: a call that was not seen may have come before
// any of them.
func (s *Counter) Forget() {
	s.starts = s.starts[:0]
	s.some = false
}

// ForgetBefore drops what lies before an iteration: it was counted on communicators
// that have gone, or with none of those that have come.
func (s *Counter) ForgetBefore(iteration int64) {
	s.starts = slices.DeleteFunc(s.starts, func(i int64) bool { return i < iteration })
}

// Reached takes the iteration of the newest step mark, once all records before it
// are counted. The mark is older than the records: one that is behind them says
// nothing, only one that is behind the mark before it shows that the job went back (it
// resumed), and the boundaries are forgotten.
func (s *Counter) Reached(iteration int64) {
	back := iteration < s.marked
	s.marked = iteration
	switch {
	case s.some && back:
		s.Forget()
		s.Begin(iteration)
	case !s.some || iteration > s.newest:
		s.Begin(iteration)
	}
}

// Newest is the iteration begun last; false where it is not known.
func (s *Counter) Newest() (int64, bool) { return s.newest, s.some }

// Missing is how many more iterations must begin before three whole ones can be
// compared.
func (s *Counter) Missing() int { return startsMax - len(s.starts) }

// Report returns the counts of the live communicators at the start of the newest
// iteration; false where no start is known.
func (s *Counter) Report(comms []ring.Comm) (boundary int64, out []*falconv1.CommCount, ok bool) {
	if len(s.starts) == 0 {
		return -1, nil, false
	}
	for _, c := range comms {
		if c.State == ring.CommLive {
			out = append(out, s.countsOfComm(c))
		}
	}
	return s.starts[0], out, true
}

func (s *Counter) countsOfComm(c ring.Comm) *falconv1.CommCount {
	out := &falconv1.CommCount{Comm: c.ID}
	var have *commCounts
	if int(c.Slot) < len(s.comms) {
		have = s.comms[c.Slot]
	}
	switch {
	case c.Calls == 0: // no rank has called on it yet
		out.Steady, out.Whole = true, true
		return out
	case have == nil: // not called on since the first start that is known
		out.Calls, out.Steady = c.Calls, len(s.starts) == startsMax
		return out
	case have.at[0].calls > c.Calls: // of the slot's last life
		out.Calls = c.Calls
		return out
	}
	at := &have.at
	out.Calls = at[1].calls
	out.Whole = at[1].seen == at[1].calls && !have.crowded
	out.Steady = len(s.starts) == startsMax && have.isSteady()
	if out.Whole {
		out.Collectives = at[1].collectives
	}
	if out.Steady {
		out.PerIteration = at[1].calls - at[2].calls
		out.CollectivesPerIteration = at[1].collectives - at[2].collectives
	}
	out.Peers = have.peerCounts(out.Steady, out.Whole)
	return out
}

// isSteady reports whether the last iterations were alike in every count, and that all
// their calls were seen.
func (c *commCounts) isSteady() bool {
	first := c.at[1].difference(c.at[2])
	if c.crowded || first.seen != first.calls {
		return false
	}
	for i := 2; i <= iterationsCompared; i++ {
		if c.at[i].difference(c.at[i+1]) != first {
			return false
		}
	}
	return !slices.ContainsFunc(c.peers, func(p peerCounts) bool {
		return !p.isSteady()
	})
}

func (p *peerCounts) isSteady() bool {
	sends := p.at[1].sends - p.at[2].sends
	recvs := p.at[1].recvs - p.at[2].recvs
	for i := 2; i <= iterationsCompared; i++ {
		if p.at[i].sends-p.at[i+1].sends != sends || p.at[i].recvs-p.at[i+1].recvs != recvs {
			return false
		}
	}
	return true
}

func (c counts) difference(b counts) counts {
	return counts{
		calls:       c.calls - b.calls,
		seen:        c.seen - b.seen,
		collectives: c.collectives - b.collectives,
	}
}

func (c *commCounts) peerCounts(steady, whole bool) []*falconv1.PeerCount {
	if !steady && !whole {
		return nil
	}
	out := make([]*falconv1.PeerCount, 0, len(c.peers))
	for _, p := range c.peers {
		o := &falconv1.PeerCount{Peer: p.peer}
		if steady {
			o.SendsPerIteration = p.at[1].sends - p.at[2].sends
			o.RecvsPerIteration = p.at[1].recvs - p.at[2].recvs
		}
		if whole {
			o.Sends, o.Recvs = p.at[1].sends, p.at[1].recvs
		}
		out = append(out, o)
	}
	return out
}
