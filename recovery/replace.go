package recovery

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/replica"
)

// assignment says where the faulty ranks go.
type assignment struct {
	placement falcon.Placement
	fence     []falcon.Node // all that are given up, ascending
	launch    []falcon.Rank // that are made anew, ascending
	lack      string        // why it can't be done; empty = it can
}

// assign finds a place for every rank that is to be made anew: its own device
// where only processes ended, else a spare for its whole node, at the same
// indexes.
func (m *Machine) assign(now time.Time) assignment {
	a := assignment{placement: slices.Clone(m.placement()), fence: slices.Clone(m.cur.Fenced)}
	var why []string
	for _, n := range m.nodesOf(m.cur.Pending) {
		if reason := m.notInPlace(now, n); reason != "" && !slices.Contains(a.fence, n) {
			a.fence, why = append(a.fence, n), append(why, reason)
		}
	}
	slices.Sort(a.fence)
	spares := m.spares(a.fence)
	var lost []falcon.Node
	for _, n := range a.fence {
		switch {
		case len(m.on[n]) == 0: // replaced already
		case len(spares) == 0:
			lost = append(lost, n)
		default:
			for _, r := range m.on[n] {
				a.placement[r] = falcon.NewDevice(spares[0], a.placement[r].Index())
			}
			spares = spares[1:]
		}
	}
	a.launch = m.toLaunch(a)
	if len(lost) > 0 {
		a.lack = m.lacking(lost, why)
		if _, no := m.shrunk(a); no != "" {
			a.lack += "; fewer replicas are no way out: " + no
		}
	}
	return a
}

