package recovery

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// unbegun is for how long a job has not begun its first iteration, from HangMin
// on: before that it may load, compile or warm up. 0 = it has begun one, or
// nobody can say.
func (m *Machine) unbegun(now time.Time) time.Duration {
	for_ := m.pace.still(now)
	if m.pace.newest >= 0 || m.pace.held || for_ < m.cfg.HangMin {
		return 0
	}
	return for_
}

// watchHang names a job whose processes live and which does not move. What to
// do about it is for a person to say.
func (m *Machine) watchHang(now time.Time) {
	if m.cur != nil || m.closed || m.pace.hung {
		return
	}
	limit := max(time.Duration(m.cfg.HangFactor*float64(m.pace.typical())), m.cfg.HangMin)
	for_ := m.stalled(now)
	if begin := m.unbegun(now); begin > 0 {
		if t := m.testify(now); t.vouched() {
			for_ = min(begin, now.Sub(t.since))
		} else if m.hear.exhausted(now, m.cfg.HangMin) { // it may have begun unheard
			for_ = begin
		}
	}
	if for_ < limit || !m.anyAlive() {
		return
	}
	m.pace.hung = true
	m.fault(now, falcon.Fault{
		Kind: falcon.FaultHang, FirstNs: m.pace.moved.UnixNano(),
		Evidence: []string{fmt.Sprintf("no rank has begun an iteration for %.0f s, %s", for_.Seconds(), m.soundness(now)), m.behind()},
	})
}

// watchEmpty names a job of which no process is left although all its nodes are
// heard: they ended while nobody looked. Somebody may have stopped it.
func (m *Machine) watchEmpty(now time.Time) {
	if m.cur != nil || m.closed || m.pace.hung || m.pace.held || len(m.ends.over) > 0 || m.hear.holds() || m.anyAlive() || m.pace.still(now) < m.cfg.HangMin {
		return
	}
	if slices.ContainsFunc(m.sorted, func(n falcon.Node) bool { h := m.host(n, now); return !h.met || m.unheard(now, h) }) {
		return
	}
	m.pace.hung = true
	m.fault(now, falcon.Fault{
		Kind: falcon.FaultHang, FirstNs: m.pace.moved.UnixNano(),
		Evidence: []string{fmt.Sprintf("%s for %.0f s, and nobody saw how they ended", noneLeft, m.pace.still(now).Seconds())},
	})
}

// noneLeft begins the evidence that all processes are gone.
const noneLeft = "all nodes are heard, and none has had a process of the job"

// unheardOf begins the part of a hang's evidence that names silent nodes.
const unheardOf = "and nothing is heard of "

// soundness says in what condition the nodes of a job that hangs are.
func (m *Machine) soundness(now time.Time) string {
	var silent []falcon.Node
	for _, n := range m.sorted {
		if m.unheard(now, m.host(n, now)) {
			silent = append(silent, n)
		}
	}
	if len(silent) == 0 {
		return "all processes and their hooks are alive"
	}
	return unheardOf + nodeList(silent)
}

// watchParked finds processes that have left training by themselves, as they do
// when a communicator breaks: nobody may be faulty, and all must rejoin.
func (m *Machine) watchParked(now time.Time) {
	if m.cur != nil || m.closed {
		return
	}
	for r := range m.ranks {
		x := &m.ranks[r]
		if !x.known || !x.proc.Alive || x.proc.Park == nil || now.Sub(x.parkedAt) < 2*m.cfg.Beat {
			continue
		}
		m.fault(now, falcon.Fault{
			Kind: falcon.FaultHang, Node: x.proc.Node, Device: m.placement()[r], FirstNs: x.parkedAt.UnixNano(),
			Evidence: []string{fmt.Sprintf("rank %d (process %d on %s) has left training by itself and no fault is known: its communicators may be broken", r, x.proc.Pid, m.placement()[r])},
		})
		return
	}
}

// behind names the ranks that stand at the oldest iteration.
func (m *Machine) behind() string {
	low, first, n, with := int64(-1), falcon.Rank(0), 0, 0
	for r, x := range m.ranks {
		if x.beatAt.IsZero() {
			continue
		}
		with++
		switch {
		case n == 0 || x.beat.Iteration < low:
			low, first, n = x.beat.Iteration, falcon.Rank(r), 1
		case x.beat.Iteration == low:
			n++
		}
	}
	if n == 0 || low < 0 {
		return "none was heard of before"
	}
	if n == with {
		return fmt.Sprintf("all ranks stand at iteration %d", low)
	}
	return fmt.Sprintf("%d of %d ranks, the first of them rank %d, stand at iteration %d, behind the others", n, with, first, low)
}
