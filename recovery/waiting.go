package recovery

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/internal/attempt"
)

// isParked reports whether rank r's process parks in the present attempt.
func (op *operation) isParked(r falcon.Rank) bool {
	g, parks := op.ranks.memberOf(r).parkGeneration()
	return parks && g == op.rec.Generation
}

// firstUnparked finds the first rank whose process does not park in this attempt.
func (op *operation) firstUnparked() (falcon.Rank, bool) {
	for r := range op.ranks.everyRank() {
		if !op.isParked(r) {
			return r, true
		}
	}
	return 0, false
}

// launchParked reports whether the process launched for rank r parks.
func (op *operation) launchParked(r falcon.Rank) bool {
	x := op.ranks.memberOf(r)
	_, parks := x.parkGeneration()
	return parks && x.process().Generation == op.rec.Launched[r]
}

// isReplacing reports whether rank r is to be launched, or was and does not park yet.
func (op *operation) isReplacing(r falcon.Rank) bool {
	return op.rec != nil &&
		op.rec.State != falcon.RecoveryProposed &&
		(slices.Contains(op.rec.Pending, r) || op.replies.Awaits(r))
}

// processReported takes a report of rank r's process.
func (op *operation) processReported(now time.Time, r falcon.Rank) {
	if op.rec.State == falcon.RecoverySuspend && op.isParked(r) {
		op.clock.Advance(now)
	}
	if op.replies.Awaits(r) && op.launchParked(r) {
		op.replies.Arrived(r)
		op.clock.Advance(now)
	}
}

// acknowledgeParked takes the suspension of nodes for done that have not answered, but all of
// whose processes park in it; it reports whether there are such.
func (op *operation) acknowledgeParked() (any bool) {
	for _, n := range op.stayingNodes() {
		unparked := slices.ContainsFunc(op.ranks.ranksOnNode(n), func(r falcon.Rank) bool {
			return !op.isParked(r)
		})
		if !unparked && op.replies.Acknowledge(n) {
			any = true
		}
	}
	return any
}

// missedSuspension reports whether rank r's process waits in an older generation although its node
// acknowledged this suspension: the agent was replaced in between, and only a new order parks it.
func (op *operation) missedSuspension(r falcon.Rank) bool {
	x := op.ranks.memberOf(r)
	g, _ := x.parkGeneration()
	return op.rec.State == falcon.RecoverySuspend &&
		!op.rec.Whole &&
		op.replies.Suspended(x.process().Node) &&
		op.launchParked(r) &&
		g < op.rec.Generation
}

// waitsForNode reports whether the present state waits for something of node n.
func (op *operation) waitsForNode(n falcon.Node) bool {
	switch {
	case op.isFenced(n):
		return false
	case op.rec.State == falcon.RecoverySuspend && op.rec.Whole:
		return op.agents[n] && op.agentAway(n)
	case op.rec.State == falcon.RecoverySuspend && !op.replies.Suspended(n):
		return true
	case op.rec.State == falcon.RecoveryTable:
		return !op.replies.Tabled(n)
	}
	return slices.ContainsFunc(op.ranks.ranksOnNode(n), op.waitsForRank)
}

// awaitsAnswer reports whether nothing shows that the present state's order has reached node n.
func (op *operation) awaitsAnswer(n falcon.Node) bool {
	return op.rec.State == falcon.RecoverySuspend &&
		!op.rec.Whole &&
		!op.replies.Suspended(n)
}

// waitsForRank reports whether the present state waits for the process of rank r.
func (op *operation) waitsForRank(r falcon.Rank) bool {
	switch op.rec.State {
	case falcon.RecoverySuspend:
		return op.ranks.memberOf(r).isAlive() &&
			!op.replies.Awaits(r) &&
			!op.isFenced(op.ranks.nodeOf(r)) &&
			(op.replies.Stopping(r) || !op.isParked(r))
	case falcon.RecoveryReplace:
		return op.replies.Awaits(r)
	case falcon.RecoveryCollect:
		return !op.isParked(r)
	case falcon.RecoveryRejoin:
		return !op.replies.Rejoined(r)
	}
	return false
}

// waitsToPark reports whether the suspension waits for a process not ordered to end.
func (op *operation) waitsToPark() bool {
	for r := range op.ranks.everyRank() {
		if op.waitsForRank(r) && !op.replies.Stopping(r) {
			return true
		}
	}
	return false
}

// confirmAbove is the iteration above which one is new. Those of a rejoin come after
// the one that it resumes at: that has begun on each rank by itself.
func (op *operation) confirmAbove() int64 {
	if op.rec != nil && op.rec.State == falcon.RecoveryRejoin {
		return op.rec.Resume
	}
	return op.pace.InBeats()
}

// rankSucceeded takes a rank's end with success.
func (op *operation) rankSucceeded(now time.Time) {
	if op.rec != nil {
		op.clock.Advance(now)
		op.rankFinished = op.rec.State == falcon.RecoveryRejoin
	}
}

// rejoinedBeforeEnd takes an ended process's report of its rejoin for its agent's lost answer.
func (op *operation) rejoinedBeforeEnd(p Process) {
	c := op.rec
	if c != nil &&
		c.State == falcon.RecoveryRejoin &&
		p.Rejoined == c.Generation &&
		!op.replies.Rejoined(p.Rank) {
		op.replies.AddRejoined(p.Rank, attempt.Times{})
	}
}

// trustedHolds are the survivors' steps, but of those parked in the optimizer or without any.
func (op *operation) trustedHolds() map[falcon.Rank]falcon.RankHold {
	out := make(map[falcon.Rank]falcon.RankHold, op.ranks.worldSize())
	for r, x := range op.ranks.everyRank() {
		p := x.process().Park
		if p.Joining || p.Tag == -1 || p.Hold.Steps[0] < 0 && p.Hold.Steps[1] < 0 {
			continue
		}
		out[r] = p.Hold
		op.rec.Before = max(op.rec.Before, p.Tag)
	}
	return out
}

// agentAway reports whether a node's agent is not connected, and was not given up.
func (op *operation) agentAway(n falcon.Node) bool {
	return op.job.Away[n] && !op.job.CanLaunch[n] && !op.isFenced(n)
}

// missingAgents are the nodes whose agents are waited for and still away, ascending.
func (op *operation) missingAgents() []falcon.Node {
	var out []falcon.Node
	for n := range op.agents {
		if op.agentAway(n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// awaitLaunched waits for those launched in this recovery that don't park yet.
func (op *operation) awaitLaunched() {
	var ranks []falcon.Rank
	for r := range op.rec.Launched {
		if op.ranks.hasRank(r) &&
			!op.launchParked(r) &&
			!slices.Contains(op.rec.Pending, r) {
			ranks = append(ranks, r)
		}
	}
	op.replies.Await(ranks)
}
