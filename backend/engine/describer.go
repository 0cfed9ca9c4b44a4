package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/journal"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery"
	"github.com/failslow/falcon/recovery/epoch"
)

// jobDescriber turns what the agents say of processes into one description of
// the job, makes it durable, and announces it to the machines where it is new.
type jobDescriber struct {
	*shared

	intake *sampleIntake

	machine epoch.Machine
	recheck bool // the description must not change for longer

	unbegun        uint64 // the newest epoch all of whose processes had ended before it was described
	outside        uint64 // the newest epoch that was begun by others than Falcon, with other processes
	described      bool   // the machines know the job
	detectorLater  bool   // the detector gets the job after the action that changed it
	processesLater bool   // the recovery machine has not been given its past
	comms          map[falcon.Rank][]falcon.Comm
	choicesAt      int          // job.choices that comms has
	noSpare        string       // the last spares, where all are gone; "" = one is left, or there was none
	means          means        // what the planner knows that it can restart with
	copiesFor      recovery.Job // what onlyCopies was found for
	onlyCopies     []falcon.Node
	meansAt        time.Time
	meansFrom      meansFrom // what they follow from, as it was then
	recoveryKnows  recovery.Job
	recoveryAt     time.Time // when that was compared with the present
}

// view is what is seen of the job now.
func (d *jobDescriber) view() epoch.View {
	v := epoch.View{
		Job:        d.state.job,
		Frozen:     d.cluster.descriptionFrozen(),
		Configured: d.configuredLayout(),
	}
	v.Ended = !v.Frozen && d.job.diedUndescribed()
	if v.Frozen || !d.job.complete() && !v.Ended {
		return v
	}
	if v.Configured == (falcon.Layout{}) && d.job.needsInference(v.Job) {
		v.Inferred, v.Unsure = d.job.inferredLayout()
	}
	v.Ranks = d.job.ranksView(d.job.world())
	v.Unsettled = len(d.orders.open()) > 0 || d.cluster.unsettledRank() >= 0
	if r := d.cluster.unadopted(); r != nil {
		v.Recovered = &epoch.Recovered{
			Generation: r.Generation,
			EndedNs:    r.EndedNs,
			Replaced:   d.cluster.replacedSince(v.Job.Epoch),
		}
	}
	return v
}

// configuredLayout is falcon.yaml's, the zero value where it names none.
func (d *jobDescriber) configuredLayout() falcon.Layout {
	if d.cfg.Mesh == (falcon.Mesh{}) {
		return falcon.Layout{}
	}
	return falcon.LayoutOf(d.cfg.Mesh)
}

// commit makes a changed description durable and steps it.
func (d *jobDescriber) commit(now time.Time, rec jobRecord) {
	if rec.Epoch != d.state.job.Epoch {
		if rec.FromOutside(d.state.job) {
			d.outside = rec.Epoch
		}
		if d.job.diedUndescribed() {
			d.unbegun = rec.Epoch
		}
	}
	d.record(now, rec)
	d.announce(now, rec)
	d.intake.takeEarly(now)
}

// record makes a changed description durable.
func (d *jobDescriber) record(now time.Time, rec jobRecord) {
	if !rec.Equal(d.state.job) {
		d.batch.apply(record(now, kindJob, jobDelta(d.state.job, rec)))
		d.machine.Committed(now, rec)
		d.job.remember(rec)
	}
}

// announce steps the machines with the job.
func (d *jobDescriber) announce(now time.Time, rec jobRecord) {
	d.described = true
	if !d.detectorLater { // else it gets the action first
		d.announceToDetector(now, rec)
	}
	d.announceToPlanner(now)
	d.announceToRecovery(now)
}

// noteSpares takes what the job can be restarted with, and says when the last spare has gone: a node
// that is lost then can't be replaced.
func (d *jobDescriber) noteSpares(now means) {
	was := d.means.spares
	d.means = now
	switch {
	case len(now.spares) > 0:
		d.noSpare = ""
	case len(was) > 0:
		d.noSpare = falcon.NodesText(was)
		d.oplog.logf("agent", 2, "", "no spare is left (%s): a node that is lost now can't be replaced",
			clean(d.noSpare))
	}
}

// announceToDetector keeps the communicators that were reported last while some
// process has not reported those of its new place.
func (d *jobDescriber) announceToDetector(now time.Time, rec jobRecord) {
	keep := 0.0
	if rec.Rejoined != 0 && d.state.baseline.JobEpoch+1 == rec.Epoch {
		keep = d.state.baseline.Ms // the same job on as good devices: what was healthy before is so now
	}
	if d.job.complete() && (d.comms == nil || d.cluster.unsettledRank() < 0) {
		d.comms, d.choicesAt = d.job.comms(rec.Layout), d.job.choices
	}
	d.det.Step(now, detect.Job{
		Epoch:        rec.Epoch,
		Layout:       rec.Layout,
		Placement:    rec.Placement,
		Comms:        d.comms,
		MicroBatches: slices.Clone(rec.MicroBatches),
		Emulated:     d.job.emulated,
		Outside:      d.outside == rec.Epoch,
	})
	if keep > 0 {
		d.det.Step(now, detect.Restored{
			Baseline: keep,
			NextID:   d.state.NextIncident,
		})
	}
}

