package recovery

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// How is how an agent's stream came to its end.
type How uint8

// Ends of streams. None of them is a sign against the node by itself.
const (
	TimedOut How = iota // nothing was heard on it for long
	Reset               // the other side broke it
	Goodbye             // the agent has said that it stops in order
	Closed              // the console ended it itself
)

// leaves reports whether a node's agent has said goodbye and still has time to
// come back.
func (h *host) leaves(now time.Time, leave time.Duration) bool {
	return h.gone && h.how == Goodbye && now.Sub(h.goneAt) < leave
}

// unheard reports whether nothing is known of a node now.
func (m *Machine) unheard(now time.Time, h *host) bool {
	return h.gone || m.silent(now, h) >= m.cfg.Suspect
}

// testimony is what the nodes that are heard say of a job that stalls. A node
// that is not heard is implicated where all others wait: ranks exchange in
// lockstep, so that the cause is with those of whom nothing is known. A rank that
// is heard and does not wait explains the stall by itself.
type testimony struct {
	nodes   int       // heard
	waiting int       // of them those of which a rank waits
	since   time.Time // newest time at which a rank began to wait
	busy    int       // ranks in their own code or storage
	frozen  int       // ranks whose hooks are silent
}

// word is what one rank says of a stall.
type word uint8

const (
	mute   word = iota // it can't say: no process, no beat, or a hook that does not measure it
	waits              // for others
	busy               // it does not wait
	frozen             // its hook is silent
)

// vouched reports whether all nodes that are heard wait.
func (t testimony) vouched() bool {
	return t.nodes > 0 && t.waiting == t.nodes && t.busy+t.frozen == 0
}

// add takes the words of one node's ranks, with when those that wait began.
func (t *testimony) add(words []word, since []time.Time) {
	t.nodes++
	waiting := false
	for i, w := range words {
		switch w {
		case waits:
			waiting = true
			if since[i].After(t.since) {
				t.since = since[i]
			}
		case busy:
			t.busy++
		case frozen:
			t.frozen++
		case mute:
		}
	}
	if waiting {
		t.waiting++
	}
}

// against is the sign that a stall which no rank explains is against a node that is
// not heard, empty = none. Without the word of every node that is heard, it takes a longer stall.
func (t testimony) against(stall, unvouched time.Duration) string {
	switch {
	case t.frozen > 0:
		return ""
	case t.vouched():
		return fmt.Sprintf("no rank has begun an iteration for %.1f s, and those that are heard wait", stall.Seconds())
	case stall >= unvouched:
		return fmt.Sprintf("no rank has begun an iteration for %.1f s", stall.Seconds())
	}
	return ""
}

// testify gathers the words of all nodes that are heard.
func (m *Machine) testify(now time.Time) testimony {
	var t testimony
	for _, n := range m.sorted {
		h := m.host(n, now)
		if m.isFenced(n) || !h.met || m.unheard(now, h) {
			continue
		}
		words, since := make([]word, len(m.on[n])), make([]time.Time, len(m.on[n]))
		for i, r := range m.on[n] {
			words[i], since[i] = m.ranks[r].word(now, m.cfg.Beat), m.ranks[r].waitsSince()
		}
		t.add(words, since)
	}
	return t
}

// word is what the rank's newest beat says of a stall.
func (x *member) word(now time.Time, beat time.Duration) word {
	switch {
	case !x.known || !x.proc.Alive:
		return mute
	case x.proc.Park != nil:
		return waits // to rejoin
	case x.beatAt.IsZero() || now.Sub(x.beatAt) > 2*beat:
		return mute
	case x.hookAge() > 2*beat:
		return frozen
	case !x.beat.WaitingKnown:
		return mute
	case x.beat.WaitingMs >= ms(beat.Nanoseconds()):
		return waits
	}
	return busy
}

// waitsSince is when a rank that waits began to.
func (x *member) waitsSince() time.Time {
	if x.proc.Park != nil {
		return x.parkedAt
	}
	return x.beatAt.Add(-time.Duration(x.beat.WaitingMs * float64(time.Millisecond)))
}

