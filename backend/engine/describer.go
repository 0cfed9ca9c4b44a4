package engine

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery"
)

// jobDescriber turns what the agents say of processes into one description of
// the job, makes it durable, and announces it to the machines where it is new.
type jobDescriber struct {
	*shared

	intake *sampleIntake

	seen        jobRecord // newest candidate
	seenAt      time.Time // since when
	recheck     bool      // it must hold still for longer
	lastWritten written   // what the newest records say
	alarm       string    // what is doubtful about the description

	described     bool // the machines know the job
	detectorLater bool // the detector is to hear of the job after the action that changed it
	comms         map[falcon.Rank][]falcon.Comm
	means         means // what the planner knows that it can restart with
	meansAt       time.Time
	recoveryKnows recovery.Job
	recoveryAt    time.Time // when that was compared with the present
}

// candidate is the job as its ranks describe it now, how long that must hold
// still, and what is doubtful about it.
func (d *jobDescriber) candidate() (rec jobRecord, wait time.Duration, why string) {
	was := d.state.job
	layout, why := d.job.layout()
	processes := d.job.processes()
	same := countSame(was.Processes, processes)
	if why != "" && same == len(processes) {
		layout, why = was.Layout, "" // what was declared once holds for these processes
	}
	rec = jobRecord{
		Epoch: was.Epoch, Processes: processes, Layout: layout,
		Placement: d.job.placement(), MicroBatches: d.job.microBatches(layout),
		PlacementOrder: was.PlacementOrder, PlacedIteration: was.PlacedIteration, Before: was.Before,
		Generation: d.job.generation(), Adapter: d.job.adapter(), Rejoined: was.Rejoined,
	}
	if was.Rejoined != 0 && same == len(processes) {
		rec.Generation = was.Generation // survivors and replaced ranks are of several launches
	}
	switch {
	case same != len(processes) || len(was.Processes) != same || layout != was.Layout:
		rec.Epoch++
		rec.PlacementOrder, rec.PlacedIteration, rec.Before, rec.Rejoined = d.job.order(), 0, nil, 0
		if same > 0 && same < len(processes) {
			wait = processesSettle
		}
		if why != "" {
			wait = max(wait, layoutWait)
		}
	case rec.MicroBatches == nil || len(d.orders.open()) > 0 || d.cluster.unsettledRank() >= 0:
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

// commit makes a changed description durable and steps it.
func (d *jobDescriber) commit(now time.Time, rec jobRecord) {
	d.record(now, rec)
	d.announce(now, rec)
	d.intake.takeEarly(now)
}

// record makes a changed description durable.
func (d *jobDescriber) record(now time.Time, rec jobRecord) {
	if !rec.equal(d.state.job) {
		d.batch.apply(record(now, kindJob, jobDelta(d.state.job, rec)))
		d.seen, d.seenAt = rec, now // ranks that still describe the job as it was have not done so for long
		d.job.remember(rec)
	}
}

// announce steps the machines with the job.
func (d *jobDescriber) announce(now time.Time, rec jobRecord) {
	d.described = true
	if !d.detectorLater { // else it hears of the action first
		d.announceToDetector(now, rec)
	}
	d.announceToPlanner(now)
	d.announceToRecovery(now)
}

// announceToDetector keeps the communicators that were reported last while some
// process has not reported those of its new place.
func (d *jobDescriber) announceToDetector(now time.Time, rec jobRecord) {
	keep := 0.0
	if rec.Rejoined != 0 && d.state.baseline.JobEpoch+1 == rec.Epoch {
		keep = d.state.baseline.Ms // the same job on as good devices: what was healthy before is so now
	}
	if d.job.complete() && (d.comms == nil || d.cluster.unsettledRank() < 0) {
		d.comms = d.job.comms(rec.Layout)
	}
	d.det.Step(now, detect.Job{
		Epoch: rec.Epoch, Layout: rec.Layout, Placement: rec.Placement, Comms: d.comms,
		MicroBatches: slices.Clone(rec.MicroBatches), Emulated: d.job.emulated,
	})
	if keep > 0 {
		d.det.Step(now, detect.Restored{Baseline: keep, NextID: d.state.nextNo})
	}
}

// announceLateToDetector follows an action that has changed who holds a rank.
func (d *jobDescriber) announceLateToDetector(now time.Time) {
	d.announceToDetector(now, d.state.job)
	d.intake.takeAhead(now, d.described)
}

func (d *jobDescriber) announceToPlanner(now time.Time) {
	rec := d.state.job
	d.means = d.cluster.launchMeans()
	in := mitigate.Job{
		Epoch: rec.Epoch, Layout: rec.Layout, MicroBatches: slices.Clone(rec.MicroBatches), GPUs: len(rec.Placement),
		Placement: slices.Clone(rec.Placement), Spares: d.means.spares, CanLaunch: d.means.launch, Adapter: rec.Adapter,
		Recovered: rec.Rejoined != 0, Generation: d.cluster.newestGeneration(),
	}
	d.job.declare(&in)
	d.plan.Step(now, in)
}

// refreshMeans has the planner know when nodes come and go.
func (d *jobDescriber) refreshMeans(now time.Time) {
	if !d.described || now.Sub(d.meansAt) < meansPeriod {
		return
	}
	d.meansAt = now
	if !d.cluster.launchMeans().equal(d.means) {
		d.announceToPlanner(now)
	}
	d.announceToRecovery(now)
}

// meansPeriod is how often the agents are looked at for that.
const meansPeriod = time.Second

// announceToRecovery steps the recovery machine with the job, where it is new.
func (d *jobDescriber) announceToRecovery(now time.Time) {
	if d.state.job.Epoch == 0 {
		return
	}
	d.recoveryAt = now
	in := d.cluster.recoveryJob()
	fresh := in.Epoch != d.recoveryKnows.Epoch || !slices.Equal(in.Placement, d.recoveryKnows.Placement)
	if !fresh && sameRecoveryJob(in, d.recoveryKnows) {
		return
	}
	d.recoveryKnows = in
	d.rec.Step(now, in)
	if fresh {
		for _, r := range sortedKeys(d.job.ranks) {
			d.announceProcess(now, d.job.ranks[r])
		}
	}
}

// announceProcess steps the recovery machine with a process's state.
func (d *jobDescriber) announceProcess(now time.Time, p *process) {
	if p == nil || int(p.rank) >= d.state.job.Layout.World() {
		return
	}
	s, leaving := p.state, d.leaving()
	d.rec.Step(now, recovery.Process{
		Rank: p.rank, Node: p.node, Pid: int(s.GetPid()), Generation: s.GetGeneration(), Alive: s.GetAlive(),
		Normal: falconv1.ExitedWell(s.GetExit()) || leaving, Finished: falconv1.ExitedWell(s.GetExit()) && !leaving, Exit: clean(s.GetExit()), Park: d.parkFrom(s.GetPark()),
		Rejoined: min(s.GetRejoinedGeneration(), d.cluster.newestGeneration()),
	})
}

// place makes a placement the picture: processes, devices and the journal's
// record of both. It says false for one that does not fit the job.
func (d *jobDescriber) place(now time.Time, id uint64, iteration int64, perm []falcon.Rank) bool {
	rec := d.state.job
	if len(perm) != len(rec.Processes) || len(perm) != len(rec.Placement) || id <= rec.PlacementOrder {
		return false
	}
	rec.Before, rec.PlacedIteration, rec.PlacementOrder = rec.Placement, iteration, id
	rec.Processes, rec.Placement = moved(rec.Processes, perm), moved(rec.Placement, perm)
	d.job.applyPlacement(perm, id)
	d.detectorLater = true // the detector hears of the action first
	d.record(now, rec)
	d.batch.addRecords(d.followSpeeds(now, perm)...)
	return true
}

// followSpeeds has the journal's speeds follow a placement.
func (d *jobDescriber) followSpeeds(now time.Time, perm []falcon.Rank) []journal.Record {
	var out []journal.Record
	for _, id := range sortedKeys(d.state.speeds) {
		if v := d.state.speeds[id].afterPlacement(perm); v.SelfMs != nil {
			out = append(out, record(now, kindSpeeds, v))
		}
	}
	return out
}