// toLaunch are the pending ranks, and all of nodes that are given up.
func (m *Machine) toLaunch(a assignment) []falcon.Rank {
	out := slices.Clone(m.cur.Pending)
	for _, n := range a.fence {
		out = append(out, m.on[n]...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (m *Machine) spares(fenced []falcon.Node) []falcon.Node {
	var out []falcon.Node
	for _, n := range m.job.Spares {
		if len(m.on[n]) == 0 && !slices.Contains(fenced, n) && m.job.CanLaunch[n] && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// notInPlace says why ranks of a node can't be made anew on it, empty = they can.
func (m *Machine) notInPlace(now time.Time, n falcon.Node) string {
	if !m.launches(n) {
		return fmt.Sprintf("node %s can't start processes", n)
	}
	most := m.policy.Recovery.InPlace
	if most == 0 {
		most = inPlaceDefault
	}
	if most < 0 {
		return "policy makes nothing anew in place"
	}
	if times := m.exits(now, n); times > most {
		return fmt.Sprintf("processes on node %s have ended %d times within an hour", n, times)
	}
	return ""
}

// exits counts how often processes of a node ended by themselves within the last
// hour.
func (m *Machine) exits(now time.Time, n falcon.Node) int {
	times := 0
	for _, c := range m.recs {
		if c.State == falcon.RecoveryDenied {
			continue
		}
		for _, f := range c.Faults {
			if f.Kind == falcon.FaultExit && f.AskedBy == "" && f.Node == n && now.UnixNano()-f.DetectedNs < int64(hour) {
				times++
			}
		}
	}
	return times
}

func (m *Machine) lacking(lost []falcon.Node, why []string) string {
	text := fmt.Sprintf("no spare is left for %s", nodeList(lost))
	if len(why) > 0 {
		text += " (" + strings.Join(why, "; ") + ")"
	}
	return text
}

// replace fences what is faulty and has it made anew; without a spare it waits
// for one.
func (m *Machine) replace(now time.Time) bool {
	c := m.cur
	a := m.assign(now)
	if a.lack != "" {
		if !m.at.spare {
			m.at.spare = true
			c.Reason = a.lack + "; connect a spare node, or abort"
			if s, _ := m.shrunk(a); s != nil {
				c.Reason += fmt.Sprintf("; in %s it goes on with %d of %d replicas", m.cfg.SpareWait, len(s.Kept), s.Of)
			}
			m.deadline(now, m.cfg.SpareWait)
			m.note("recovery", 2, "%s waits: %s", c.ID, c.Reason)
		}
		return false
	}
	if m.at.spare {
		m.at.spare, c.Reason = false, ""
	}
	m.enter(now, falcon.RecoveryReplace, m.cfg.ReplaceMost)
	m.take(a, c.Generation)
	m.orderReplace()
	return true
}

// take puts an assignment in force.
func (m *Machine) take(a assignment, generation uint64) {
	c := m.cur
	c.Fenced = a.fence
	if c.Shrink != nil {
		m.takeFewer(generation)
		return
	}
	for _, r := range a.launch {
		c.Replaced[r], c.Launched[r] = a.placement[r], generation
		delete(m.ends.over, r)
		delete(m.at.stopping, r) // its next process has not been told to
		m.ranks[r], m.least[a.placement[r]] = member{}, generation
	}
	c.Placement, c.Pending = a.placement, nil
	m.survivors()
	m.index()
	m.awaitLaunched()
}

func (m *Machine) survivors() {
	m.cur.Survivors = nil
	for r := range m.ranks {
		if _, made := m.cur.Replaced[falcon.Rank(r)]; !made {
			m.cur.Survivors = append(m.cur.Survivors, falcon.Rank(r))
		}
	}
}

// awaitLaunched waits for those launched in this recovery that don't park yet.
func (m *Machine) awaitLaunched() {
	m.at.awaited = map[falcon.Rank]bool{}
	for r := range m.cur.Launched {
		if int(r) < len(m.ranks) && !m.joined(r) && !slices.Contains(m.cur.Pending, r) {
			m.at.awaited[r] = true
		}
	}
}

// launched are the ranks made anew in the present generation, ascending.
func (m *Machine) launched() []falcon.Rank {
	var out []falcon.Rank
	for r, g := range m.cur.Launched {
		if g == m.cur.Generation {
			out = append(out, r)
		}
	}
	slices.Sort(out)
	return out
}

// orderReplace gives the orders of the state, as often as an engine starts.
func (m *Machine) orderReplace() {
	c, ranks := m.cur, m.launched()
	if len(c.Fenced) > 0 || len(ranks) > 0 {
		m.command(Fence{Generation: c.Generation, Nodes: slices.Clone(c.Fenced), Ranks: ranks})
	}
	m.stopFenced()
	if len(ranks) == 0 {
		return
	}
	l := Launch{Generation: c.Generation, Ranks: map[falcon.Rank]falcon.Device{}, World: len(m.ranks)}
	var where []falcon.Node
	for _, r := range ranks {
		l.Ranks[r] = c.Placement[r]
		where = append(where, c.Placement[r].Node())
	}
	slices.Sort(where)
	m.command(l)
	m.note("recovery", 1, "%s: generation %d: %s made anew on %s, %d survivors stay", c.ID, c.Generation, rankList(ranks), nodeList(slices.Compact(where)), len(c.Survivors))
}

// orderAwaited orders again what an earlier generation launched and what has not
// parked so far, and what must come before it: neither may ever have reached
// anybody. Where a later generation was launched on the same node, the agent
// refuses the earlier one.
func (m *Machine) orderAwaited() {
	newest := map[falcon.Node]uint64{}
	for r, g := range m.cur.Launched {
		n := m.cur.Placement[r].Node()
		newest[n] = max(newest[n], g)
	}
	again := map[uint64]map[falcon.Rank]falcon.Device{}
	for r := range m.at.awaited {
		d, g := m.cur.Placement[r], m.cur.Launched[r]
		if g == m.cur.Generation || g < newest[d.Node()] || m.isFenced(d.Node()) {
			continue
		}
		if again[g] == nil {
			again[g] = map[falcon.Rank]falcon.Device{}
		}
		for _, other := range m.on[d.Node()] { // the node is to get the same command again
			if m.cur.Launched[other] == g {
				again[g][other] = m.cur.Placement[other]
			}
		}
	}
	for _, g := range slices.Sorted(maps.Keys(again)) {
		m.command(Fence{Generation: g, Nodes: slices.Clone(m.cur.Fenced), Ranks: slices.Sorted(maps.Keys(again[g]))})
		m.stopFenced()
		m.command(Launch{Generation: g, Ranks: again[g], World: len(m.ranks)})
	}
}

// stopFenced ends what runs on the nodes that are given up.
func (m *Machine) stopFenced() {
	if len(m.cur.Fenced) > 0 {
		m.command(Stop{Generation: m.cur.Generation, Nodes: slices.Clone(m.cur.Fenced)})
	}
}

// restart hands the job over to a whole restart, since survivors can't be
// kept. Where no checkpoint is known of it might begin from nothing: that is
// for a person to say.
func (m *Machine) restart(now time.Time, why string) {
	c := m.cur
	c.Whole, c.Reason = true, why
	if m.job.Checkpoint < 0 && (c.DecidedBy == "policy" || c.DecidedBy == "") {
		c.DecidedBy, c.DecidedFrom = "", ""
		m.enter(now, falcon.RecoveryProposed, 0)
		m.propose(now)
		return
	}
	m.relaunch(now)
}

func (m *Machine) relaunch(now time.Time) {
	c := m.cur
	a := m.assign(now)
	if c.Shrink != nil {
		if m.lostMore(now) {
			return
		}
		a.placement, a.lack = c.Shrink.Placement, ""
	}
	for _, d := range a.placement {
		if a.lack == "" && !m.launches(d.Node()) {
			a.lack = fmt.Sprintf("node %s can't start processes: give its agent a launch command", d.Node())
		}
	}
	if a.lack != "" {
		m.finish(now, falcon.RecoveryFailed, fmt.Sprintf("%s; a whole restart is not possible: %s; start the job again by hand", c.Reason, a.lack))
		return
	}
	if m.awaitAgents(now, a.placement) {
		return
	}
	c.Reason, m.at.agents = wholeReason(c), nil
	a.launch = a.launch[:0]
	for r := range m.ranks {
		a.launch = append(a.launch, falcon.Rank(r))
	}
	m.generation = max(m.generation, m.job.Generation) + 1
	c.Generation, c.Attempts, c.NoReturn = m.generation, c.Attempts+1, true
	m.enter(now, falcon.RecoveryReplace, m.cfg.RestartMost)
	m.take(a, c.Generation)
	m.orderRestart()
	m.note("recovery", 2, "%s: %s: the whole job starts anew from the newest checkpoint", c.ID, c.Reason)
}

func (m *Machine) orderRestart() {
	c := m.cur
	m.command(Fence{Generation: c.Generation, Nodes: slices.Clone(c.Fenced), Ranks: m.launched()})
	m.command(Stop{Generation: c.Generation, Nodes: m.stay()})
	m.command(Restart{Generation: c.Generation, Placement: slices.Clone(launchedOn(c)), Reason: c.Reason})
}

// propose shows what would be done, as far as it can be known before the words
// of the survivors.
func (m *Machine) propose(now time.Time) {
	c := m.cur
	a := m.assign(now)
	if c.Shrink != nil && !m.shrinkAnew(now, a) {
		return
	}
	c.Replaced, c.Survivors, c.Moves = map[falcon.Rank]falcon.Device{}, nil, nil
	for _, r := range a.launch {
		if d := a.placement[r]; !slices.Contains(a.fence, d.Node()) { // else no spare is left
			c.Replaced[r] = d
		}
	}
	m.survivors()
	c.Survivors = slices.DeleteFunc(c.Survivors, func(r falcon.Rank) bool { return slices.Contains(a.launch, r) })
	if !c.Whole && m.job.Adapter && (m.policy.Recovery.Countdown > 0 || m.needsPerson(now) != "") {
		m.expect(a) // somebody will look at it
	}
	if hash := planHash(c, a); hash != c.PlanHash {
		c.PlanHash = hash
		m.dirty()
	}
}

// expect is the choice that all survivors at the same step would lead to.
func (m *Machine) expect(a assignment) {
	holds := map[falcon.Rank]falcon.RankHold{}
	for _, r := range m.cur.Survivors {
		holds[r] = falcon.RankHold{Steps: [2]int64{max(m.cur.Before, 0), falcon.NoIteration}}
	}
	choice, err := m.cfg.Choose(replica.Query{Layout: m.job.Layout, ZeRO: m.job.ZeRO, Holds: holds, Placement: a.placement, Domains: m.job.Domains})
	if err == nil {
		m.cur.Moves, m.cur.Checkpoint = choice.Moves, choice.Checkpoint
	}
}

// planHash names what a decision agrees to.
func planHash(c *falcon.Recovery, a assignment) string {
	h := sha256.New()
	fmt.Fprintln(h, c.ID, c.JobEpoch, c.Whole, c.Checkpoint, a.fence, a.lack)
	for _, f := range c.Faults {
		fmt.Fprintln(h, f.Kind, f.Node, f.Device, f.Ranks)
	}
	for _, r := range slices.Sorted(maps.Keys(c.Replaced)) {
		fmt.Fprintln(h, r, c.Replaced[r])
	}
	for _, v := range c.Moves {
		fmt.Fprintln(h, v.Rank, v.From)
	}
	if c.Shrink != nil {
		fmt.Fprintln(h, c.Shrink.Kept)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// listMost is how many names a sentence has.
const listMost = 6

func rankList(ranks []falcon.Rank) string {
	if len(ranks) == 0 {
		return "no rank"
	}
	names := make([]string, 0, listMost)
	for _, r := range ranks[:min(len(ranks), listMost)] {
		names = append(names, fmt.Sprint(int(r)))
	}
	text := strings.Join(names, ", ")
	if len(ranks) > listMost {
		text += fmt.Sprintf(" and %d more", len(ranks)-listMost)
	}
	if len(ranks) == 1 {
		return "rank " + text
	}
	return "ranks " + text
}

func nodeList(nodes []falcon.Node) string {
	names := make([]string, 0, listMost)
	for _, n := range nodes[:min(len(nodes), listMost)] {
		names = append(names, string(n))
	}
	text := strings.Join(names, ", ")
	if len(nodes) > listMost {
		text += fmt.Sprintf(" and %d more", len(nodes)-listMost)
	}
	if len(nodes) == 1 {
		return "node " + text
	}
	return "nodes " + text
}
