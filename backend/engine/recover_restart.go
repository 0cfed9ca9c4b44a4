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

// digestRestart begins it; a restart that is going on already stays.
func (e *Engine) digestRestart(now time.Time, c recovery.Restart) {
	if e.mem.restart.going() || e.mem.restart.Launch != nil && e.mem.restart.Launch.Generation >= c.Generation {
		return // given again
	}
	home := slices.Clone(e.mem.job.Placement)
	for i, d := range home {
		if p := e.job.ranks[falcon.Rank(i)]; e.mem.fences.node(d.Node()) || p != nil && !p.state.GetAlive() {
			home[i] = "" // nobody waits for it
		}
	}
	rec := restartRecord{Home: home, Next: &falcon.Launch{Generation: c.Generation, Placement: slices.Clone(c.Placement), Resume: true}}
	if v := e.mem.current(); v != nil && v.Resume >= 0 {
		rec.Resume = v.Resume
	}
	e.stop(now, &rec, c.Generation, placementNodes(home))
	e.turnTo(now, rec, phaseLeaving)
	e.oplog.logf("recovery", 2, "the whole job is restarted from its newest checkpoint: %s", c.Reason)
}

// restartEnded tells the recovery machine how its restart has come out.
func (e *Engine) restartEnded(now time.Time, rec restartRecord) {
	l := rec.Next
	if l == nil {
		return
	}
	for _, n := range placementNodes(l.Placement) {
		e.rec.Step(now, recovery.Launched{Node: n, Generation: l.Generation, Failed: rec.Failed})
	}
}