// announceLateToDetector follows an action that has changed who holds a rank.
func (d *jobDescriber) announceLateToDetector(now time.Time) {
	d.announceToDetector(now, d.state.job)
	d.intake.takeAhead(now, d.described)
}

func (d *jobDescriber) announceToPlanner(now time.Time) {
	rec := d.state.job
	d.noteSpares(d.planMeans())
	in := mitigate.Job{
		Epoch:        rec.Epoch,
		Layout:       rec.Layout,
		Unknown:      cmp.Or(rec.Doubt(), d.job.contradiction(rec.Layout)),
		MicroBatches: slices.Clone(rec.MicroBatches),
		GPUs:         len(rec.Placement),
		Placement:    slices.Clone(rec.Placement),
		Spares:       d.means.spares,
		Barred:       d.means.barred,
		CanLaunch:    d.means.launch,
		Can:          rec.Can,
		Parks:        d.means.parks,
		OnlyCopies:   d.means.onlyCopies,
		RecoveryMs:   d.rec.PredictMs(),
		Recovered:    rec.Rejoined != 0,
		Generation:   d.cluster.newestGeneration(),
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
	from := meansFrom{d.job.changes, d.nodes.Changes(), d.batch.applied}
	if from == d.meansFrom {
		return
	}
	d.meansFrom = from
	d.refreshChoices(now)
	if !d.planMeans().equal(d.means) {
		d.announceToPlanner(now)
	}
	d.announceToRecovery(now)
}

// meansFrom counts the changes of all that means and the recovery's job follow from: processes,
// streams, and what the journal says.
type meansFrom struct{ processes, streams, records uint64 }

// meansPeriod is how often the agents are looked at for that.
const meansPeriod = time.Second

// announceToRecovery steps the recovery machine with the job, where it is new.
func (d *jobDescriber) announceToRecovery(now time.Time) {
	if d.state.job.Epoch == 0 {
		return
	}
	d.recoveryAt = now
	in := d.cluster.recoveryJob()
	in.Unbegun = in.Epoch == d.unbegun
	fresh := in.Epoch != d.recoveryKnows.Epoch ||
		!slices.Equal(in.Placement, d.recoveryKnows.Placement)
	if !fresh && sameRecoveryJob(in, d.recoveryKnows) {
		return
	}
	d.recoveryKnows = in
	d.rec.Step(now, in)
	if fresh && !d.processesLater {
		d.announceProcesses(now)
	}
}

// withoutProcesses has the recovery machine know the job and its own past before it hears of any
// process: else it would open a recovery without them.
func (d *jobDescriber) withoutProcesses(f func()) {
	d.processesLater = true
	f()
	d.processesLater = false
}

func (d *jobDescriber) announceProcesses(now time.Time) {
	for _, r := range sortedKeys(d.job.ranks) {
		d.announceProcess(now, d.job.ranks[r])
	}
}

// announceProcess steps the recovery machine with a process's state.
func (d *jobDescriber) announceProcess(now time.Time, p *process) {
	if p == nil || int(p.rank) >= d.state.job.Layout.World() {
		return
	}
	s, leaving := p.state, d.leaving()
	d.rec.Step(now, recovery.Process{
		Rank:       p.rank,
		Node:       p.node,
		Pid:        int(s.GetPid()),
		Generation: s.GetGeneration(),
		Alive:      s.GetAlive(),
		Normal:     falconv1.ExitedWell(s.GetExit()) || leaving,
		Finished:   falconv1.ExitedWell(s.GetExit()) && !leaving,
		Exit:       clean(s.GetExit()),
		Park:       d.parkFrom(s.GetPark()),
		Rejoined:   min(s.GetRejoinedGeneration(), d.cluster.newestGeneration()),
		Ending:     endingOf(s),
	})
}

// wordsBytesMost bounds what a process says of its end.
const wordsBytesMost = 256

// endingOf is how a process ended, with what it says of it made printable.
func endingOf(s *falconv1.RankState) falcon.Ending {
	e := convert.EndingOf(s)
	e.Said = cleanWithin(e.Said, wordsBytesMost)
	for _, text := range []*string{&e.Raised.Kind, &e.Raised.Where, &e.Raised.Text} {
		*text = cleanWithin(*text, wordsBytesMost)
	}
	return e
}

// place makes a placement the picture: processes, devices and the journal's
// record of both. It says false for one that does not fit the job.
func (d *jobDescriber) place(now time.Time, id uint64, iteration int64, perm []falcon.Rank) bool {
	rec := d.state.job
	if len(perm) != len(rec.Processes) ||
		len(perm) != len(rec.Placement) ||
		id <= rec.PlacementOrder {
		return false
	}
	rec.Before = rec.Placement
	rec.PlacedIteration = iteration
	rec.PlacementOrder = id
	rec.Processes = moved(rec.Processes, perm)
	rec.Placement = moved(rec.Placement, perm)
	d.job.applyPlacement(perm, id)
	d.detectorLater = true // the detector gets the action first
	d.record(now, rec)
	d.batch.addRecords(d.followSpeeds(now, perm)...)
	// one in progress follows it in the same write: after a start neither is known alone
	d.announceToRecovery(now)
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
