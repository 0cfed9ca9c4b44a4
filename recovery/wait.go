package recovery

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// Parked ranks wait as long as somebody may still come: a spare, or a node that is silent. How long
// is a matter of cost. A wait that ends by itself costs its time; a restart from storage costs the
// iterations since the checkpoint and the launch, twice where replicas are given up, as the job is
// started once more when it grows again, and meanwhile it is slower by their share. Whoever waits
// until both cost the same never pays more than twice the least.

// waits has a recovery wait for somebody.
type waits struct {
	*workflow
	returns returns
}

func newWaits(w *workflow) waits {
	return waits{w, returns{w.op}}
}

// awaitSpare waits for a spare, or for nodes that come back.
func (w waits) awaitSpare(now time.Time, a assignment) {
	c := w.op.rec
	wait, limit := w.planWait(now, a)
	if !w.op.spare.begin() {
		w.showWait(wait)
		return
	}
	c.Reason = a.lack + "; connect a spare node, or abort"
	if s, _ := w.alloc.shrinkPlan(a); s != nil {
		c.Reason += fmt.Sprintf("; in %s it goes on with %d of %d replicas",
			limit.Round(time.Second), len(s.Kept), s.Of)
	}
	w.op.setDeadline(now, limit)
	w.showWait(wait)
	w.out.addNote(c.ID, "recovery", 2, "%s waits: %s", c.ID, c.Reason)
}

// awaitWholeSpare has a whole restart wait for a spare, or for nodes that come back. Nothing is ended
// and nothing is fenced meanwhile, so that whoever approved may still abort.
func (w waits) awaitWholeSpare(now time.Time, a assignment) {
	c := w.op.rec
	if w.op.spare.begin() {
		w.op.stopAwaitingAgents()
		w.op.enterState(now, falcon.RecoverySuspend, w.cfg.SpareWait)
		w.op.markSettled(now)
		c.Reason = wholeReason(c) + awaitsAgents +
			fmt.Sprintf("%s for a spare: %s; connect a spare node, or abort", w.cfg.SpareWait, a.lack)
		w.out.addNote(c.ID, "recovery", 2, "%s waits: %s", c.ID, c.Reason)
	}
	w.showWait(falcon.RecoveryWait{
		Nodes: w.returns.awaitedBack(now),
		Spare: true,
		Then:  falcon.ThenFail,
	})
}

// planWait is for whom it waits, and for how long.
func (w waits) planWait(now time.Time, a assignment) (falcon.RecoveryWait, time.Duration) {
	wait := falcon.RecoveryWait{
		Nodes: w.returns.awaitedBack(now),
		Spare: true,
		Then:  falcon.ThenFail,
	}
	s, _ := w.alloc.shrinkPlan(a)
	if s == nil {
		return wait, w.cfg.SpareWait
	}
	wait.Then = falcon.ThenFewer
	redo, launch, known := w.restartCost()
	if !known {
		return wait, w.cfg.SpareWait
	}
	wait.RedoMs = milliseconds(redo)
	wait.LaunchMs = milliseconds(launch)
	limit := w.cfg.SpareWait
	even := time.Duration(float64(2*(redo+launch)) * float64(s.Of) / float64(len(s.Kept)))
	if len(wait.Nodes) > 0 && even > 0 {
		limit = min(limit, even)
	}
	return wait, limit
}

// restartCost is what a restart from the newest checkpoint costs, as far as is known.
func (w waits) restartCost() (redo, launch time.Duration, known bool) {
	usual, known := w.pace.Usual()
	if w.job.Checkpoint < 0 || !known {
		return 0, 0, false
	}
	phases := w.hist.predictPhases(w.job.StateMB)
	for _, phase := range []string{
		falcon.PhaseReplace,
		falcon.PhaseGroups,
		falcon.PhaseRestore,
		falcon.PhaseResume,
	} {
		launch += time.Duration(phases[phase] * float64(time.Millisecond))
	}
	return time.Duration(max(0, w.op.rec.Before-w.job.Checkpoint)) * usual, launch, true
}

// showWait enters for whom it waits, until the deadline of the present state.
func (w waits) showWait(wait falcon.RecoveryWait) {
	c := w.op.rec
	wait.UntilNs = c.DeadlineNs
	if c.Wait == nil || !reflect.DeepEqual(*c.Wait, wait) {
		c.Wait = &wait
		w.op.markChanged()
	}
}

