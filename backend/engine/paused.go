package engine

import (
	"fmt"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// A node that was given up for its silence alone and comes back with its processes alive has only
// paused. Where others have its ranks by then its processes are ended, and its fence is lifted: it is
// a spare.

// pausedLeast is how long such a node is heard without a break before its fence is lifted.
const pausedLeast = time.Minute

// comebacks are the fenced nodes that came back with a process alive that is older than their fence: a
// node that was started again has none. What an engine has not seen itself is left to a person.
type comebacks map[falcon.Node]bool

// note takes the report of a process of a fenced node.
func (c comebacks) note(n falcon.Node, fence fenceRecord, s *falconv1.RankState) {
	if s.GetAlive() && s.GetGeneration() < fence.Generation {
		c[n] = true
	}
}

// liftPaused lifts the fences of nodes that have only paused, and hold nothing of the job any more.
func (dr *recoveryDriver) liftPaused(now time.Time) {
	if len(dr.back) == 0 ||
		dr.cluster.recovering() != nil ||
		dr.state.policy.Policy.Frozen {
		return
	}
	for _, n := range sortedKeys(dr.back) {
		switch {
		case !dr.state.fences.nodeFenced(n):
			delete(dr.back, n)
			continue
		case !dr.rec.OnlyPaused(now, n, pausedLeast) || dr.cluster.holdsProcesses(now, n):
			continue
		}
		delete(dr.back, n)
		dr.takeBack(now, fenceRecord{
			Lifted: n,
			By:     "falcon",
			Reason: fmt.Sprintf(
				"nothing but its silence spoke against it, it came back with its processes, and is heard for %s",
				pausedLeast,
			),
		})
	}
}

// holdsProcesses reports whether a node may still run something of the job that was replaced.
func (c *clusterView) holdsProcesses(now time.Time, n falcon.Node) bool {
	return c.leftRunning(now, n) != "" || c.leftOn(now, n) != ""
}

// takeBack lifts a fence: its node is a spare from now on.
func (s *shared) takeBack(now time.Time, rec fenceRecord) {
	s.batch.apply(record(now, kindFence, rec))
	s.outbox.Remove(isStopOf(rec.Lifted))
	s.oplog.logf("recovery", 1, string(rec.Lifted), "the fence of node %s is lifted by %s: %s",
		rec.Lifted, rec.By, rec.Reason)
}
