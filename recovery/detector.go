package recovery

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// detector finds faults in what is known of the job. What follows from them is for the
// workflow to decide.
type detector struct {
	*jobState
	op      *operation
	out     *outbox
	doubted bool // processes of too many nodes are silent to be believed
}

func newDetector(job *jobState, op *operation, out *outbox) detector {
	return detector{jobState: job, op: op, out: out}
}

// listen judges the console's own hearing before that of any node. It reports for how
// long all clocks were held when they are to start again.
func (d *detector) listen(now time.Time) (held time.Duration, over bool) {
	c := d.countHeard(now)
	blind := d.hear.blind
	held, over = d.hear.see(now, c, d.cfg.Grace)
	if d.hear.blind && !blind && c.unheard > max(c.leaving, 1) && !d.ends.finished {
		d.out.note("fault", 2, "%d of %d nodes are silent at once: nothing is fenced, the console's own network may be at fault", c.unheard, c.nodes)
	}
	return held, over
}

// countHeard counts the nodes of the job that are heard. Fenced ones count neither for
// the console's hearing nor against it.
func (d *detector) countHeard(now time.Time) count {
	var c count
	for _, n := range d.op.staying() {
		c.nodes++
		switch h := d.nodes.host(n, now); {
		case h.unheard(now):
			c.unheard++
			if h.leaving(now) {
				c.leaving++
			}
		case !h.met:
			c.unmet++
		}
	}
	c.deaf = c.unheard > 0 && d.nodes.noneHeard(now)
	return c
}

// markSuspects names the nodes that were silent for some time.
func (d *detector) markSuspects(now time.Time) {
	for _, n := range d.op.staying() {
		if h := d.nodes.host(n, now); h.becomesSuspect(now) {
			d.out.note("fault", 1, "node %s is suspected: nothing was heard of it for %d beats", n, h.missedBeats(now))
		}
	}
}

// deadNodes finds nodes that are silent and have a second sign against them.
func (d *detector) deadNodes(now time.Time) []falcon.Fault {
	if d.op.rec == nil && d.finishing() {
		return nil // agents may well leave with it
	}
	var silent []falcon.Node
	for _, n := range d.op.staying() {
		if d.nodes.host(n, now).missedBeats(now) >= d.cfg.Dead {
			silent = append(silent, n)
		}
	}
	if len(silent) == 0 {
		return nil
	}
	t := d.collectTestimony(now)
	stall := d.standstill(now, t)
	var faults []falcon.Fault
	for _, n := range silent {
		h := d.nodes.host(n, now)
		sign := d.secondSign(now, n, t, stall)
		if sign == "" {
			continue
		}
		f := falcon.Fault{Kind: falcon.FaultNode, Node: n, FirstNs: h.heard.UnixNano()}
		f.Evidence = []string{fmt.Sprintf("nothing was heard of node %s for %d beats", n, h.missedBeats(now)), sign}
		if h.gone && h.how == Reset {
			f.Evidence = append(f.Evidence, "its connection was reset")
		}
		faults = append(faults, f)
	}
	return faults
}

// silentRanks finds processes that are frozen or gone without a report, and
// devices that failed, where the job stalls.
func (d *detector) silentRanks(now time.Time) []falcon.Fault {
	underway := d.op.underway()
	unexplained := !underway && d.stallUnexplained(now)
	switch {
	case underway && d.op.clock.idle(now) < 2*d.cfg.Beat:
		return nil
	case !underway && !unexplained && (d.notBegun(now) == 0 || d.finishing()):
		return nil
	}
	var faults []falcon.Fault
	nodes := map[falcon.Node]bool{}
	for r, x := range d.ranks.all() {
		n := d.ranks.node(r)
		if nodes[n] || d.op.isFenced(n) || underway && !d.op.waitsForRank(r) {
			continue
		}
		f, found := d.judgeRank(now, r, n)
		if frozen := f.Kind == falcon.FaultFrozen && x.hookAge() >= d.cfg.HangMin; found && (underway || unexplained || frozen) {
			nodes[n], faults = true, append(faults, f)
		}
	}
	if len(faults) > 0 && d.tooMany(len(nodes)) {
		return nil
	}
	return faults
}

// tooMany reports whether so many nodes have silent processes at once that it can't be
// believed.
func (d *detector) tooMany(nodes int) bool {
	before, all := d.doubted, len(d.ranks.usedNodes())
	d.doubted = nodes > 1 && 2*nodes > all
	if d.doubted && !before {
		d.out.note("fault", 2, "%d of %d nodes are without a sign of life of a process at once: nothing is fenced, the console's own network may be at fault", nodes, all)
	}
	return d.doubted
}

