package engine

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/recovery"
)

// A recovery comes before everything else: while one is in progress no test, no
// profile and no order begins, the description of the job does not change, and
// samples wait for the job epoch that it leads to.

// newsworthy is a Store that may end and come back by itself. News are lines for
// the operators that were not handed out before; it must not block.
type newsworthy interface {
	News() []string
}

// Bounds of recoveries.
const (
	recoveriesKept = 128                    // in memory; the journal keeps them all
	pacePeriod     = 500 * time.Millisecond // between two reports of an unchanged pace
)

// recoveryDriver carries out what the recovery machine wants, and feeds it with
// what nodes answer. Commands keep their ids over any restart of the engine.
type recoveryDriver struct {
	*shared

	arbiter *arbiter
	intake  *sampleIntake
	links   *linkWatch
	restart *restartDriver
	hangs   *hangWatch

	rejoinAcks  map[falcon.Rank]rejoinAck
	lastWritten written         // what the newest records say
	loggedOnce  map[string]bool // of whom it was logged that they are fenced
	back        comebacks
	paced       recovery.Pace // as the machine knows it
	pacedAt     time.Time

	tables    tableBook
	tableSent bool           // this start has brought the job's rank table to its nodes
	resend    []*nodeCommand // commands that are sent again in another form
}

// restore gives the machine back what the journal kept.
func (dr *recoveryDriver) restore(now time.Time) {
	dr.fenceStore(dr.state.fences.newest)
	for _, n := range sortedKeys(dr.state.fences.nodes) {
		dr.putStop(n)
	}
	dr.rec.Step(now, recovery.SetPolicy{Policy: dr.state.policy.Policy})
	ended := dr.state.ended.ranksOf(dr.state.job.Epoch)
	if len(dr.state.recoveries) > 0 ||
		dr.cluster.newestGeneration() > 0 ||
		len(dr.state.devices) > 0 ||
		len(ended) > 0 {
		dr.rec.Step(now, recovery.Restored{
			Recoveries: slices.Clone(dr.state.recoveries),
			NextID:     dr.state.NextRecovery,
			Generation: dr.cluster.newestGeneration(),
			Devices:    slices.Collect(maps.Values(dr.state.devices)),
			Ended:      ended,
		})
	}
}

func (c *clusterView) recoveryJob() recovery.Job {
	rec, m := c.state.job, c.launchMeans()
	in := recovery.Job{
		Epoch:      rec.Epoch,
		Layout:     rec.Layout,
		Placement:  slices.Clone(rec.Placement),
		Generation: rec.Newest(),
		Spares:     c.state.healthyFirst(m.spares),
		Barred:     m.barred,
		CanLaunch:  map[falcon.Node]bool{},
		Away:       c.awayNodes(),
		Domains:    c.cfg.Recovery.Racks,
		Parks:      (rec.Can.Park || len(c.job.ranks) >= len(rec.Placement)) && c.job.parks(),
		Splits:     slices.Clone(rec.MicroBatches),
		Checkpoint: falcon.NoIteration,
	}
	if rec.Doubt() != "" { // no rank's state is known to be another's
		in.Layout, in.Splits = falcon.Layout{TP: rec.Layout.World(), DP: 1, PP: 1}, nil
	}
	if v := c.unadopted(); v != nil { // its epoch is about to begin
		in.Placement = slices.Clone(v.Placement)
		in.Generation = v.Generation
	}
	for _, n := range c.nodes.Nodes() {
		if c.launchSlots(n.Name) > 0 && !c.state.fences.nodeFenced(n.Name) {
			in.CanLaunch[n.Name] = true
		}
	}
	c.addDeclaredState(&in)
	return in
}

// healthyFirst puts nodes that incidents have named behind the others: a slow node is
// better than none where one was lost.
func (m *journalState) healthyFirst(nodes []falcon.Node) []falcon.Node {
	named := map[falcon.Node]int{}
	for _, v := range m.incidents {
		for _, d := range v.Verdict.Devices {
			named[d.Node()] = 1
		}
	}
	slices.SortStableFunc(nodes, func(a, b falcon.Node) int {
		return named[a] - named[b]
	})
	return nodes
}

// awayNodes are those in use whose agents are not connected, but for those that
// had no launch command when they were last heard.
func (c *clusterView) awayNodes() map[falcon.Node]bool {
	out := map[falcon.Node]bool{}
	in := []falcon.Placement{c.state.job.Placement}
	if v := c.state.current(); v != nil {
		in = append(in, v.Placement) // a spare may hold ranks already
	}
	for _, p := range in {
		for _, name := range p.SortedNodes() {
			n := c.nodes.Node(name)
			if n == nil || !n.Connected() && n.Hello.GetLaunchRanks() > 0 {
				out[name] = true
			}
		}
	}
	return out
}

