package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/validate"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// How long a description must hold still before it is believed. Ranks speak one
// by one, so that what is seen in between is a mixture.
const (
	layoutWait       = 5 * time.Second // the adapter may still declare a layout
	processesSettle  = 2 * time.Second // a restarted job shows up rank by rank
	microBatchSettle = 3 * time.Second // ranks report a new split at different moments
)

// describe announces the job to the machines once all its ranks are known, and
// again when something in it has changed. Other processes than before are
// another job epoch: iterations count from zero and older orders are void.
func (e *Engine) describe(now time.Time) {
	e.job.dirty, e.describer.recheck = false, false
	switch {
	case !e.describer.described:
	case e.cluster.descriptionFrozen() && now.Sub(e.describer.recoveryAt) < tickPeriod: // thousands of ranks speak at once
		e.describer.recheck = true
	default:
		e.describer.announceToRecovery(now) // what the adapters say may be new
	}
	if e.cluster.descriptionFrozen() || !e.job.complete() {
		return
	}
	if v := e.cluster.unadopted(); v != nil && e.adopt(now, *v) {
		return
	}
	rec, wait, why := e.describer.candidate()
	if !rec.equal(e.describer.seen) {
		e.describer.seen, e.describer.seenAt = rec, now
	}
	if now.Sub(e.describer.seenAt) < wait {
		e.describer.recheck = true // the tick looks again
		return
	}
	if why != e.describer.alarm {
		e.describer.alarm = why
		if why != "" {
			e.oplog.logf("rank", 2, "%s", why)
		}
	}
	fresh := rec.Epoch != e.state.job.Epoch
	if fresh {
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
	e.recoveries.forgetCommands(false)
	e.validations.machine.Step(now, validate.Stop{Why: "the job's processes or its layout changed"})
	e.oplog.logf("rank", 0, "job epoch %d: %d ranks, %s", rec.Epoch, rec.Layout.World(), rec.Layout)
}

// newest is the newest generation that the job is of: its launch's, or that of its
// newest rejoin.
func (r jobRecord) newest() uint64 { return max(r.Generation, r.Rejoined) }

func (r jobRecord) equal(o jobRecord) bool {
	return r.Epoch == o.Epoch && r.Layout == o.Layout && slices.Equal(r.Processes, o.Processes) &&
		slices.Equal(r.Placement, o.Placement) && slices.Equal(r.MicroBatches, o.MicroBatches) &&
		r.PlacementOrder == o.PlacementOrder && r.PlacedIteration == o.PlacedIteration && slices.Equal(r.Before, o.Before) &&
		r.Generation == o.Generation && r.Adapter == o.Adapter && r.Rejoined == o.Rejoined
}

// means are what a restart of the job can be carried out with.
type means struct {
	spares []falcon.Node
	launch bool
}

func (m means) equal(o means) bool { return m.launch == o.launch && slices.Equal(m.spares, o.spares) }

// launchMeans looks at the agents: a spare is here, can start as many processes as
// a node of the job holds, and holds none.
func (c *clusterView) launchMeans() means {
	held, most := map[falcon.Node]int{}, 0
	for _, d := range c.state.job.Placement {
		held[d.Node()]++
		most = max(most, held[d.Node()])
	}
	out := means{launch: len(held) > 0}
	for name, n := range held {
		out.launch = out.launch && c.launchSlots(name) >= n
	}
	for _, n := range c.nodes.Nodes() {
		if held[n.Name] == 0 && most > 0 && c.launchSlots(n.Name) >= most && !c.job.livesOn(n.Name) && !c.state.fences.nodeFenced(n.Name) {
			out.spares = append(out.spares, n.Name)
		}
	}
	return out
}