// judgeRank judges one rank of a job that stalls.
func (d *detector) judgeRank(now time.Time, r falcon.Rank, n falcon.Node) (falcon.Fault, bool) {
	x, h := d.ranks.member(r), d.nodes.host(n, now)
	age := x.hookAge()
	f := falcon.Fault{Node: n, Device: d.ranks.device(r)}
	switch {
	case h.missedBeats(now) > 0 || !h.met || h.gone:
		return f, false // nothing is known of it
	case h.reportsFatal(now) && x.alive() && concerns(h.fatal, f.Device):
		f.Kind, f.FirstNs = falcon.FaultDevice, h.fatalAt.UnixNano()
		f.Evidence = []string{deviceText(h.fatal), "the job stalls"}
	case x.alive() && !x.beatAt.IsZero() && now.Sub(x.beatAt) <= 2*d.cfg.Beat && age > 2*d.cfg.Beat:
		f.Kind, f.FirstNs = falcon.FaultFrozen, now.Add(-age).UnixNano()
		f.Evidence = []string{fmt.Sprintf("the hook of rank %d (process %d on %s) was last alive %.1f s ago", r, x.proc.Pid, f.Device, age.Seconds()), "the job stalls"}
	case !x.known && d.op.rec == nil && d.ranks.anyAlive() && !d.ends.has(r):
		f.Kind, f.FirstNs, f.Ranks = falcon.FaultExit, d.pace.moved.UnixNano(), []falcon.Rank{r}
		f.Evidence = []string{fmt.Sprintf("node %s is heard and has no process of rank %d", n, r), "the job stalls"}
	default:
		return f, false
	}
	return f, true
}

// exitFault is the fault of a process's end.
func (d *detector) exitFault(now time.Time, p Process) falcon.Fault {
	how := p.Exit
	if how == "" {
		how = "nobody saw how"
	}
	f := falcon.Fault{
		Kind: falcon.FaultExit, Node: p.Node, Device: d.ranks.device(p.Rank), Ranks: []falcon.Rank{p.Rank}, FirstNs: now.UnixNano(),
		Evidence: []string{fmt.Sprintf("rank %d (process %d on %s) ended: %s", p.Rank, p.Pid, d.ranks.device(p.Rank), how)},
	}
	if h := d.nodes.host(p.Node, now); h.reportsFatal(now) && concerns(h.fatal, f.Device) {
		f.Kind, f.Evidence = falcon.FaultDevice, append([]string{deviceText(h.fatal)}, f.Evidence...)
	}
	return f
}

// parkedAlone finds a process that has left training by itself, as they do
// when a communicator breaks: nothing may be faulty, and all must rejoin.
func (d *detector) parkedAlone(now time.Time) (falcon.Fault, bool) {
	for r, x := range d.ranks.all() {
		if !x.alive() || x.proc.Park == nil || now.Sub(x.parkedAt) < 2*d.cfg.Beat {
			continue
		}
		return falcon.Fault{
			Kind: falcon.FaultHang, Node: x.proc.Node, Device: d.ranks.device(r), FirstNs: x.parkedAt.UnixNano(),
			Evidence: []string{fmt.Sprintf("rank %d (process %d on %s) has left training by itself and no fault is known: its communicators may be broken", r, x.proc.Pid, d.ranks.device(r))},
		}, true
	}
	return falcon.Fault{}, false
}

// concerns reports whether a report concerns the process on a device: it is of that
// device, or of a port that all of the node share.
func concerns(d Device, on falcon.Device) bool { return d.Device == on || d.Device.Index() < 0 }

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

// collectTestimony asks all nodes that are heard.
func (d *detector) collectTestimony(now time.Time) testimony {
	var t testimony
	for _, n := range d.op.staying() {
		h := d.nodes.host(n, now)
		if !h.met || h.unheard(now) {
			continue
		}
		var ranks []*member
		for _, r := range d.ranks.ranksOn(n) {
			ranks = append(ranks, d.ranks.member(r))
		}
		t.addNode(now, d.cfg.Beat, ranks)
	}
	return t
}

// someLeaving reports whether a node of the job is not heard since its agent said
// goodbye.
func (d *detector) someLeaving(now time.Time) bool {
	return slices.ContainsFunc(d.op.staying(), func(n falcon.Node) bool { return d.nodes.host(n, now).leaving(now) })
}
