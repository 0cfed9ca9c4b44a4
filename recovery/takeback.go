package recovery

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// A node that was given up for nothing but its silence may only have paused: a live migration, or a
// machine short of memory. While nothing has taken its place it is taken back as soon as it is heard
// again with its processes: what spoke against it holds no more. They are suspended like all others,
// and those that ended meanwhile are replaced where they were. A node that is back without any, as
// after a repair, is taken back where no spare is left for it.

// moments are when something became of nodes.
type moments map[falcon.Node]time.Time

func (m moments) setAt(n falcon.Node, now time.Time) {
	m[n] = now
}

// lastAt is when it was; zero = never.
func (m moments) lastAt(n falcon.Node) time.Time { return m[n] }

// returns is what is known of the nodes that a recovery has given up and that may come back.
type returns struct{ *operation }

// comeback takes nodes back into a recovery.
type comeback struct {
	*workflow
	returns returns
}

func newComeback(w *workflow) comeback {
	return comeback{w, returns{w.op}}
}

// onlySilence reports whether nothing but silence, of the node or of its answers, speaks against a node
// that is given up, and nothing has taken its place.
func (rt returns) onlySilence(now time.Time, n falcon.Node) bool {
	_, _, failed := rt.nodes.Get(n, now).Fatal(now)
	if failed || !rt.isFenced(n) || len(rt.ranks.ranksOnNode(n)) == 0 {
		return false
	}
	silent := false
	for _, f := range rt.rec.Faults {
		if f.Node == n && f.Holds() && f.LosesNode() {
			if !f.MayPass() {
				return false
			}
			silent = true
		}
	}
	return silent
}

// hasFrozen reports whether a node is given up for a process whose hook is silent.
func (rt returns) hasFrozen(n falcon.Node) bool {
	return rt.anyFaultOf(n, func(f falcon.Fault) bool {
		return f.Kind == falcon.FaultFrozen
	})
}

// isUnanswered reports whether a node is given up as it did not answer an order.
func (rt returns) isUnanswered(n falcon.Node) bool {
	return rt.anyFaultOf(n, func(f falcon.Fault) bool { return f.Unanswered })
}

// anyFaultOf reports whether a fault of a node that still stands is as is says.
func (rt returns) anyFaultOf(n falcon.Node, is func(falcon.Fault) bool) bool {
	return slices.ContainsFunc(rt.rec.Faults, func(f falcon.Fault) bool {
		return f.Node == n && f.Holds() && is(f)
	})
}

// isBack reports whether a node that was given up is heard again, with each of its ranks accounted
// for since, and whether one of them is alive. A process that its agent has not reported by then is
// gone: of one that ended before this engine began nothing more is reported.
func (rt returns) isBack(now time.Time, n falcon.Node) (back, alive bool) {
	h := rt.nodes.Get(n, now)
	if !h.Connected() || !h.HeardWithin(now, rt.cfg.Beat) {
		return false, false
	}
	if rt.isUnanswered(n) && !h.AwaySince(rt.givenUp.lastAt(n)) {
		return false, false // an order takes the way of the one that was not answered
	}
	reported := !h.AwaySince(now.Add(-2 * rt.cfg.Beat))
	for _, r := range rt.ranks.ranksOnNode(n) {
		x := rt.ranks.memberOf(r)
		switch {
		case x.hasEnded(), x.isUnknown() && reported:
		case x.beatsSince(rt.givenUp.lastAt(n), now, rt.cfg.Beat):
			alive = true
		default:
			return false, false
		}
	}
	return true, alive
}

// awaitedBack lists the nodes that are taken back if they are heard again now, ascending.
func (rt returns) awaitedBack(now time.Time) []falcon.Node {
	var out []falcon.Node
	for _, n := range rt.rec.Fenced {
		if rt.onlySilence(now, n) {
			out = append(out, n)
		}
	}
	return out
}

// refusedNodes lists the nodes that are given up for good, ascending: nothing takes them back.
func (rt returns) refusedNodes(now time.Time) []falcon.Node {
	return slices.DeleteFunc(slices.Clone(rt.rec.Fenced), func(n falcon.Node) bool {
		return rt.onlySilence(now, n)
	})
}

