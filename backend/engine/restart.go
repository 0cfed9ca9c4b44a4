package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/outbox"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/recovery"
	"github.com/failslow/falcon/recovery/restart"
)

// reportWait is within what time an agent that is back describes its processes.
const reportWait = 3 * time.Second

// launchEndedRecord is a rank of a launch that has ended with success before the
// launch was the job: some nodes were not heard meanwhile. An engine that starts
// after it must not take the launch for one that never came up.
type launchEndedRecord struct {
	Generation uint64      `json:"generation"`
	Rank       falcon.Rank `json:"rank"`
}

// restartDriver feeds the restart machine, and carries out what it wants.
type restartDriver struct {
	*shared

	describer  *jobDescriber
	views      *stateViews
	beginEpoch func(now time.Time, rec jobRecord)
	machine    *restart.Machine
}

// stepWith gives the machine an input, and carries out what follows.
func (rs *restartDriver) stepWith(now time.Time, in restart.Input) {
	rs.machine.Step(now, in)
	rs.carryOut(now)
}

// adopt has the machine go on from the journal's state, before it has done anything.
func (rs *restartDriver) adopt(s restart.State) {
	rs.machine = restart.New(rs.cfg.Restart, s, rs.world, func() uint64 {
		return rs.batch.commandID(rs.cfg.Now())
	})
}

func (rs *restartDriver) tick(now time.Time) {
	rs.machine.Tick(now)
	rs.carryOut(now)
}

// restore gives the planner back what it may not have been sent.
func (rs *restartDriver) restore(now time.Time) {
	if l := rs.state.restart.Launch; l != nil {
		rs.job.floor = max(rs.job.floor, l.Generation)
	}
	rs.putStops()
	rs.putLaunches()
	rs.machine.Restored(now)
	rs.carryOut(now)
}

// carryOut does what the machine wants. That is not its own any more by then: some of it leads
// to further inputs.
func (rs *restartDriver) carryOut(now time.Time) {
	e := rs.machine.Ready()
	rs.machine.Advance()
	if e.Changed {
		rs.batch.apply(record(now, kindRestart, rs.machine.State()))
		rs.views.dirty = true
		rs.removeOld()
	}
	if e.Ended != nil {
		rs.batch.apply(record(now, kindLaunchEnded, launchEndedRecord{
			Generation: e.Ended.Generation,
			Rank:       e.Ended.Rank,
		}))
	}
	for _, n := range e.Notes {
		rs.oplog.logf(n.Kind, n.Severity, "", "%s", n.Text)
	}
	if e.RanToEnd {
		rs.ranToEnd(now)
	}
	if e.Left != nil {
		rs.plan.Step(now, mitigate.Left{Order: e.Left.Order, Reason: e.Left.Reason})
	}
	if e.Launched != nil {
		rs.launched(now, *e.Launched)
	}
	if e.Stops {
		rs.batch.sendDurable(func() {
			rs.putStops()
			rs.sendAll(stopCommand)
		})
	}
	if e.Launches {
		rs.batch.sendDurable(func() {
			rs.job.floor = max(rs.job.floor, rs.state.restart.Launch.Generation)
			rs.job.forgetEnded() // what has ended makes room for what comes
			rs.putLaunches()
			rs.sendAll(launchCommand)
		})
	}
}

// launched hands the outcome of a launch to the machine that planned it.
func (rs *restartDriver) launched(now time.Time, l restart.Launched) {
	if !l.Recovery {
		rs.plan.Step(now, mitigate.Launched{
			Generation: l.Generation,
			Failed:     l.Failed,
		})
		return
	}
	for _, n := range l.Placement.SortedNodes() {
		rs.rec.Step(now, recovery.Launched{
			Node:       n,
			Generation: l.Generation,
			Failed:     l.Failed,
		})
	}
}

// ranToEnd makes a launch the job that has finished since. Its processes may not
// all have been seen: they are known by the launch then.
func (rs *restartDriver) ranToEnd(now time.Time) {
	s := rs.machine.State()
	rec := rs.cluster.unseenLaunch(*s.Launch)
	n := len(s.Launch.Placement)
	if len(rs.job.ranks) == n && rs.job.world() == n {
		v := rs.describer.view()
		v.Ranks = rs.job.ranksView(rs.job.world())
		rec = v.Candidate()
	}
	rs.beginEpoch(now, rec) // the job was another one before
	rs.describer.commit(now, rec)
	rs.batch.addRecords(record(now, kindEnded, endedRecord{
		JobEpoch: rec.Epoch,
		Ranks:    slices.Clone(s.Ended),
	}))
}

