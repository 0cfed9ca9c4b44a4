package recovery

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/internal/liveness"
)

// detector finds faults in what is known of the job; the workflow decides what follows.
type detector struct {
	*jobState
	op      *operation
	hist    *history
	out     *outbox
	copies  copies
	doubted bool // processes of too many nodes are silent to be believed
}

func newDetector(m *Machine) detector {
	return detector{
		jobState: &m.jobState,
		op:       &m.op,
		hist:     &m.hist,
		out:      &m.out,
		copies:   copies{jobState: &m.jobState, op: &m.op},
	}
}

// assessLocalHealth judges the engine's own health before that of any node. It reports for how
// long all clocks were held when they are to start again.
func (d *detector) assessLocalHealth(now time.Time) (held time.Duration, over bool) {
	c := d.countHeard(now)
	blind := d.health.Blind()
	held, over = d.health.Assess(now, c, d.cfg.Grace)
	if d.health.Blind() &&
		!blind &&
		c.Unheard > max(c.Leaving, 1) &&
		!d.ends.Finished() {
		d.out.addNote("", "fault", 2,
			"%d of %d nodes are silent at once: nothing is fenced, the engine's own network may be at fault",
			c.Unheard, c.Nodes)
	}
	return held, over
}

// countHeard counts the nodes of the job that are heard. Fenced ones count neither for
// the engine's hearing nor against it.
func (d *detector) countHeard(now time.Time) liveness.Count {
	var c liveness.Count
	for _, n := range d.op.stayingNodes() {
		c.Nodes++
		switch h := d.nodes.Get(n, now); {
		case h.Unheard(now):
			c.Unheard++
			if h.Leaving(now) {
				c.Leaving++
			}
		case !h.Met():
			c.Unmet++
		}
	}
	c.Deaf = c.Unheard > 0 && d.nodes.NoneHeard(now)
	return c
}

// excuseSilence gives more time to nodes that fell silent together with others that are heard again.
func (d *detector) excuseSilence(now time.Time) {
	if late := d.nodes.GraceReturned(now); len(late) > 0 && !d.health.Holds() {
		d.out.addNote("", "fault", 1,
			"%s fell silent together with nodes that are heard again: the time before it counts starts again",
			nodeList(late))
	}
}

// markSuspects names the nodes that were silent for some time.
func (d *detector) markSuspects(now time.Time) {
	for _, n := range d.op.stayingNodes() {
		if h := d.nodes.Get(n, now); h.BecomesSuspect(now) {
			d.out.addNote(string(n), "fault", 1, "node %s is suspected: nothing was heard of it for %d beats",
				n, h.MissedBeats(now))
		}
	}
}

// deadNodes finds nodes that are silent and have a second sign against them.
func (d *detector) deadNodes(now time.Time) []falcon.Fault {
	if d.op.rec == nil && d.finishing() ||
		d.op.rec != nil && d.op.nothingOrdered() && d.mayHaveFinished(now, d.op.rec) {
		return nil // agents may well leave with it
	}
	var silent []falcon.Node
	for _, n := range d.op.stayingNodes() {
		if d.nodes.Get(n, now).SilentFor(now, d.cfg.Dead*d.silenceFactor(now, n)) {
			silent = append(silent, n)
		}
	}
	if len(silent) == 0 {
		return nil
	}
	t := d.collectTestimony(now)
	stall := d.standstillFor(now, t)
	var faults []falcon.Fault
	for _, n := range silent {
		h := d.nodes.Get(n, now)
		sign := d.secondSign(now, n, t, stall)
		if sign == "" {
			continue
		}
		_, _, failed := h.Fatal(now)
		f := falcon.Fault{
			Kind:    falcon.FaultNode,
			Node:    n,
			FirstNs: h.LastHeard().UnixNano(),
			Silent:  !failed,
		}
		f.Evidence = []string{
			fmt.Sprintf("nothing was heard of node %s for %d beats", n, h.MissedBeats(now)),
			sign,
		}
		if h.WasReset() {
			f.Evidence = append(f.Evidence, "its connection was reset")
		}
		faults = append(faults, f)
	}
	return faults
}

// silentRanks finds processes that are frozen or gone without a report, and
// devices that failed, where the job stalls.
func (d *detector) silentRanks(now time.Time) []falcon.Fault {
	underway := d.op.isUnderway()
	unexplained := !underway && d.stallUnexplained(now)
	switch {
	case underway && d.op.clock.Idle(now) < 2*d.cfg.Beat:
		return nil
	case !underway && !unexplained && (d.notBegunFor(now) == 0 || d.finishing()):
		return nil
	}
	var faults []falcon.Fault
	nodes := map[falcon.Node]bool{}
	for r, x := range d.ranks.everyRank() {
		n := d.ranks.nodeOf(r)
		if nodes[n] || d.op.isFenced(n) || underway && !d.op.waitsForRank(r) {
			continue
		}
		f, found := d.judgeRank(now, r, n)
		frozen := f.Kind == falcon.FaultFrozen && x.hookAge() >= d.cfg.HangMin
		if found && (underway || unexplained || frozen) {
			nodes[n], faults = true, append(faults, f)
		}
	}
	if len(faults) > 0 && d.tooManyToBelieve(len(nodes)) {
		return nil
	}
	return faults
}

// tooManyToBelieve reports whether too many nodes have silent processes at once to believe it.
func (d *detector) tooManyToBelieve(nodes int) bool {
	before, all := d.doubted, len(d.ranks.usedNodes())
	d.doubted = nodes > 1 && 2*nodes >= all
	if d.doubted && !before {
		d.out.addNote("", "fault", 2,
			"%d of %d nodes are without a sign of life of a process at once: nothing is fenced, the engine's own network may be at fault",
			nodes, all)
	}
	return d.doubted
}

