package recovery

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// advance goes through the states as far as what is known allows.
func (m *Machine) advance(now time.Time) {
	for range 4 * generationsMost { // each state at most once a generation
		if m.cur == nil || !m.hasJob || !m.once(now) {
			return
		}
	}
}

// once says that the state changed, or that something in it did.
func (m *Machine) once(now time.Time) bool {
	switch m.cur.State {
	case falcon.RecoveryProposed:
		return m.byPolicy(now)
	case falcon.RecoverySuspend:
		if m.cur.Whole {
			return m.agentsBack(now)
		}
		return m.suspended(now)
	case falcon.RecoveryReplace:
		return !m.cur.Whole && len(m.at.awaited) == 0 && m.table(now)
	case falcon.RecoveryTable:
		return m.tabled() && m.collect(now)
	case falcon.RecoveryCollect:
		return m.collected(now)
	case falcon.RecoveryRejoin:
		return m.resume(now)
	}
	return false
}

// enter books the time of the state that ends, and begins the next.
func (m *Machine) enter(now time.Time, s falcon.RecoveryState, most time.Duration) {
	m.book(now)
	m.cur.State = s
	m.at.entered, m.at.moved, m.at.renewed = now, now, 0
	m.deadline(now, most)
	m.dirty()
}

func (m *Machine) deadline(now time.Time, most time.Duration) {
	m.at.until, m.at.most, m.cur.DeadlineNs = time.Time{}, most, 0
	if most > 0 {
		m.at.until = now.Add(most)
		m.cur.DeadlineNs = m.at.until.UnixNano()
	}
	m.dirty()
}

// renewMost is how often the time of one state begins again.
const renewMost = 16

// renew lets the present state wait longer, because an agent that it waits for
// restarts, or has come back just now.
func (m *Machine) renew(now time.Time, most time.Duration) {
	if m.at.renewed >= renewMost || m.cur.Whole {
		return
	}
	m.at.renewed++
	m.at.moved = now
	if until := now.Add(most); !m.at.until.IsZero() && until.After(m.at.until) {
		m.at.until, m.cur.DeadlineNs = until, until.UnixNano()
		m.dirty()
	}
}

var phaseOf = map[falcon.RecoveryState]string{
	falcon.RecoveryProposed: falcon.PhaseDecide, falcon.RecoverySuspend: falcon.PhaseSuspend, falcon.RecoveryReplace: falcon.PhaseReplace,
	falcon.RecoveryTable: falcon.PhaseTable, falcon.RecoveryCollect: falcon.PhaseCollect, falcon.RecoveryRejoin: falcon.PhaseResume,
}

// book adds the time in the present state to its phase; several attempts add
// up. Rejoin is split by what the ranks say of it, and what suspend takes after
// all park is the fence's: processes that are to be made anew end, a spare comes.
func (m *Machine) book(now time.Time) {
	phase, spent := phaseOf[m.cur.State], ms(now.Sub(m.at.entered).Nanoseconds())
	if m.cur.State == falcon.RecoveryRejoin {
		var groups, restore float64
		for _, x := range m.at.rejoined {
			groups, restore = max(groups, x.GroupsMs), max(restore, x.RestoreMs)
		}
		groups = min(groups, spent)
		restore = min(restore, spent-groups)
		m.cur.PhaseMs[falcon.PhaseGroups] += groups
		m.cur.PhaseMs[falcon.PhaseRestore] += restore
		spent -= groups + restore
	}
	if fence := ms(now.Sub(m.at.stands).Nanoseconds()); m.cur.State == falcon.RecoverySuspend && !m.at.stands.IsZero() && fence > 0 {
		m.cur.PhaseMs[falcon.PhaseFence] += fence
		spent -= fence
	}
	if phase != falcon.PhaseDecide || spent > 0 {
		m.cur.PhaseMs[phase] += spent
	}
}

// begin starts an attempt: a generation of its own, and all that lives parks.
func (m *Machine) begin(now time.Time, why string) {
	c := m.cur
	if !m.job.Adapter {
		m.restart(now, "the job has no adapter: its processes can't park")
		return
	}
	if c.Attempts >= generationsMost {
		m.finish(now, falcon.RecoveryFailed, fmt.Sprintf("%d generations came to nothing; look at the faults, then start the job again from its checkpoint", c.Attempts))
		return
	}
	clear(m.ends.open) // who is gone is seen when all others are suspended
	m.generation = max(m.generation, m.job.Generation) + 1
	c.Generation, c.Attempts, c.Reason = m.generation, c.Attempts+1, why
	m.enter(now, falcon.RecoverySuspend, m.cfg.SuspendMost)
	m.at = attempt{
		entered: now, moved: now, until: m.at.until, most: m.at.most, gather: now.Add(m.cfg.Gather), badTable: m.at.badTable,
		awaited: m.at.awaited, // they go on starting meanwhile
	}
	m.suspend()
	what := "so that all rejoin"
	if len(c.Pending) > 0 {
		what = "to make " + rankList(c.Pending) + " anew"
	}
	m.note("recovery", 1, "%s: generation %d: the job is suspended %s", c.ID, c.Generation, what)
}

