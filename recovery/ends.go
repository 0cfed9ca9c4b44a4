package recovery

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// ends is how the ranks of a job epoch have come to their end. A job finishes
// rank by rank: once one has ended with success and no iteration has begun since,
// an end that nobody could explain is one of a job that finishes.
type ends struct {
	over     map[falcon.Rank]bool      // with success
	open     map[falcon.Rank]time.Time // nobody has said how, since when
	newest   time.Time                 // end with success
	at       int64                     // newest iteration told by then; NoIteration = none was
	finished bool                      // all ranks are over: nothing is left to recover in this job epoch
}

// finishWait is how long after a rank's end with success the ends of others that
// nobody could explain are taken for the same.
const finishWait = 30 * time.Second

func newEnds() ends {
	return ends{over: map[falcon.Rank]bool{}, open: map[falcon.Rank]time.Time{}}
}

// follow takes up the ranks' new numbers.
func (e *ends) follow(perm []falcon.Rank) {
	e.over, e.open = rekeyed(e.over, perm), rekeyed(e.open, perm)
}

// finishing reports whether a rank has ended with success and the job does not go
// on. Its peers may still come to the end of the step that was its last.
func (e *ends) finishing(p *progress, beat time.Duration) bool {
	if len(e.over) == 0 {
		return false
	}
	if e.at < 0 {
		e.at = p.told
	}
	return p.told <= e.at+1 || !p.grew.After(e.newest.Add(2*beat))
}

// covers reports whether an end that nobody could explain is one of a job that
// finishes: it came soon after one with success, or most of the ranks have ended so.
func (e *ends) covers(now time.Time, p *progress, beat time.Duration, ranks int) bool {
	return e.finishing(p, beat) && (now.Sub(e.newest) <= finishWait || 2*len(e.over) > ranks)
}

// succeed enters an end with success, and lists the ranks whose ends it explains.
func (e *ends) succeed(now time.Time, r falcon.Rank, told int64) []falcon.Rank {
	out := []falcon.Rank{r}
	e.newest, e.at = now, told
	delete(e.open, r)
	out = slices.AppendSeq(out, maps.Keys(e.open))
	clear(e.open)
	for _, r := range out {
		e.over[r] = true
	}
	slices.Sort(out)
	return out
}

// overdue lists the ranks whose ends were open for too long.
func (e *ends) overdue(now time.Time, most time.Duration) []falcon.Rank {
	var out []falcon.Rank
	for r, since := range e.open {
		if now.Sub(since) >= most {
			out = append(out, r)
		}
	}
	slices.Sort(out)
	return out
}

// idle reports whether nothing was ordered yet: no recovery is open, or one is
// only proposed.
func (m *Machine) idle() bool {
	return m.cur == nil || m.cur.State == falcon.RecoveryProposed && m.cur.Attempts == 0 && !m.cur.Whole
}

// ended judges a process's end.
func (m *Machine) ended(now time.Time, p Process) {
	idle := m.idle()
	switch {
	case m.closed && m.cur == nil && p.Normal, m.ends.finished:
		return
	case idle && p.Finished, !idle && p.Finished && m.at.rejoinedOK(p.Rank):
		m.succeeded(now, p.Rank)
		return
	case m.cur == nil && p.Normal:
		return // on an order
	case !idle && (m.cur.Whole || m.at.stopping[p.Rank] || p.Normal && m.at.rejoinedOK(p.Rank)):
		m.at.moved = now
		return
	case idle && p.Exit == "" && m.ends.covers(now, &m.pace, m.cfg.Beat, len(m.ranks)):
		m.succeeded(now, p.Rank)
		return
	case m.cur != nil && slices.Contains(m.cur.Pending, p.Rank):
		return
	case !idle && p.Finished && m.cur.State == falcon.RecoverySuspend && !heldBack(m.cur, p):
		m.succeeded(now, p.Rank) // before the order came; gone asks for it where others have parked
		return
	case idle && p.Exit == "":
		m.ends.open[p.Rank] = now
		return
	}
	m.lost(now, p)
}

