package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/validate"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/mitigate"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// How long a description must hold still before it is believed. Ranks speak one
// by one, so that what is seen in between is a mixture.
const (
	layoutWait       = 5 * time.Second // the adapter may still declare a layout
	processesSettle  = 2 * time.Second // a restarted job shows up rank by rank
	microBatchSettle = 3 * time.Second // ranks report a new split at different moments
)

// describe tells the machines about the job once all its ranks are known, and
// again when something in it has changed. Other processes than before are
// another job epoch: iterations count anew and older orders are void.
func (e *Engine) describe(now time.Time) {
	e.job.dirty, e.recheck = false, false
	switch {
	case !e.stepped:
	case e.cluster.descriptionFrozen() && now.Sub(e.recJobAt) < tickPeriod: // thousands of ranks speak at once
		e.recheck = true
	default:
		e.stepRecoveryJob(now) // what the adapters say may be new
	}
	if e.cluster.descriptionFrozen() || !e.job.complete() {
		return
	}
	if v := e.cluster.unadopted(); v != nil && e.adopt(now, *v) {
		return
	}
	rec, wait, why := e.candidate()
	if !rec.equal(e.seen) {
		e.seen, e.seenAt = rec, now
	}
	if now.Sub(e.seenAt) < wait {
		e.recheck = true // the tick looks again
		return
	}
	if why != e.alarm {
		e.alarm = why
		if why != "" {
			e.oplog.logf("rank", 2, "%s", why)
		}
	}
	fresh := rec.Epoch != e.mem.job.Epoch
	if fresh {
		e.beginEpoch(now, rec)
	}
	e.reconcile(now)
	if rec.PlacementOrder != e.mem.job.PlacementOrder && rec.Epoch == e.mem.job.Epoch {
		return // it has just changed; the next look tells
	}
	e.commitJob(now, rec)
	if e.settleLaunch(now); fresh {
		e.overtaken(now)
	}
	if fresh || !e.laid {
		e.layTable()
	}
}

// beginEpoch forgets what was of the job epoch before.
func (e *Engine) beginEpoch(now time.Time, rec jobRecord) {
	e.intake.beginEpoch(falcon.NoIteration)
	e.told.forget(false)
	e.val.Step(now, validate.Stop{Why: "the job's processes or its layout changed"})
	e.oplog.logf("rank", 0, "job epoch %d: %d ranks, %s", rec.Epoch, rec.Layout.World(), rec.Layout)
}

// candidate is the job as its ranks describe it now, how long that must hold
// still, and what is doubtful about it.
func (e *Engine) candidate() (rec jobRecord, wait time.Duration, why string) {
	was := e.mem.job
	layout, why := e.job.layout()
	processes := e.job.processes()
	same := countSame(was.Processes, processes)
	if why != "" && same == len(processes) {
		layout, why = was.Layout, "" // what was declared once holds for these processes
	}
	rec = jobRecord{
		Epoch: was.Epoch, Processes: processes, Layout: layout,
		Placement: e.job.placement(), MicroBatches: e.job.microBatches(layout),
		PlacementOrder: was.PlacementOrder, PlacedIteration: was.PlacedIteration, Before: was.Before,
		Generation: e.job.generation(), Adapter: e.job.adapter(), Rejoined: was.Rejoined,
	}
	if was.Rejoined != 0 && same == len(processes) {
		rec.Generation = was.Generation // survivors and those made anew are of several launches
	}
	switch {
	case same != len(processes) || len(was.Processes) != same || layout != was.Layout:
		rec.Epoch++
		rec.PlacementOrder, rec.PlacedIteration, rec.Before, rec.Rejoined = e.job.order(), 0, nil, 0
		if same > 0 && same < len(processes) {
			wait = processesSettle
		}
		if why != "" {
			wait = max(wait, layoutWait)
		}
	case rec.MicroBatches == nil || e.orderOut() || e.cluster.unsettledRank() >= 0:
		rec.MicroBatches = was.MicroBatches // the commit says
	case was.MicroBatches != nil && !slices.Equal(rec.MicroBatches, was.MicroBatches):
		wait = microBatchSettle
	}
	return rec, wait, why
}

