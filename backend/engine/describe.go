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
	if !e.job.complete() {
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
			e.tell("rank", 2, "%s", why)
		}
	}
	if rec.Epoch != e.mem.job.Epoch {
		e.pace, e.leads = newPace(), leads{}
		e.val.Step(now, validate.Stop{Why: "the job's processes or its layout changed"})
		e.tell("rank", 0, "job epoch %d: %d ranks, %s", rec.Epoch, rec.Layout.World(), rec.Layout)
	}
	e.commitJob(now, rec)
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
	}
	switch {
	case same != len(processes) || len(was.Processes) != same || layout != was.Layout:
		rec.Epoch++
		if same > 0 && same < len(processes) {
			wait = processesSettle
		}
		if why != "" {
			wait = max(wait, layoutWait)
		}
	case rec.MicroBatches == nil || e.orderOut():
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