// heldBack reports whether a process that ended was parked, as far as is known.
// What an agent saw last may be older than the rejoin of an earlier generation:
// ranks that were ordered to rejoin may have trained to the job's end since.
func heldBack(c *falcon.Recovery, p Process) bool {
	return p.Park != nil && (!c.NoReturn || p.Park.Generation >= c.Generation)
}

// explains takes a later word on how a process ended, where one was missing.
func (m *Machine) explains(now time.Time, p Process) {
	x := &m.ranks[p.Rank]
	if _, open := m.ends.open[p.Rank]; !open || p.Alive || p.Exit == "" || x.proc.Pid != p.Pid || x.proc.Generation != p.Generation {
		return
	}
	delete(m.ends.open, p.Rank)
	x.proc = p
	m.ended(now, p)
}

// succeeded enters an end with success, and those that it explains.
func (m *Machine) succeeded(now time.Time, r falcon.Rank) {
	if m.cur != nil {
		m.at.moved, m.at.over = now, m.cur.State == falcon.RecoveryRejoin
	}
	m.ready.Ended = append(m.ready.Ended, m.ends.succeed(now, r, m.pace.told)...)
	m.allOver(now)
}

// allOver closes the job epoch once all its ranks have ended with success.
func (m *Machine) allOver(now time.Time) {
	if m.ends.finished || len(m.ranks) == 0 || len(m.ends.over) < len(m.ranks) {
		return
	}
	m.ends.finished = true
	m.note("recovery", 0, "the job has finished: all %d ranks ended normally", len(m.ranks))
	if m.cur != nil && (m.cur.State == falcon.RecoveryProposed || m.cur.State == falcon.RecoverySuspend && !m.cur.Whole) {
		m.finish(now, falcon.RecoveryCancelled, "the job has finished: nothing is left to recover")
	}
}

// watchFinish ends a recovery that the job's end has overtaken: ranks have ended
// with success, most of them or none otherwise, and nobody is heard who still
// lives. Who is not heard may have ended too.
func (m *Machine) watchFinish(now time.Time) {
	if m.cur == nil || m.cur.State != falcon.RecoverySuspend || m.cur.Whole || len(m.ends.over) == 0 || m.anyFailed() && !m.mostOver() {
		return
	}
	for r := range m.ranks {
		x := &m.ranks[r]
		if x.known && x.proc.Alive && !m.isFenced(x.proc.Node) && !m.unheard(now, m.host(x.proc.Node, now)) {
			return
		}
	}
	m.at.overtaken = true
	m.finish(now, falcon.RecoveryCancelled, fmt.Sprintf("%d of %d ranks have ended with success and no other is heard: the job has come to its end", len(m.ends.over), len(m.ranks)))
	m.closed = false // the others' ends are still to come
}

// anyFailed reports whether a rank is known to have ended otherwise.
func (m *Machine) anyFailed() bool {
	return slices.ContainsFunc(m.ranks, func(x member) bool { return x.known && !x.proc.Alive && !x.proc.Normal && x.proc.Exit != "" })
}

// mostOver reports whether most ranks have ended with success.
func (m *Machine) mostOver() bool { return 2*len(m.ends.over) > len(m.ranks) }

// watchEnds takes ends that nobody has explained in time for faults. A node that is
// not heard, or not yet, may have more to say of it.
func (m *Machine) watchEnds(now time.Time) {
	if len(m.ends.open) == 0 {
		return
	}
	wait := m.cfg.Unexplained
	if slices.ContainsFunc(m.sorted, func(n falcon.Node) bool { h := m.host(n, now); return !h.met || m.unheard(now, h) }) {
		wait = max(wait, m.cfg.Grace)
	}
	for _, r := range m.ends.overdue(now, wait) {
		delete(m.ends.open, r)
		if x := &m.ranks[r]; x.known && !x.proc.Alive {
			m.lost(now, x.proc)
		}
	}
}