// processesLeave begins the wait for the processes' end after their checkpoint.
func (rs *restartDriver) processesLeave(now time.Time, o *order, resume int64) {
	rs.stepWith(now, restart.Checkpointed{
		Order:  o.Order.ID,
		Epoch:  o.Order.Epoch,
		Resume: resume,
		Home:   slices.Clone(rs.state.job.Placement),
	})
}

// demanded begins a restart for a recovery that can keep no survivor.
func (rs *restartDriver) demanded(now time.Time, c recovery.Restart) {
	home := slices.Clone(rs.state.job.Placement)
	for i, d := range home {
		p := rs.job.ranks[falcon.Rank(i)]
		if rs.state.fences.nodeFenced(d.Node()) || p != nil && !p.state.GetAlive() {
			home[i] = "" // not waited for
		}
	}
	in := restart.Demanded{
		Launch: falcon.Launch{
			Generation: c.Generation,
			Placement:  slices.Clone(c.Placement),
			Resume:     true,
		},
		Home:   home,
		Reason: c.Reason,
	}
	if v := rs.state.current(); v != nil && v.Resume >= 0 {
		in.Resume = v.Resume
	}
	rs.stepWith(now, in)
}

// noteEnded makes the end of a launched rank durable.
func (rs *restartDriver) noteEnded(now time.Time, p *process) {
	if !p.state.GetAlive() && falconv1.ExitedWell(p.state.GetExit()) {
		rs.stepWith(now, restart.Ended{
			Generation: p.state.GetGeneration(),
			Rank:       p.rank,
		})
	}
}

// describe ends the restart once its launch is the job, and where another job is.
func (rs *restartDriver) describe(now time.Time, fresh bool) {
	if rs.job.complete() {
		rec := rs.state.job
		rs.stepWith(now, restart.Described{
			Epoch:      rec.Epoch,
			Generation: rec.Generation,
			Ranks:      len(rec.Processes),
		})
	}
	if fresh {
		rs.stepWith(now, restart.Superseded{})
	}
}

// onAnswer takes a node's answer.
func (rs *restartDriver) onAnswer(
	now time.Time,
	it *outbox.Item,
	node falcon.Node,
	in *falconv1.CommandResult,
) {
	switch in.GetStatus() {
	case falconv1.CommandStatus_COMMAND_STATUS_DONE:
		it.Close(node)
	case falconv1.CommandStatus_COMMAND_STATUS_REFUSED, falconv1.CommandStatus_COMMAND_STATUS_EXPIRED:
		rs.stepWith(now, restart.Refused{
			NodeCommand: it.About.(restart.NodeCommand),
			Reason:      cmp.Or(clean(in.GetDetail()), noReason),
		})
	}
}

// noReason takes the place of a refusal's reason where there is none.
const noReason = "no reason was given"

// putStops puts the restart's stop commands into the outbox. Their lives begin with
// every sending.
func (rs *restartDriver) putStops() {
	if s := rs.machine.State().Stop; s != nil {
		rs.putAll(s.Commands, outbox.Item{
			Class: stopCommand,
			Life:  rs.cfg.Restart.LeaveLimit(),
			Renew: true,
			Body:  func(falcon.Node) *falconv1.Command { return stopOlder(s.Generation) },
		})
	}
}

// putLaunches puts its launch commands there.
func (rs *restartDriver) putLaunches() {
	s := rs.machine.State()
	rs.putAll(s.Commands, outbox.Item{
		Class:    launchCommand,
		Deadline: time.Unix(0, s.Deadline),
		Body: func(n falcon.Node) *falconv1.Command {
			return launchCommandOf(*s.Launch, n)
		},
	})
}

func (rs *restartDriver) putAll(list []restart.NodeCommand, v outbox.Item) {
	for _, c := range list {
		v.To = []outbox.To{{Node: c.Node, ID: c.Command}}
		v.About = c
		rs.outbox.Put(v)
	}
}

// removeOld removes commands that are no longer the restart's.
func (rs *restartDriver) removeOld() {
	s := rs.machine.State()
	known := map[restart.NodeCommand]bool{}
	for _, c := range s.Commands {
		known[c] = true
	}
	if s.Stop != nil {
		for _, c := range s.Stop.Commands {
			known[c] = true
		}
	}
	rs.outbox.Remove(func(it *outbox.Item) bool {
		c, is := it.About.(restart.NodeCommand)
		return is && !known[c]
	})
}