// takeBack takes back the nodes that are heard again; it reports whether there were any.
func (w comeback) takeBack(now time.Time) bool {
	var back []falcon.Node
	for _, n := range w.returns.awaitedBack(now) {
		here, alive := w.returns.isBack(now, n)
		if here &&
			!w.isFailing(now, n) &&
			(alive || w.alloc.assignRanks(now).lack != "") {
			back = append(back, n)
		}
	}
	if len(back) == 0 {
		return false
	}
	for _, n := range back {
		what := "is heard again"
		if w.returns.isUnanswered(n) {
			what = "is connected again"
		}
		silent := w.returns.withdrawSilence(now, n)
		w.out.addNote(w.op.rec.ID, "recovery", 1,
			"%s: node %s %s after %.1f s, and nothing has taken its place: it is taken back",
			w.op.rec.ID, n, what, silent.Seconds())
	}
	w.goOnWith(now, back)
	return true
}

// goOnWith goes on with nodes that were taken back.
func (w comeback) goOnWith(now time.Time, back []falcon.Node) {
	c := w.op.rec
	ended := w.endedOn(now, back)
	switch {
	case len(ended) == 0 && c.Attempts == 0 && !w.returns.anyFaultHolds():
		w.cancelRecovery(now, fmt.Sprintf("%s is heard again: nothing is left to recover", nodeList(back)))
	case c.State == falcon.RecoveryProposed:
		w.proposePlan(now)
	case c.Whole:
		w.launchWhole(now)
	default:
		w.beginAttempt(now, fmt.Sprintf("%s is heard again and rejoins with the others", nodeList(back)))
	}
	for _, f := range ended {
		if w.op.rec != nil {
			w.onFault(now, f)
		}
	}
}

// endedOn are the faults of the processes that have ended on some nodes, one for each node.
func (w comeback) endedOn(now time.Time, nodes []falcon.Node) []falcon.Fault {
	var out []falcon.Fault
	for _, n := range nodes {
		var f falcon.Fault
		for _, r := range w.ranks.ranksOnNode(n) {
			if x := w.ranks.memberOf(r); !x.hasEnded() {
				continue
			} else if next := w.exitFault(now, x.process()); len(f.Ranks) == 0 {
				f = next
			} else {
				mergeFault(&f, next)
			}
		}
		if len(f.Ranks) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// anyFaultHolds reports whether something is left to recover.
func (rt returns) anyFaultHolds() bool {
	return slices.ContainsFunc(rt.rec.Faults, falcon.Fault.Holds)
}

// withdrawSilence takes what was held against a node for its silence back. It returns for how long
// the node was silent.
func (rt returns) withdrawSilence(now time.Time, n falcon.Node) time.Duration {
	c := rt.rec
	first := now.UnixNano()
	for i := range c.Faults {
		if f := &c.Faults[i]; f.Node == n && f.MayPass() && f.Holds() {
			f.ReturnedNs = now.UnixNano()
			first = min(first, f.FirstNs)
		}
	}
	c.Fenced = slices.DeleteFunc(c.Fenced, func(o falcon.Node) bool { return o == n })
	c.Pending = slices.DeleteFunc(c.Pending, func(r falcon.Rank) bool {
		return rt.ranks.nodeOf(r) == n && !rt.faultHoldsFor(r)
	})
	for _, r := range rt.ranks.ranksOnNode(n) {
		if c.Launched[r] == 0 { // else it was launched there in this recovery
			delete(c.Replaced, r)
		}
	}
	rt.updateSurvivors()
	rt.awaitLaunched()
	rt.clock.Advance(now)
	rt.markChanged()
	return time.Duration(now.UnixNano() - first)
}

// faultHoldsFor reports whether a fault that still stands names a rank.
func (rt returns) faultHoldsFor(r falcon.Rank) bool {
	return slices.ContainsFunc(rt.rec.Faults, func(f falcon.Fault) bool {
		return f.Holds() && slices.Contains(f.Ranks, r)
	})
}
