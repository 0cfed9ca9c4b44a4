package engine

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery"
)

// Where survivors can't be kept, a recovery hands the job over to a restart as
// of rung S4, but for the checkpoint: the processes are told to end, and once
// all have ended the nodes start others.

// begin begins it; a restart that is going on already stays.
func (rs *restartDriver) begin(now time.Time, c recovery.Restart) {
	if rs.state.restart.going() || rs.state.restart.Launch != nil && rs.state.restart.Launch.Generation >= c.Generation {
		return // given again
	}
	home := slices.Clone(rs.state.job.Placement)
	for i, d := range home {
		if p := rs.job.ranks[falcon.Rank(i)]; rs.state.fences.nodeFenced(d.Node()) || p != nil && !p.state.GetAlive() {
			home[i] = "" // nobody waits for it
		}
	}
	rec := restartRecord{Home: home, Next: &falcon.Launch{Generation: c.Generation, Placement: slices.Clone(c.Placement), Resume: true}}
	if v := rs.state.current(); v != nil && v.Resume >= 0 {
		rec.Resume = v.Resume
	}
	rs.stopOlder(now, &rec, c.Generation, placementNodes(home))
	rs.turnTo(now, rec, phaseLeaving)
	rs.oplog.logf("recovery", 2, "the whole job is restarted from its newest checkpoint: %s", c.Reason)
}

// tellRecovery tells the recovery machine how its restart has come out.
func (rs *restartDriver) tellRecovery(now time.Time, rec restartRecord) {
	l := rec.Next
	if l == nil {
		return
	}
	for _, n := range placementNodes(l.Placement) {
		rs.rec.Step(now, recovery.Launched{Node: n, Generation: l.Generation, Failed: rec.Failed})
	}
}
