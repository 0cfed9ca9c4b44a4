package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/mitigate"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// describe tells the machines about the job once all its ranks are known, and
// again when something in it has changed. Other processes than before are
// another job epoch: iterations count anew and older orders are void.
func (e *Engine) describe(now time.Time) {
	e.job.dirty = false
	if !e.job.complete() {
		return
	}
	processes := e.job.processes()
	if e.stillChanging(processes, now) {
		return
	}
	layout, why := e.job.layout()
	if why != e.alarm {
		e.alarm = why
		if why != "" {
			e.tell("rank", 2, "%s", why)
		}
	}
	rec := jobRecord{
		Epoch: e.mem.job.Epoch, Processes: processes, Layout: layout,
		Placement: e.job.placement(), MicroBatches: e.job.microBatches(layout),
	}
	switch {
	case rec.Epoch == 0 || !slices.Equal(rec.Processes, e.mem.job.Processes) || rec.Layout != e.mem.job.Layout:
		rec.Epoch++
		e.pace = newPace()
		e.tell("rank", 0, "job epoch %d: %d ranks, %s", rec.Epoch, layout.World(), layout)
	case rec.MicroBatches == nil || e.orderOut():
		rec.MicroBatches = e.mem.job.MicroBatches // ranks change at different moments; the commit says
	}
	e.commitJob(now, rec)
}

// processesSettle is how long a job may take to replace its processes one by
// one before the mixture counts as a job epoch of its own.
const processesSettle = 2 * time.Second

// stillChanging waits while some ranks have new processes and others don't: a
// restarted job shows up rank by rank. The tick looks again.
func (e *Engine) stillChanging(now []string, at time.Time) bool {
	was, same, changed := e.mem.job.Processes, 0, 0
	for r := range min(len(was), len(now)) {
		if was[r] == now[r] {
			same++
		} else {
			changed++
		}
	}
	if same == 0 || changed == 0 {
		e.changing = time.Time{}
		return false
	}
	if changed != e.changed || e.changing.IsZero() {
		e.changing, e.changed = at, changed
	}
	if at.Sub(e.changing) < processesSettle {
		return true
	}
	e.changing = time.Time{}
	return false
}

// orderOut says that an order is on its way.
func (e *Engine) orderOut() bool { return len(e.orders.open) > 0 }

// commitJob makes a changed description durable and steps it.
func (e *Engine) commitJob(now time.Time, rec jobRecord) {
	if !rec.equal(e.mem.job) {
		e.extra = append(e.extra, record(now, kindJob, rec))
		e.mem.job = rec // the record is folded in again when it is durable: the same value
	}
	var comms map[falcon.Rank][]falcon.Comm
	if e.job.complete() {
		comms = e.job.comms(rec.Layout)
	}
	e.stepJob(now, rec, comms)
	if early := e.early; len(early) > 0 {
		e.early = nil
		e.feed(early, now)
	}
}

func (r jobRecord) equal(o jobRecord) bool {
	return r.Epoch == o.Epoch && r.Layout == o.Layout && slices.Equal(r.Processes, o.Processes) &&
		slices.Equal(r.Placement, o.Placement) && slices.Equal(r.MicroBatches, o.MicroBatches)
}

func (e *Engine) stepJob(now time.Time, rec jobRecord, comms map[falcon.Rank][]falcon.Comm) {
	e.stepped = true
	e.det.Step(now, detect.Job{
		Epoch: rec.Epoch, Layout: rec.Layout, Placement: rec.Placement, Comms: comms,
		MicroBatches: slices.Clone(rec.MicroBatches), Emulated: e.job.emulated,
	})
	e.plan.Step(now, mitigate.Job{
		Epoch: rec.Epoch, Layout: rec.Layout, MicroBatches: slices.Clone(rec.MicroBatches), GPUs: len(rec.Placement),
	})
}