// standstill is for how long the job stalls, by its iterations, or by the words of
// ranks that all wait: they know it before a beat without an iteration says it;
// 0 = it goes on, or nobody can say.
func (m *Machine) standstill(now time.Time, t testimony) time.Duration {
	usual, known := m.pace.usual()
	stall := m.stalled(now)
	switch {
	case stall > 0 || m.pace.held:
		return stall
	case m.pace.newest < 0 && t.vouched(): // a job begins when it does: all but some have, for long
		return max(0, now.Sub(t.since)-m.cfg.HangMin)
	case m.pace.newest < 0 || !known || !t.vouched() || m.pace.still(now) < 2*m.cfg.Beat || now.Sub(t.since) < 2*m.cfg.Beat+usual:
		return 0
	}
	return now.Sub(t.since)
}

func (x *member) hookAge() time.Duration {
	return time.Duration(x.beat.HookAgeMs * float64(time.Millisecond))
}

// second is the second sign against a silent node, empty = none. While iterations
// begin there is none: they prove that all ranks live. Where no node is heard
// nobody can say that none begin.
func (m *Machine) second(now time.Time, n falcon.Node, t testimony, stall time.Duration) string {
	h := m.nodes[n]
	if m.recovering() {
		return m.secondMeanwhile(now, n, h)
	}
	switch {
	case stall == 0, t.nodes == 0, t.busy > 0, m.someLeave(now) && stall < m.cfg.LeaveStall: // it may be one of theirs
		return ""
	case m.fresh(now, h):
		return deviceText(h.fatal)
	case m.policy.Recovery.FenceAlone && m.pace.newest >= 0:
		return fmt.Sprintf("no rank has begun an iteration for %.1f s, and policy takes a silent agent for enough", stall.Seconds())
	case m.anyEnded(n):
		return "a process on it has ended"
	}
	return t.against(stall, m.cfg.UnvouchedStall)
}

// someLeave reports whether a node of the job is not heard since its agent said
// goodbye.
func (m *Machine) someLeave(now time.Time) bool {
	return slices.ContainsFunc(m.sorted, func(n falcon.Node) bool { return !m.isFenced(n) && m.host(n, now).leaves(now, m.cfg.Leave) })
}

// brokeByThemselves reports whether the recovery began because ranks that are
// heard left training by themselves: their communicators broke, so that somebody
// is gone.
func (m *Machine) brokeByThemselves() bool {
	return m.cur.State == falcon.RecoverySuspend && slices.ContainsFunc(m.cur.Faults, func(f falcon.Fault) bool {
		return f.Kind == falcon.FaultHang && f.Node != ""
	})
}

// othersBusy reports whether ranks that have rejoined are in their own code, or in
// storage: who waits for nobody is no sign against a node that is not heard.
func (m *Machine) othersBusy(now time.Time) bool {
	return m.cur.State == falcon.RecoveryRejoin && len(m.at.rejoined) > 0 && m.testify(now).busy > 0
}

// patience is how long nothing may bring a recovery forward before nodes that are
// not heard are at fault for it. Once a rank trains again, all have built the
// groups with it: beats of the iterations that begin may then speak for them.
func (m *Machine) patience() time.Duration {
	switch {
	case m.brokeByThemselves():
		return 0
	case m.cur.State != falcon.RecoveryRejoin || len(m.at.rejoined) == 0:
		return 2 * m.cfg.Beat
	}
	usual, _ := m.pace.usual()
	return 4*m.cfg.Beat + min(3*usual, m.cfg.HangMin)
}

// secondMeanwhile is the same in a recovery: there no iterations begin, and a
// node that all wait for is not heard.
func (m *Machine) secondMeanwhile(now time.Time, n falcon.Node, h *host) string {
	quiet := now.Sub(m.at.moved)
	if h.leaves(now, m.cfg.Leave) && quiet < m.cfg.LeaveStall {
		return ""
	}
	switch {
	case m.fresh(now, h):
		return deviceText(h.fatal)
	case m.policy.Recovery.FenceAlone:
		return "policy takes a silent agent for enough"
	case m.anyEnded(n):
		return "a process on it has ended"
	case m.waitsFor(n) && quiet >= m.patience() && m.onlySilent(now) && !m.irreplaceable(now, n) && !m.othersBusy(now):
		return "the recovery waits for nothing but silent nodes"
	}
	return ""
}
