package engine

import (
	"math"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/validate"
	"github.com/failslow/falcon/recovery/epoch"
)

// describe announces the job to the machines once all its ranks are known, and
// again when something in it has changed. Other processes than before are
// another job epoch: iterations count from zero and older orders are void.
func (e *Engine) describe(now time.Time) {
	e.job.dirty, e.describer.recheck = false, false
	switch {
	case !e.describer.described:
	case e.cluster.descriptionFrozen() && now.Sub(e.describer.recoveryAt) < tickPeriod:
		// thousands of ranks report at once
		e.describer.recheck = true
	default:
		e.describer.announceToRecovery(now) // what the adapters say may be new
	}
	d := e.describer.machine.Step(now, e.describer.view())
	switch d.Kind {
	case epoch.Nothing:
		return
	case epoch.Wait:
		e.describer.recheck = true // the tick looks again
		return
	case epoch.BeginAfter:
		e.adopt(now, d.Job)
		return
	}
	if d.Doubt != "" {
		e.oplog.logf("rank", 2, "", "%s", d.Doubt)
	}
	rec := d.Job
	fresh := d.Kind == epoch.Begin
	if fresh {
		e.job.outlived = 0
		e.beginEpoch(now, rec)
	}
	e.delivery.reconcile(now)
	if rec.PlacementOrder != e.state.job.PlacementOrder && rec.Epoch == e.state.job.Epoch {
		return // it has just changed: looked at again in the next turn
	}
	e.describer.commit(now, rec)
	e.restart.describe(now, fresh)
	if fresh || !e.recoveries.tableSent {
		e.recoveries.distributeTable()
	}
}

// beginEpoch forgets what was of the job epoch before.
func (e *Engine) beginEpoch(now time.Time, rec jobRecord) {
	e.intake.beginEpoch(falcon.NoIteration)
	e.recoveries.forgetCommands(math.MaxUint64, false)
	e.validations.machine.Step(now, validate.Stop{Why: "the job's processes or its layout changed"})
	e.oplog.logf("rank", 0, "", "job epoch %d: %d ranks, %s",
		rec.Epoch, rec.Layout.World(), rec.Layout)
}

// means are what a restart of the job can be carried out with.
type means struct {
	spares []falcon.Node
	barred []string // why nodes that could be spares are not, one clause each
	launch bool

	parks      bool          // one node alone can be replaced
	onlyCopies []falcon.Node // but for these
}

func (m means) equal(o means) bool {
	return m.launch == o.launch &&
		m.parks == o.parks &&
		slices.Equal(m.spares, o.spares) &&
		slices.Equal(m.barred, o.barred) &&
		slices.Equal(m.onlyCopies, o.onlyCopies)
}

// planMeans are the means for the planner. They are looked at every second: who alone holds a shard
// is found again only where the placement has changed.
func (d *jobDescriber) planMeans() means {
	out := d.cluster.launchMeans()
	job := d.cluster.recoveryJob()
	k := &d.copiesFor
	if job.Layout != k.Layout ||
		job.ZeRO != k.ZeRO ||
		!slices.Equal(job.Placement, k.Placement) {
		d.copiesFor, d.onlyCopies = job, onlyCopies(job)
	}
	out.parks, out.onlyCopies = job.Parks, d.onlyCopies
	return out
}

// launchMeans looks at the agents: a spare is here, can start as many processes as
// a node of the job holds, and holds none.
func (c *clusterView) launchMeans() means {
	held := map[falcon.Node]int{}
	most := 0
	for _, d := range c.state.job.Placement {
		held[d.Node()]++
		most = max(most, held[d.Node()])
	}
	out := means{launch: len(held) > 0}
	for name, n := range held {
		out.launch = out.launch && c.launchSlots(name) >= n
	}
	for _, n := range c.nodes.Nodes() {
		if held[n.Name] == 0 &&
			most > 0 &&
			c.launchSlots(n.Name) >= most &&
			!c.job.livesOn(n.Name) &&
			!c.state.fences.nodeFenced(n.Name) {
			if why := c.barredSpare(n.Name); why != "" {
				out.barred = append(out.barred, why)
				continue
			}
			out.spares = append(out.spares, n.Name)
		}
	}
	return out
}