// sendAll sends the commands of a class, where the restart still wants them.
func (rs *restartDriver) sendAll(c outbox.Class) {
	for _, it := range rs.outbox.Items(c) {
		if rs.cluster.restartWants(c) {
			rs.cluster.send(it.SendAll(rs.cfg.Now()))
		}
	}
}

// restartWants reports whether a restart's commands of a class are still sent.
func (c *clusterView) restartWants(class outbox.Class) bool {
	return class == stopCommand && c.state.restart.Active() ||
		class == launchCommand && c.state.restart.Phase == restart.Launching
}

// stopOlder has a node end the ranks, or all where none is named, that it runs of
// generations before this one.
func stopOlder(generation uint64, ranks ...int32) *falconv1.Command {
	return &falconv1.Command{
		Body: &falconv1.Command_Stop{Stop: &falconv1.StopCommand{Generation: generation, Ranks: ranks}},
	}
}

func launchCommandOf(launch falcon.Launch, n falcon.Node) *falconv1.Command {
	l := &falconv1.LaunchCommand{
		Generation: launch.Generation,
		World:      int32(len(launch.Placement)),
		Resume:     launch.Resume,
	}
	for rank, d := range launch.Placement {
		addLaunch(l, n, falcon.Rank(rank), d)
	}
	return &falconv1.Command{Body: &falconv1.Command_Launch{Launch: l}}
}

// addLaunch adds a rank to a node's launch, where it is placed there.
func addLaunch(l *falconv1.LaunchCommand, n falcon.Node, r falcon.Rank, d falcon.Device) {
	if d.Node() == n {
		l.Ranks = append(l.Ranks, &falconv1.RankLaunch{
			Rank:      int32(r),
			LocalRank: int32(d.Index()),
			Device:    string(d),
		})
	}
}

func (rs *restartDriver) world(now time.Time) restart.World {
	return restartWorld{rs.cluster, rs.rec, rs.outbox, now}
}

// restartWorld is the cluster as the restart machine asks about it.
type restartWorld struct {
	cluster *clusterView
	rec     Recoverer
	outbox  *outbox.Box
	now     time.Time
}

func (w restartWorld) Running(home falcon.Placement) string {
	r, running := w.cluster.stillRunning(w.now, home)
	if !running {
		return ""
	}
	return w.cluster.rankText(r)
}

func (w restartWorld) Lost(l falcon.Launch) string {
	r, lost := w.cluster.launchLost(w.now, l)
	if lost == nil {
		return ""
	}
	return w.cluster.rankText(r) + " has ended" + exitText(lost.state.GetExit())
}

func (w restartWorld) Missing(l falcon.Launch) string {
	return w.cluster.launchText(l)
}

func (w restartWorld) Alive() int {
	return w.cluster.job.alive
}

func (w restartWorld) Hears() bool {
	return w.rec.Hears(w.now)
}

func (w restartWorld) Fenced(n falcon.Node) bool {
	return w.cluster.state.fences.nodeFenced(n)
}

func (w restartWorld) Done(c restart.NodeCommand) bool {
	it := w.outbox.Find(c.Node, c.Command)
	return it != nil && it.Answered(c.Node)
}

// launchLost finds a rank of a launch that has ended, and not well; nil for none.
func (c *clusterView) launchLost(now time.Time, l falcon.Launch) (falcon.Rank, *process) {
	for i := range l.Placement {
		p := c.job.ranks[falcon.Rank(i)]
		if p == nil ||
			p.state.GetAlive() ||
			p.state.GetGeneration() != l.Generation ||
			falconv1.ExitedWell(p.state.GetExit()) {
			continue
		}
		if p.state.GetExit() != "" || now.Sub(p.endedAt) >= exitWait {
			return p.rank, p
		}
	}
	return 0, nil
}

// launchText names the first rank that a launch waits for.
func (c *clusterView) launchText(l falcon.Launch) string {
	for i, d := range l.Placement {
		p := c.job.ranks[falcon.Rank(i)]
		if p == nil ||
			!p.state.GetAlive() ||
			p.state.GetGeneration() != l.Generation {
			return fmt.Sprintf("launch %d waits for rank %d on %s", l.Generation, i, d.Node())
		}
	}
	return fmt.Sprintf("launch %d waits for the ranks to report their layout", l.Generation)
}

// unseenLaunch is the job that a launch has started, without its processes.
func (c *clusterView) unseenLaunch(l falcon.Launch) jobRecord {
	was := c.state.job
	return jobRecord{
		Epoch:      was.Epoch + 1,
		Processes:  make([]string, len(l.Placement)),
		Layout:     was.Layout,
		Placement:  slices.Clone(l.Placement),
		Generation: l.Generation,
		Can:        was.Can,
	}
}