// awaitReturn has a recovery wait for silent nodes although spares are there, as without them every
// rank would go back to storage; false = it goes on.
func (w waits) awaitReturn(now time.Time, a assignment) bool {
	nodes := w.returns.awaitedBack(now)
	if len(nodes) == 0 || !w.needsStorage(a) {
		return false
	}
	wait := falcon.RecoveryWait{Nodes: nodes, Then: falcon.ThenFail}
	limit := w.cfg.AgentWait
	if w.job.Checkpoint >= 0 {
		redo, launch, _ := w.restartCost()
		wait.Then = falcon.ThenCheckpoint
		wait.RedoMs = milliseconds(redo)
		wait.LaunchMs = milliseconds(launch)
		limit = min(limit, redo)
	}
	if w.op.clock.Spent(now) >= limit {
		return false
	}
	if c := w.op.rec; c.Wait == nil || c.Wait.Spare {
		w.op.spare.end() // one that is lost again is waited for again
		w.op.setDeadline(now, limit-w.op.clock.Spent(now))
		c.Reason = fmt.Sprintf("%s may come back, and a shard would be lost with it", nodeList(nodes))
		w.out.addNote(c.ID, "recovery", 2, "%s waits up to %s: %s",
			c.ID, limit.Round(100*time.Millisecond), c.Reason)
	}
	w.showWait(wait)
	return true
}

// awaitMost has a recovery wait where half of the nodes or more did not do what it waits for: they may
// all come back, and what is wrong with so many at once may be this engine's network, or a storage
// that they share. False = it did already, or some are heard and have launched, or rejoin.
func (w waits) awaitMost(now time.Time, late []falcon.Node) bool {
	c := w.op.rec
	heard := slices.ContainsFunc(late, func(n falcon.Node) bool {
		return !w.nodes.Get(n, now).Unheard(now)
	})
	if c.Wait != nil || heard && c.State != falcon.RecoverySuspend {
		return false
	}
	why := fmt.Sprintf("nothing is heard of %s: their network or the engine's may be at fault",
		nodeList(late))
	if heard {
		why = fmt.Sprintf("the processes on %s do not park: they may share what is at fault", nodeList(late))
	}
	if c.Whole {
		c.Reason = wholeReason(c) + awaitsAgents + fmt.Sprintf("%s: %s", w.cfg.SpareWait, why)
	} else {
		c.Reason = why
	}
	w.op.setDeadline(now, w.cfg.SpareWait)
	w.showWait(falcon.RecoveryWait{Nodes: late, Then: falcon.ThenFail})
	w.out.addNote(c.ID, "recovery", 2, "%s waits up to %s: %s", c.ID, w.cfg.SpareWait, why)
	return true
}

// endMostWait gives those that are left so long where less than half of the nodes are.
func (w waits) endMostWait(now time.Time, limit time.Duration) {
	c := w.op.rec
	if c.Wait == nil || c.Wait.Spare || w.op.isSettled() {
		return
	}
	late := len(w.lateNodes())
	if late == 0 || 2*late >= len(w.ranks.usedNodes()) {
		return
	}
	if c.Wait, c.Reason = nil, ""; c.Whole {
		c.Reason = wholeReason(c)
	}
	w.op.setDeadline(now, limit)
	w.op.markChanged()
}

// needsStorage reports whether a shard is lost with the ranks that an assignment replaces.
func (w waits) needsStorage(a assignment) bool {
	holds := map[falcon.Rank]falcon.RankHold{}
	for r := range w.ranks.everyRank() {
		if !slices.Contains(a.launch, r) && w.op.rec.Launched[r] == 0 {
			holds[r] = falcon.RankHold{Steps: [2]int64{max(w.op.rec.Before, 0), falcon.NoIteration}}
		}
	}
	choice, err := w.chooseStep(holds, a.placement)
	return err == nil && choice.Checkpoint
}

// flapsMost is how often within an hour a node may fall silent and come back before it is taken for
// failing, where a spare is there.
const flapsMost = 3

// returnsWithinHour counts how often a node was taken back.
func (h *history) returnsWithinHour(now time.Time, n falcon.Node) int {
	times := map[int64]bool{}
	for _, c := range h.recs {
		for _, f := range c.Faults {
			if f.Node == n &&
				!f.Holds() &&
				now.UnixNano()-f.ReturnedNs < int64(hour) {
				times[f.ReturnedNs] = true
			}
		}
	}
	return len(times)
}

// silenceFactor is how many times longer a node may be silent that has come back before, so that one
// that pauses again and again does not take the job down each time. One that does so too often gets
// no more time where a spare is there.
func (d *detector) silenceFactor(now time.Time, n falcon.Node) int {
	times := d.hist.returnsWithinHour(now, n)
	if times >= flapsMost && len(d.job.Spares) > 0 {
		return 1
	}
	return 1 << min(times, flapsMost)
}

// isFailing reports whether a node that is heard again is not taken back, as it has fallen silent too
// often and a spare takes its place.
func (w comeback) isFailing(now time.Time, n falcon.Node) bool {
	times := w.hist.returnsWithinHour(now, n)
	if times < flapsMost || w.alloc.assignRanks(now).lack != "" {
		return false
	}
	if w.op.failing.lastAt(n).IsZero() {
		w.op.failing.setAt(n, now)
		w.out.addNote(string(n), "recovery", 2,
			"%s: node %s has fallen silent and come back %d times within an hour: it is taken for failing, and a spare takes its place",
			w.op.rec.ID, n, times)
	}
	return true
}
