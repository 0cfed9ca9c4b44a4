package recovery

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

func (m *Machine) onPace(now time.Time, p Pace) {
	if m.pace.held || p.Held {
		m.pace.moved = now
	}
	m.pace.held, m.pace.ms = p.Held, p.Ms
	m.pace.see(now, p.Iteration, m.hear.holds())
}

func (m *Machine) onBeat(now time.Time, b Beat) {
	if b.Rank < 0 || int(b.Rank) >= len(m.ranks) {
		return
	}
	x := &m.ranks[b.Rank]
	if !x.known || !x.proc.Alive || x.proc.Pid != b.Pid {
		return
	}
	m.pace.grows(now, m.cfg.Beat, x, b, m.growsAbove())
	x.beat, x.beatAt = b, now
	m.pace.see(now, b.Iteration, m.hear.holds())
}

func (m *Machine) onNode(now time.Time, n Node) {
	h := m.host(n.Node, now)
	if !n.Alive {
		h.gone, h.how, h.goneAt = true, n.How, now
		h.heard = earlier(h.heard, now)
		if n.How == Goodbye && m.recovering() && m.waitsFor(n.Node) {
			m.renew(now, m.cfg.LeaveStall)
		}
		return
	}
	if h.suspect {
		m.note("fault", 0, "node %s is heard again", n.Node)
	}
	back := h.gone
	h.heard, h.met, h.gone, h.suspect = now, true, false, false
	if back && m.recovering() && m.waitsFor(n.Node) {
		m.renew(now, m.at.most)
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// onProcess takes a process's word in, unless it is not, or no longer, the
// rank's owner.
func (m *Machine) onProcess(now time.Time, p Process) {
	m.left.hear(p, m.cur == nil && m.closed)
	if p.Rank < 0 || int(p.Rank) >= len(m.ranks) || p.Node != m.placement()[p.Rank].Node() {
		return
	}
	x := &m.ranks[p.Rank]
	if p.Generation < m.least[m.placement()[p.Rank]] || (!m.idle() && slices.Contains(m.cur.Fenced, p.Node)) {
		return
	}
	if m.cur == nil && p.Generation <= m.rejoined() && p.Rejoined < m.rejoined() {
		p.Park = nil // of before the newest rejoin, which all have carried out: its agent was away
	}
	m.explains(now, p)
	if x.known && (p.Generation < x.proc.Generation || (!x.proc.Alive && p.Pid == x.proc.Pid) || (!p.Alive && x.proc.Alive && p.Pid != x.proc.Pid)) {
		return // late
	}
	died := !p.Alive && (!x.known || x.proc.Alive)
	if p.Park != nil && (x.proc.Park == nil || x.proc.Pid != p.Pid) {
		x.parkedAt = now
	}
	x.known, x.proc = true, p
	switch {
	case died:
		m.rejoinedBefore(p)
		m.ended(now, p)
	case m.cur != nil && p.Alive:
		m.parkedOne(now, p.Rank)
	}
}

// lost takes a process's end for a fault.
func (m *Machine) lost(now time.Time, p Process) {
	how := p.Exit
	if how == "" {
		how = "nobody saw how"
	}
	f := falcon.Fault{
		Kind: falcon.FaultExit, Node: p.Node, Device: m.placement()[p.Rank], Ranks: []falcon.Rank{p.Rank}, FirstNs: now.UnixNano(),
		Evidence: []string{fmt.Sprintf("rank %d (process %d on %s) ended: %s", p.Rank, p.Pid, m.placement()[p.Rank], how)},
	}
	if h := m.host(p.Node, now); m.fresh(now, h) && hits(h.fatal, f.Device) {
		f.Kind, f.Evidence = falcon.FaultDevice, append([]string{deviceText(h.fatal)}, f.Evidence...)
	}
	m.fault(now, f)
}

// EventLife is how long a device's fatal report is a sign.
const EventLife = 10 * time.Minute

func (m *Machine) fresh(now time.Time, h *host) bool {
	return !h.fatalAt.IsZero() && now.Sub(h.fatalAt) < EventLife
}

// hits says that a report concerns the process on a device: it is of that
// device, or of a port that all of the node share.
func hits(d Device, on falcon.Device) bool { return d.Device == on || d.Device.Index() < 0 }

func deviceText(d Device) string {
	if d.Code != 0 {
		return fmt.Sprintf("%s reports XID %d: %s", d.Device, d.Code, d.Text)
	}
	return fmt.Sprintf("%s reports: %s", d.Device, d.Text)
}

func deviceNode(d falcon.Device) falcon.Node {
	if d.Index() >= 0 {
		return d.Node()
	}
	return falcon.NIC(d).Node()
}

// onDevice keeps a device's fatal report as a sign: by itself it is not acted
// on, since the job may go on; with an end of its process, a silence of its
// node, or a stall, its node is faulty.
func (m *Machine) onDevice(now time.Time, d Device) {
	n := deviceNode(d.Device)
	if len(m.on[n]) == 0 {
		return
	}
	if !d.Fatal {
		m.note("fault", 1, "%s", deviceText(d))
		return
	}
	h := m.host(n, now)
	h.fatal, h.fatalAt = d, now
	if m.cur == nil {
		m.note("fault", 1, "%s; the node is given up when its process ends, it falls silent or the job stalls", deviceText(d))
		return
	}
	// The process may have told first.
	for _, f := range m.cur.Faults {
		if f.Kind == falcon.FaultExit && f.Node == n && hits(d, f.Device) && now.UnixNano()-f.DetectedNs < int64(EventLife) && !m.isFenced(n) {
			m.fault(now, falcon.Fault{Kind: falcon.FaultDevice, Node: n, Device: d.Device, FirstNs: now.UnixNano(), Evidence: []string{deviceText(d)}})
			return
		}
	}
}

func (m *Machine) isFenced(n falcon.Node) bool {
	return m.cur != nil && slices.Contains(m.cur.Fenced, n)
}

// watch looks for nodes and processes that say nothing.
func (m *Machine) watch(now time.Time) {
	if m.recovering() && m.cur.Whole || m.ends.finished {
		return // the whole restart has its own watch
	}
	if m.closed && m.pace.grew.After(m.closedAt.Add(2*m.cfg.Beat)) {
		m.closed = false
		m.note("recovery", 1, "the job goes on after all: iteration %d has begun", m.pace.told)
	}
	m.suspect(now)
	if !m.hear.holds() {
		m.watchEnds(now)
		m.watchFinish(now)
		m.watchNodes(now)
		m.watchRanks(now)
		m.watchParked(now)
	}
	m.watchHang(now)
	m.watchEmpty(now)
	m.watchRelief(now)
	m.watchLeft(now)
}

func (m *Machine) silent(now time.Time, h *host) int {
	return int(now.Sub(h.heard) / m.cfg.Beat)
}

// suspect names the nodes of which nothing was heard for some time.
func (m *Machine) suspect(now time.Time) {
	for _, n := range m.sorted {
		h := m.host(n, now)
		if missed := m.silent(now, h); missed >= m.cfg.Suspect && !h.suspect && !m.isFenced(n) && !h.leaves(now, m.cfg.Leave) {
			h.suspect = true
			m.note("fault", 1, "node %s is suspected: nothing was heard of it for %d beats", n, missed)
		}
	}
}

// deadNodes lists those that are silent for so long that a second sign counts.
func (m *Machine) deadNodes(now time.Time) []falcon.Node {
	var out []falcon.Node
	for _, n := range m.sorted {
		if !m.isFenced(n) && m.silent(now, m.host(n, now)) >= m.cfg.Dead {
			out = append(out, n)
		}
	}
	return out
}

// watchNodes fences nodes that are silent and have a second sign against them.
func (m *Machine) watchNodes(now time.Time) {
	if m.cur == nil && m.ends.finishing(&m.pace, m.cfg.Beat) {
		return // agents may well leave with it
	}
	dead := m.deadNodes(now)
	if len(dead) == 0 {
		return
	}
	t := m.testify(now)
	stall := m.standstill(now, t)
	var faults []falcon.Fault
	for _, n := range dead {
		h := m.nodes[n]
		if sign := m.second(now, n, t, stall); sign != "" {
			f := falcon.Fault{Kind: falcon.FaultNode, Node: n, FirstNs: h.heard.UnixNano()}
			f.Evidence = []string{fmt.Sprintf("nothing was heard of node %s for %d beats", n, m.silent(now, h)), sign}
			if h.gone && h.how == Reset {
				f.Evidence = append(f.Evidence, "its connection was reset")
			}
			faults = append(faults, f)
		}
	}
	for _, f := range faults {
		m.fault(now, f)
	}
}

// anyEnded says that a process of the node has ended by itself.
func (m *Machine) anyEnded(n falcon.Node) bool {
	return slices.ContainsFunc(m.on[n], func(r falcon.Rank) bool {
		x := &m.ranks[r]
		return x.known && !x.proc.Alive && !x.proc.Normal
	})
}

// tooMany says that so many nodes at once can't be believed.
func (m *Machine) tooMany(nodes int, what string) bool {
	was := m.blind[what]
	m.blind[what] = nodes > 1 && 2*nodes > len(m.on)
	if m.blind[what] && !was {
		m.note("fault", 2, "%d of %d nodes are %s at once: nothing is fenced, the console's own network may be at fault", nodes, len(m.on), what)
	}
	return m.blind[what]
}

// onlySilent says that everybody who is heard has done what the present state
// asks.
func (m *Machine) onlySilent(now time.Time) bool {
	for n := range m.on {
		if m.silent(now, m.host(n, now)) < m.cfg.Dead && m.waitsFor(n) {
			return false
		}
	}
	return true
}

// waitsFor says that the present state waits for something of node n.
func (m *Machine) waitsFor(n falcon.Node) bool {
	switch {
	case m.isFenced(n):
		return false
	case m.cur.State == falcon.RecoverySuspend && m.cur.Whole:
		return m.at.agents[n] && m.away(n)
	case m.cur.State == falcon.RecoverySuspend && !m.at.acked[n]:
		return true
	case m.cur.State == falcon.RecoveryTable:
		return !m.at.tabled[n]
	}
	return slices.ContainsFunc(m.on[n], m.waitsForRank)
}

// waitsForRank says that the present state waits for the process of rank r.
func (m *Machine) waitsForRank(r falcon.Rank) bool {
	switch m.cur.State {
	case falcon.RecoverySuspend:
		x := &m.ranks[r]
		return x.known && x.proc.Alive && !m.at.awaited[r] && !m.isFenced(m.placement()[r].Node()) && (m.at.stopping[r] || !m.parked(r))
	case falcon.RecoveryReplace:
		return m.at.awaited[r]
	case falcon.RecoveryCollect:
		return !m.parked(r)
	case falcon.RecoveryRejoin:
		return !m.at.rejoinedOK(r)
	}
	return false
}

// stalled is for how long no iteration has begun although one should have: two
// beats longer than usual; 0 = it goes on, or nobody can say.
func (m *Machine) stalled(now time.Time) time.Duration {
	usual, known := m.pace.usual()
	if !known {
		usual = m.cfg.HangMin
	}
	for_ := m.pace.still(now)
	if m.pace.held || m.pace.newest < 0 || for_ < 2*m.cfg.Beat+usual {
		return 0
	}
	return for_
}

// watchRanks finds processes that are frozen or gone without a word, and
// devices that failed, where the job stalls.
func (m *Machine) watchRanks(now time.Time) {
	var faults []falcon.Fault
	recovering := m.recovering()
	unexplained := !recovering && m.standsUnexplained(now)
	switch {
	case recovering && now.Sub(m.at.moved) < 2*m.cfg.Beat:
		return
	case !recovering && !unexplained && (m.unbegun(now) == 0 || m.ends.finishing(&m.pace, m.cfg.Beat)):
		return
	}
	nodes := map[falcon.Node]bool{}
	for r := range m.ranks {
		n := m.placement()[r].Node()
		if nodes[n] || m.isFenced(n) || recovering && !m.waitsForRank(falcon.Rank(r)) {
			continue
		}
		f, ok := m.quiet(now, falcon.Rank(r), n)
		if stopped := f.Kind == falcon.FaultFrozen && m.ranks[r].hookAge() >= m.cfg.HangMin; ok && (recovering || unexplained || stopped) {
			nodes[n], faults = true, append(faults, f)
		}
	}
	if len(faults) > 0 && m.tooMany(len(nodes), "without a sign of life of a process") {
		return
	}
	for _, f := range faults {
		m.fault(now, f)
	}
}

// standsUnexplained reports whether the job stalls, and no rank that is heard
// explains it: by its own work, or by its end with success.
func (m *Machine) standsUnexplained(now time.Time) bool {
	return m.stalled(now)+m.unbegun(now) > 0 && !m.ends.finishing(&m.pace, m.cfg.Beat) && m.testify(now).busy == 0
}

// quiet judges one rank of a job that stalls.
func (m *Machine) quiet(now time.Time, r falcon.Rank, n falcon.Node) (falcon.Fault, bool) {
	x, h := &m.ranks[r], m.host(n, now)
	age := x.hookAge()
	f := falcon.Fault{Node: n, Device: m.placement()[r]}
	switch {
	case m.silent(now, h) > 0 || !h.met || h.gone:
		return f, false // nothing is known of it
	case m.fresh(now, h) && x.known && x.proc.Alive && hits(h.fatal, f.Device):
		f.Kind, f.FirstNs = falcon.FaultDevice, h.fatalAt.UnixNano()
		f.Evidence = []string{deviceText(h.fatal), "the job stalls"}
	case x.known && x.proc.Alive && !x.beatAt.IsZero() && now.Sub(x.beatAt) <= 2*m.cfg.Beat && age > 2*m.cfg.Beat:
		f.Kind, f.FirstNs = falcon.FaultFrozen, now.Add(-age).UnixNano()
		f.Evidence = []string{fmt.Sprintf("the hook of rank %d (process %d on %s) was last alive %.1f s ago", r, x.proc.Pid, f.Device, age.Seconds()), "the job stalls"}
	case !x.known && m.cur == nil && m.anyAlive() && !m.ends.over[r]:
		f.Kind, f.FirstNs, f.Ranks = falcon.FaultExit, m.pace.moved.UnixNano(), []falcon.Rank{r}
		f.Evidence = []string{fmt.Sprintf("node %s is heard and has no process of rank %d", n, r), "the job stalls"}
	default:
		return f, false
	}
	return f, true
}

func (m *Machine) anyAlive() bool {
	return slices.ContainsFunc(m.ranks, func(x member) bool { return x.known && x.proc.Alive })
}

// mendsItself reports whether nothing has ended for good: what froze, fell silent or
// hung may go on.
func (m *Machine) mendsItself() bool {
	return !slices.ContainsFunc(m.cur.Faults, func(f falcon.Fault) bool { return f.Kind == falcon.FaultExit || f.Kind == falcon.FaultDevice })
}

// newestFault is when the newest fault of the recovery was found.
func (m *Machine) newestFault() time.Time {
	newest := int64(0)
	for _, f := range m.cur.Faults {
		newest = max(newest, f.DetectedNs)
	}
	return time.Unix(0, newest)
}

// watchRelief ends a proposal whose job goes on by itself; one that was suspended
// does not.
func (m *Machine) watchRelief(now time.Time) {
	if m.cur == nil || m.cur.State != falcon.RecoveryProposed || len(m.cur.Faults) == 0 || m.cur.Attempts > 0 {
		return
	}
	if !m.mendsItself() {
		return
	}
	if m.pace.grew.After(m.newestFault().Add(2 * m.cfg.Beat)) {
		m.finish(now, falcon.RecoveryCancelled, fmt.Sprintf("iterations come again (%d): nothing is left to recover", m.pace.told))
		m.closed = false
	}
}