// suspend gives the order; the nodes told are those of the placement that are
// not given up.
func (m *Machine) suspend() {
	m.at.acked, m.at.stopping = map[falcon.Node]bool{}, map[falcon.Rank]bool{}
	m.at.told = m.stay()
	m.command(Suspend{Generation: m.cur.Generation, Nodes: m.at.told, WaitMs: m.cfg.OptimizerWait.Milliseconds()})
}

// stay lists the nodes of the placement that are not fenced.
func (m *Machine) stay() []falcon.Node {
	var out []falcon.Node
	for n := range m.on {
		if !m.isFenced(n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

func (m *Machine) onSuspended(now time.Time, s Suspended) {
	if m.cur == nil || s.Generation != m.cur.Generation || m.isFenced(s.Node) || len(m.on[s.Node]) == 0 {
		return
	}
	if m.cur.State != falcon.RecoverySuspend || m.cur.Whole {
		return
	}
	switch {
	case s.Refused != "" && s.Late:
		return // the state's own deadline judges that
	case s.Refused != "":
		m.restart(now, fmt.Sprintf("node %s can't suspend: %s", s.Node, s.Refused))
		return
	}
	if !m.at.acked[s.Node] {
		m.at.acked[s.Node], m.at.moved = true, now
	}
	for _, r := range m.on[s.Node] {
		m.suspendLate(now, r)
	}
}

// parked says that rank r's process parks and its word is of this attempt.
func (m *Machine) parked(r falcon.Rank) bool {
	x := &m.ranks[r]
	return x.known && x.proc.Alive && x.proc.Park != nil && x.proc.Park.Generation == m.cur.Generation
}

// suspended goes on to the replacement once all who stay are parked.
func (m *Machine) suspended(now time.Time) bool {
	if now.Before(m.at.gather) || !m.allAcked() {
		return false
	}
	if m.watchFinish(now); m.cur == nil {
		return false
	}
	if m.gone(now) {
		return true
	}
	for r := range m.ranks {
		if m.waitsForRank(falcon.Rank(r)) && !m.at.stopping[falcon.Rank(r)] {
			return false
		}
	}
	if m.at.stands.IsZero() {
		m.at.stands = now
	}
	return m.stopRenewed(now) && m.replace(now)
}

func (m *Machine) allAcked() bool {
	if len(m.at.acked) < len(m.at.told)-len(m.cur.Fenced) {
		return false // it is asked with every word of every process
	}
	for _, n := range m.at.told {
		if !m.at.acked[n] && !m.isFenced(n) {
			return false
		}
	}
	return true
}

// gone finds ranks of which no process is left although their node has told
// all about its processes.
func (m *Machine) gone(now time.Time) bool {
	found := false
	for r := range m.ranks {
		x, n := &m.ranks[r], m.placement()[r].Node()
		if (x.known && x.proc.Alive) || m.at.awaited[falcon.Rank(r)] || m.isFenced(n) || slices.Contains(m.cur.Pending, falcon.Rank(r)) {
			continue
		}
		found = true
		m.fault(now, falcon.Fault{
			Kind: falcon.FaultExit, Node: n, Device: m.placement()[r], Ranks: []falcon.Rank{falcon.Rank(r)}, FirstNs: now.UnixNano(),
			Evidence: []string{fmt.Sprintf("no process of rank %d is left on %s", r, m.placement()[r])},
		})
	}
	return found
}

// stopRenewed has processes end that live, and are to be made anew on their
// device; true = none is left.
func (m *Machine) stopRenewed(now time.Time) bool {
	var stop []falcon.Rank
	done := true
	for _, r := range m.cur.Pending {
		n := m.placement()[r].Node()
		if x := &m.ranks[r]; !x.known || !x.proc.Alive || m.isFenced(n) {
			continue
		}
		done = false
		if !m.at.stopping[r] {
			m.at.stopping[r] = true
			stop = append(stop, r)
		}
	}
	if len(stop) > 0 {
		m.at.moved = now
		m.command(Stop{Generation: m.cur.Generation, Nodes: m.nodesOf(stop), Ranks: stop})
	}
	return done
}

func (m *Machine) nodesOf(ranks []falcon.Rank) []falcon.Node {
	var out []falcon.Node
	for _, r := range ranks {
		out = append(out, m.placement()[r].Node())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// parkedOne is called when a process's word came.
func (m *Machine) parkedOne(now time.Time, r falcon.Rank) {
	if m.cur.State == falcon.RecoverySuspend && m.parked(r) {
		m.at.moved = now
	}
	if m.at.awaited[r] && m.joined(r) {
		delete(m.at.awaited, r)
		m.at.moved = now
	}
	m.suspendLate(now, r)
}

// suspendLate begins another generation where the present suspension does not
// reach the process launched for rank r.
func (m *Machine) suspendLate(now time.Time, r falcon.Rank) {
	if m.unsuspended(r) {
		m.begin(now, fmt.Sprintf("rank %d came up after its node had acknowledged the suspension", r))
	}
}

// unsuspended reports whether the process launched for rank r waits in an older
// generation although its node has acknowledged the present suspension. The
// node's agent was replaced in between and does not know of it: nothing but a
// new order would make the process park.
func (m *Machine) unsuspended(r falcon.Rank) bool {
	x := &m.ranks[r]
	return m.cur.State == falcon.RecoverySuspend && !m.cur.Whole && m.at.acked[x.proc.Node] && m.joined(r) && x.proc.Park.Generation < m.cur.Generation
}

// joined says that the process launched for rank r parks.
func (m *Machine) joined(r falcon.Rank) bool {
	x := &m.ranks[r]
	return x.known && x.proc.Alive && x.proc.Generation == m.cur.Launched[r] && x.proc.Park != nil
}

func (m *Machine) onLaunched(now time.Time, l Launched) {
	c := m.cur
	if c == nil || l.Failed == "" || c.State == falcon.RecoveryProposed {
		return
	}
	if c.Whole && l.Generation == c.Generation {
		m.finish(now, falcon.RecoveryFailed, fmt.Sprintf("the restart did not come up on node %s: %s; start the job again from its checkpoint", l.Node, l.Failed))
		return
	}
	if slices.ContainsFunc(m.on[l.Node], func(r falcon.Rank) bool { return m.at.awaited[r] && c.Launched[r] == l.Generation }) {
		m.giveUp(now, falcon.FaultNode, l.Node, fmt.Sprintf("node %s could not start %s: %s", l.Node, rankList(m.on[l.Node]), l.Failed))
	}
}

// table has the rank table of the generation brought to all nodes. Processes
// that were launched in an earlier generation park for that one: they obey one
// more suspension, as everybody does.
func (m *Machine) table(now time.Time) bool {
	for r := range m.ranks {
		if !m.parked(falcon.Rank(r)) {
			m.begin(now, fmt.Sprintf("rank %d does not wait in generation %d: all are suspended anew", r, m.cur.Generation))
			return true
		}
	}
	m.enter(now, falcon.RecoveryTable, m.cfg.TableMost)
	m.at.tabled = map[falcon.Node]bool{}
	m.command(Table{Generation: m.cur.Generation, Placement: slices.Clone(m.cur.Placement)})
	return true
}

func (m *Machine) onTabled(now time.Time, t Tabled) {
	if m.cur == nil || m.cur.State != falcon.RecoveryTable || t.Generation != m.cur.Generation || len(m.on[t.Node]) == 0 {
		return
	}
	if t.Failed == "" {
		m.at.tabled[t.Node], m.at.moved = true, now
		return
	}
	m.tableFailed(now, map[falcon.Node]string{t.Node: t.Failed})
}

func (m *Machine) tabled() bool { return len(m.at.tabled) == len(m.on) }

// tableFailed tries the whole again once; nodes that fail twice are given up.
func (m *Machine) tableFailed(now time.Time, why map[falcon.Node]string) {
	var bad []falcon.Node
	for n := range why {
		if m.at.badTable[n]++; m.at.badTable[n] > 1 {
			bad = append(bad, n)
		}
	}
	slices.Sort(bad)
	if 2*len(bad) > len(m.on) {
		m.finish(now, falcon.RecoveryFailed, fmt.Sprintf("most nodes did not take the rank table (node %s: %s); start the job again from its checkpoint", bad[0], why[bad[0]]))
		return
	}
	if len(bad) == 0 {
		m.begin(now, "a node did not take the rank table; all of it is tried again")
		return
	}
	for _, n := range bad {
		m.giveUp(now, falcon.FaultNode, n, fmt.Sprintf("node %s did not take the rank table: %s", n, why[n]))
	}
}

// collect waits for the words of all; they are locked, since nobody leaves
// without the order to rejoin.
func (m *Machine) collect(now time.Time) bool {
	m.enter(now, falcon.RecoveryCollect, m.cfg.CollectMost)
	return true
}

func (m *Machine) collected(now time.Time) bool {
	for r := range m.ranks {
		if !m.parked(falcon.Rank(r)) {
			return false
		}
	}
	return m.rejoin(now)
}