func countSame(a, b []string) int {
	n := 0
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			n++
		}
	}
	return n
}

// orderOut says that an order is on its way.
func (e *Engine) orderOut() bool { return len(e.orders.open) > 0 }

// commitJob makes a changed description durable and steps it.
func (e *Engine) commitJob(now time.Time, rec jobRecord) {
	e.holdJob(now, rec)
	e.stepJob(now, rec)
	e.intake.takeEarly(now)
}

// holdJob makes a changed description durable.
func (e *Engine) holdJob(now time.Time, rec jobRecord) {
	if !rec.equal(e.mem.job) {
		e.batch.add(e.written.jobRecord(now, rec))
		e.mem.setJob(rec)           // the record is folded in again when it is durable: the same value
		e.seen, e.seenAt = rec, now // ranks that still describe the job as it was have not done so for long
		e.job.remember(rec)
	}
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

// stepJob tells both machines.
func (e *Engine) stepJob(now time.Time, rec jobRecord) {
	e.stepped = true
	if !e.rejob { // else it hears of the action first
		e.stepDetectorJob(now, rec)
	}
	e.stepPlannerJob(now)
	e.stepRecoveryJob(now)
}

// stepDetectorJob keeps the communicators that were told last while some
// process has not told those of its new place.
func (e *Engine) stepDetectorJob(now time.Time, rec jobRecord) {
	keep := 0.0
	if rec.Rejoined != 0 && e.mem.baseline.JobEpoch+1 == rec.Epoch {
		keep = e.mem.baseline.Ms // the same job on as good devices: what was healthy before is so now
	}
	if e.job.complete() && (e.comms == nil || e.cluster.unsettledRank() < 0) {
		e.comms = e.job.comms(rec.Layout)
	}
	e.det.Step(now, detect.Job{
		Epoch: rec.Epoch, Layout: rec.Layout, Placement: rec.Placement, Comms: e.comms,
		MicroBatches: slices.Clone(rec.MicroBatches), Emulated: e.job.emulated,
	})
	if keep > 0 {
		e.det.Step(now, detect.Restored{Baseline: keep, NextID: e.mem.nextNo})
	}
}

// tellDetectorJob follows an action that has changed who holds a rank.
func (e *Engine) tellDetectorJob(now time.Time) {
	e.stepDetectorJob(now, e.mem.job)
	e.intake.takeAhead(now, e.stepped)
}

func (e *Engine) stepPlannerJob(now time.Time) {
	rec := e.mem.job
	e.means = e.cluster.launchMeans()
	in := mitigate.Job{
		Epoch: rec.Epoch, Layout: rec.Layout, MicroBatches: slices.Clone(rec.MicroBatches), GPUs: len(rec.Placement),
		Placement: slices.Clone(rec.Placement), Spares: e.means.spares, CanLaunch: e.means.launch, Adapter: rec.Adapter,
		Recovered: rec.Rejoined != 0, Generation: e.cluster.newestGeneration(),
	}
	e.job.declare(&in)
	e.plan.Step(now, in)
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
	for _, d := range c.mem.job.Placement {
		held[d.Node()]++
		most = max(most, held[d.Node()])
	}
	out := means{launch: len(held) > 0}
	for name, n := range held {
		out.launch = out.launch && c.launchSlots(name) >= n
	}
	for _, n := range c.nodes.Nodes() {
		if held[n.Name] == 0 && most > 0 && c.launchSlots(n.Name) >= most && !c.job.livesOn(n.Name) && !c.mem.fences.node(n.Name) {
			out.spares = append(out.spares, n.Name)
		}
	}
	return out
}

// meansPeriod is how often the agents are looked at for that.
const meansPeriod = time.Second

// tellMeans has the planner know when nodes come and go.
func (e *Engine) tellMeans(now time.Time) {
	if !e.stepped || now.Sub(e.meansAt) < meansPeriod {
		return
	}
	e.meansAt = now
	if !e.cluster.launchMeans().equal(e.means) {
		e.stepPlannerJob(now)
	}
	e.stepRecoveryJob(now)
}