// addDeclaredState fills in what the adapters say of the job's state: the whole job
// has what its weakest rank has.
func (c *clusterView) addDeclaredState(in *recovery.Job) {
	least := int64(math.MaxInt64)
	for r := range in.Layout.World() {
		p := c.job.ranks[falcon.Rank(r)]
		if p == nil || !p.state.GetAlive() {
			continue // what the others say holds for it
		}
		s := p.state
		if s.GetZeroInstances() > 0 &&
			(in.ZeRO.Instances == 0 || int(s.GetZeroInstances()) < in.ZeRO.Instances) {
			in.ZeRO = falcon.ZeRO{
				Stage:     int(s.GetZeroStage()),
				Instances: int(s.GetZeroInstances()),
			}
		}
		in.StateMB = max(in.StateMB, float64(s.GetStateBytes())/1e6)
		if n := s.GetMicroMultiple(); n > 0 && n <= countMost {
			in.Unit = max(in.Unit, int(n))
		}
		if at := s.GetCheckpointIteration(); at > 0 {
			least = min(least, at-1)
		}
	}
	if least < iterationMost {
		in.Checkpoint = least
	}
}

func sameRecoveryJob(a, b recovery.Job) bool {
	return a.Layout == b.Layout &&
		a.Generation == b.Generation &&
		a.ZeRO == b.ZeRO &&
		a.StateMB == b.StateMB &&
		a.Unit == b.Unit &&
		a.Parks == b.Parks &&
		a.Checkpoint == b.Checkpoint &&
		slices.Equal(a.Placement, b.Placement) &&
		slices.Equal(a.Spares, b.Spares) &&
		slices.Equal(a.Barred, b.Barred) &&
		slices.Equal(a.Splits, b.Splits) &&
		maps.Equal(a.CanLaunch, b.CanLaunch) &&
		maps.Equal(a.Away, b.Away)
}

// leaving reports whether processes end on purpose: a restart is going on, it has come
// to nothing after they were ordered to leave, or ranks of which some have left already
// agree on one.
func (d *jobDescriber) leaving() bool {
	if d.state.restart.Active() || d.state.restart.ToldToLeave(d.state.job.Epoch) {
		return true
	}
	return slices.ContainsFunc(d.orders.votable(), func(o *order) bool {
		return o.Order.Leave &&
			o.Order.Epoch == d.state.job.Epoch &&
			o.vote.Taken() > 0
	})
}

// parkFrom reads where a process waits. A report about a generation that was never
// given out does not count.
func (d *jobDescriber) parkFrom(in *falconv1.Park) *recovery.Park {
	if in == nil ||
		in.GetGeneration() > d.cluster.newestGeneration() ||
		in.GetTag() < -1 ||
		in.GetTag() > iterationMost {
		return nil
	}
	out := &recovery.Park{
		Generation: in.GetGeneration(),
		Joining:    in.GetJoining(),
		Tag:        in.GetTag(),
	}
	out.Hold.Steps = [2]int64{falcon.NoIteration, falcon.NoIteration}
	for i, step := range in.GetSteps() {
		if i >= len(out.Hold.Steps) || i >= len(in.GetSums()) {
			break
		}
		if step >= 0 && step < iterationMost && !in.GetJoining() {
			out.Hold.Steps[i], out.Hold.Sums[i] = step, in.GetSums()[i]
		}
	}
	return out
}

// onBeat takes a node's sign of life and those of its processes.
func (dr *recoveryDriver) onBeat(n *fleet.Node, in *falconv1.Beat, now time.Time) {
	n.TakeBeat(in)
	dr.links.compareClock(n.Name, in.GetAtUnixNs(), dr.cfg.wallOffset())
	dr.rec.Step(now, recovery.Node{Node: n.Name, Alive: true})
	for _, b := range in.GetRanks()[:min(len(in.GetRanks()), gpusMax)] {
		p := dr.job.ranks[falcon.Rank(b.GetRank())]
		if p == nil ||
			p.node != n.Name ||
			p.state.GetPid() != b.GetPid() ||
			dr.state.fences.processFenced(p.name) {
			continue
		}
		wild := b.GetIteration() > iterationMost ||
			b.GetStepTag() < -1 ||
			b.GetStepTag() > iterationMost
		if wild || dr.intake.leads.tooFar(n.Name, b.GetIteration(), now) {
			continue
		}
		dr.intake.newestBegun = max(dr.intake.newestBegun, b.GetIteration())
		dr.intake.pulse.note(b.GetIteration(), dr.links.begun(n, b, dr.cluster.attached[n.Name]))
		dr.hangs.takeSign(now, p.rank, b)
		dr.rec.Step(now, recovery.Beat{
			Rank:         p.rank,
			Pid:          int(b.GetPid()),
			Iteration:    b.GetIteration(),
			Tag:          b.GetStepTag(),
			HookAgeMs:    finite(b.GetHookAgeMs(), msMost),
			Calls:        b.GetCalls(),
			WaitingMs:    finite(b.GetWaitingMs(), msMost),
			WaitingKnown: b.GetWaitingKnown(),
		})
	}
}