// judgeRank judges one rank of a job that stalls.
func (d *detector) judgeRank(now time.Time, r falcon.Rank, n falcon.Node) (falcon.Fault, bool) {
	x := d.ranks.memberOf(r)
	h := d.nodes.Get(n, now)
	fatal, at, failed := h.Fatal(now)
	age := x.hookAge()
	f := falcon.Fault{Node: n, Device: d.ranks.deviceOf(r)}
	switch {
	case !h.HeardWithin(now, d.cfg.Beat) || !h.Connected():
		return f, false // nothing is known of it
	case failed && x.isAlive() && fatal.Concerns(f.Device):
		f.Kind = falcon.FaultDevice
		f.FirstNs = at.UnixNano()
		f.Evidence = []string{fatal.String(), "the job stalls"}
	case x.isAlive() &&
		x.beatWithin(now, 2*d.cfg.Beat) &&
		age > time.Duration(2*d.silenceFactor(now, n))*d.cfg.Beat:
		f.Kind = falcon.FaultFrozen
		f.FirstNs = now.Add(-age).UnixNano()
		f.Silent = true
		f.Evidence = []string{
			fmt.Sprintf("the hook of rank %d (process %d on %s) was last alive %.1f s ago",
				r, x.process().Pid, f.Device, age.Seconds()),
			"the job stalls",
		}
	case x.isUnknown() &&
		d.op.rec == nil &&
		d.ranks.anyProcessAlive() &&
		!d.ends.Has(r):
		f.Kind = falcon.FaultExit
		f.FirstNs = d.pace.Moved().UnixNano()
		f.Ranks = []falcon.Rank{r}
		f.Evidence = []string{
			fmt.Sprintf("node %s is heard and has no process of rank %d", n, r),
			"the job stalls",
		}
	default:
		return f, false
	}
	return f, true
}

// unwatched ends the evidence of an end that no agent watched.
const unwatched = "as its agent or the engine was away"

// exitFault is the fault of a process's end.
func (s *jobState) exitFault(now time.Time, p Process) falcon.Fault {
	how := cmp.Or(p.Exit, "how is unknown")
	sign := falcon.FaultSign("")
	if p.Exit == "" && s.ends.Doubtful(p.Rank) {
		how = how + ", " + unwatched
		sign = falcon.SignUnwatched
	}
	f := falcon.Fault{
		Kind:    falcon.FaultExit,
		Sign:    sign,
		Node:    p.Node,
		Device:  s.ranks.deviceOf(p.Rank),
		Ranks:   []falcon.Rank{p.Rank},
		FirstNs: now.UnixNano(),
		Evidence: []string{fmt.Sprintf("rank %d (process %d on %s) ended: %s",
			p.Rank, p.Pid, s.ranks.deviceOf(p.Rank), how)},
	}
	if why := describeWords(p); why != "" {
		f.Evidence, f.Words = append(f.Evidence, why), p.Ending.Words()
	}
	fatal, _, failed := s.nodes.Get(p.Node, now).Fatal(now)
	if failed && fatal.Concerns(f.Device) {
		f.Kind = falcon.FaultDevice
		f.Evidence = append([]string{fatal.String()}, f.Evidence...)
	}
	return f
}

// describeWords is why a process ended, as it says itself; "" where nothing of that is known.
func describeWords(p Process) string {
	switch e := p.Ending; {
	case !e.Raised.IsZero():
		return fmt.Sprintf("rank %d raised %s", p.Rank, e.Raised)
	case e.Said != "":
		return fmt.Sprintf("rank %d printed last: %s", p.Rank, e.Said)
	}
	return ""
}

// parkedAlone finds a process that has left training by itself, as they do
// when a communicator breaks: nothing may be faulty, and all must rejoin.
func (d *detector) parkedAlone(now time.Time) (falcon.Fault, bool) {
	for r, x := range d.ranks.everyRank() {
		since, parked := x.parkedSince()
		if !parked || now.Sub(since) < 2*d.cfg.Beat {
			continue
		}
		p := x.process()
		return falcon.Fault{
			Kind:    falcon.FaultHang,
			Node:    p.Node,
			Device:  d.ranks.deviceOf(r),
			FirstNs: since.UnixNano(),
			Evidence: []string{fmt.Sprintf(
				"rank %d (process %d on %s) has left training by itself and no fault is known: its communicators may be broken",
				r, p.Pid, d.ranks.deviceOf(r),
			)},
		}, true
	}
	return falcon.Fault{}, false
}

// collectTestimony asks all nodes that are heard.
func (d *detector) collectTestimony(now time.Time) testimony {
	var t testimony
	for _, n := range d.op.stayingNodes() {
		h := d.nodes.Get(n, now)
		if !h.Met() || h.Unheard(now) {
			continue
		}
		var ranks []*member
		for _, r := range d.ranks.ranksOnNode(n) {
			ranks = append(ranks, d.ranks.memberOf(r))
		}
		t.addNode(now, d.cfg.Beat, ranks)
	}
	return t
}

// someLeaving reports whether a node of the job is not heard since its agent's goodbye.
func (d *detector) someLeaving(now time.Time) bool {
	return slices.ContainsFunc(d.op.stayingNodes(), func(n falcon.Node) bool {
		return d.nodes.Get(n, now).Leaving(now)
	})
}
