package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/outbox"
)

// A stray is a process of an older launch that is not the job's: its order came
// late to a node that was out of reach, when others held its rank already. It
// must not take the rank from the job's own process, and it is ordered to end.

// isStray reports whether a process that claims a rank can only be left over. A
// process that was started by hand may be a new job's, and is none.
func (c *clusterView) isStray(node falcon.Node, rank falcon.Rank, in *falconv1.RankState) bool {
	job := &c.state.job
	if in.GetGeneration() == 0 ||
		!in.GetAlive() ||
		rank < 0 ||
		int(rank) >= len(job.Processes) {
		return false
	}
	if in.GetGeneration() > max(job.Newest(), c.state.Lost) {
		return false // of a launch that is being carried out
	}
	name := processName(node, in)
	if name == job.Processes[rank] || slices.Contains(job.Processes, name) {
		return false
	}
	return in.GetRejoinedGeneration() <= c.job.rejoined()
}

// rejoined is the newest generation that a living process of the job has rejoined. One that has
// rejoined a later one is no stray, whatever an older journal says: the job went on with it.
func (j *job) rejoined() (newest uint64) {
	for _, p := range j.ranks {
		if p.state.GetAlive() {
			newest = max(newest, p.state.GetRejoinedGeneration())
		}
	}
	return newest
}

// endStray has a stray end, once for each stream of its agent. A node on which
// the job's own process has that rank is left to the operator: an order to end
// goes by rank.
func (dr *recoveryDriver) endStray(
	now time.Time,
	node falcon.Node,
	rank falcon.Rank,
	in *falconv1.RankState,
) {
	key := fmt.Sprintf("stray/%s/%d",
		processName(node, in), dr.cluster.attached[node].UnixNano())
	if dr.loggedOnce[key] || len(dr.loggedOnce) >= loggedOnceMax {
		return
	}
	dr.loggedOnce[key] = true
	own := nodeOfProcess(dr.state.job.Processes[rank]) == node
	what := "it is ordered to end"
	if own {
		what = "end it by hand"
	}
	dr.oplog.logf("rank", 2, string(node),
		"process %d on node %s claims rank %d for the launch of generation %d, and that rank is another's: %s",
		in.GetPid(), node, rank, in.GetGeneration(), what)
	if own {
		return
	}
	above := in.GetGeneration() + 1 // it parks in that to end: nothing else may be of it
	if above > dr.cluster.newestGeneration() {
		dr.learner.goAbove(now, node, above)
	}
	c := stopOlder(above, int32(rank))
	c.Id, c.DeadlineUnixNs = dr.batch.commandID(now), now.Add(commandLife).UnixNano()
	dr.batch.sendDurable(func() {
		dr.cluster.send([]outbox.Message{{
			Node:    node,
			Command: outbox.WithLife(c, dr.cfg.Now()),
		}})
	})
}

// takeForeignLaunch takes a process of a launch that the recovery in progress has not ordered, of a
// generation that the journal had at the start: it is older than that launch. The generation is not
// used again, and the process, which waits for an order to join that nobody gives, is ordered to end.
// What is claimed of later generations changes nothing: this engine has given them out itself.
func (dr *recoveryDriver) takeForeignLaunch(
	now time.Time,
	node falcon.Node,
	rank falcon.Rank,
	in *falconv1.RankState,
) {
	v := dr.cluster.recovering()
	g := in.GetGeneration()
	if g == 0 || g > dr.learner.found || v.Launched[rank] >= g {
		return
	}
	if in.GetAlive() &&
		in.GetPark().GetJoining() &&
		int(rank) < len(dr.state.job.Processes) {
		dr.endStray(now, node, rank, in)
	}
	if g == v.Generation && g == dr.cluster.newestGeneration() {
		dr.learner.goAbove(now, node, g)
	}
}