// onDeviceEvent takes a device's own report of a fault.
func (dr *recoveryDriver) onDeviceEvent(n *fleet.Node, in *falconv1.DeviceEvent, now time.Time) {
	device := deviceOn(n.Name, in.GetDevice())
	if nic, ok := nicOn(n.Name, in.GetDevice()); ok {
		device = falcon.Device(nic)
	}
	report := recovery.Device{
		Device: device,
		Fatal:  in.GetFatal(),
		Code:   int(in.GetCode()),
		Text:   clean(in.GetText()),
	}
	ok, again := dr.oplog.budgets.report(n.Name, report, now)
	if !ok {
		return
	}
	if again > 0 {
		dr.oplog.logf("fault", 1, string(device), "device %s has reported code %d %d times more since",
			device, report.Code, again)
	}
	if report.Fatal {
		dr.batch.addRecords(record(now, kindDevice, deviceRecord{
			Node:   n.Name,
			Device: device,
			Code:   report.Code,
			Text:   report.Text,
		}))
	}
	dr.rec.Step(now, report)
}

// reportProgress has the machine know how fast the job goes, and whether it is held.
func (dr *recoveryDriver) reportProgress(now time.Time) {
	steady := dr.det.Steady()
	in := recovery.Pace{
		Iteration: dr.intake.newestBegun,
		Ms:        finite(max(steady.CurrentMs, steady.BaselineMs), msMost),
		Held:      dr.arbiter.present(now).mayStandStill(),
	}
	if in.Iteration == dr.paced.Iteration &&
		in.Held == dr.paced.Held &&
		now.Sub(dr.pacedAt) < pacePeriod {
		return
	}
	dr.paced, dr.pacedAt = in, now
	dr.rec.Step(now, in)
}

// digestRecovery persists what the machine wants persisted and prepares what it
// wants carried out.
func (e *Engine) digestRecovery(now time.Time, v recovery.Ready, r *decidedRound) {
	for _, x := range v.Recoveries {
		was, _ := e.state.recovery(x.ID)
		e.batch.addRecords(e.recoveries.lastWritten.recoveryRecord(now, e.state.job, x))
		begins := x.State == falcon.RecoverySuspend &&
			(was.State != x.State || was.Generation != x.Generation)
		if begins {
			r.steps = append(r.steps, func() {
				e.delivery.makeWay(now, x.ID)
			})
		}
		if x.State.Over() && !was.State.Over() {
			r.steps = append(r.steps, func() { e.recovered(now, x) })
		}
	}
	if len(v.Ended) > 0 {
		e.batch.addRecords(record(now, kindEnded, endedRecord{
			JobEpoch: e.describer.recoveryKnows.Epoch,
			Ranks:    v.Ended,
		}))
	}
	for _, n := range v.Notes {
		e.oplog.logf(n.Kind, int32(n.Severity), n.About, "%s", n.Text)
	}
	whole := slices.ContainsFunc(v.Commands, func(c recovery.Command) bool {
		_, is := c.(recovery.Restart)
		return is
	})
	for _, c := range v.Commands {
		if f, is := c.(recovery.Fence); is && whole {
			f.Ranks = nil // they are waited for: nothing starts before they have ended
			c = f
		}
		e.recoveries.prepare(now, c, r)
	}
}

// recovered lets the job go on as something that others look at again.
func (e *Engine) recovered(now time.Time, v falcon.Recovery) {
	e.recoveries.forgetCommands(v.Generation, v.State != falcon.RecoveryResumed)
	e.job.dirty = true
	e.describe(now)
	e.delivery.resume(now)
	e.fencer.follow(now)
}

// adopt begins the job epoch that a recovery has led to.
func (e *Engine) adopt(now time.Time, rec jobRecord) {
	v := e.cluster.unadopted()
	e.intake.beginEpoch(v.Resume - 1)
	e.describer.commit(now, rec)
	e.oplog.logf("recovery", 0, "", "job epoch %d: %d ranks go on from iteration %d as generation %d",
		rec.Epoch, len(rec.Processes), v.Resume, v.Generation)
	e.fencer.follow(now)
}

// replacedSince are the ranks that recoveries of a job epoch have replaced: one may
// begin before the epoch that another has led to.
func (c *clusterView) replacedSince(epoch uint64) map[falcon.Rank]bool {
	out := map[falcon.Rank]bool{}
	for i := range c.state.recoveries {
		if v := &c.state.recoveries[i]; v.JobEpoch == epoch {
			for r := range v.Replaced {
				out[r] = true
			}
		}
	}
	return out
}
