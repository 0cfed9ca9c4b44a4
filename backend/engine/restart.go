package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/mitigate"
)

// A restart (rung S4) goes through these phases; each is durable before
// anything is sent for it, so that a console that dies goes on where it was.
const (
	phaseLeaving   = "leaving"   // the checkpoint is written; the processes are to end
	phaseLeft      = "left"      // all have ended; the planner is to say what is launched
	phaseLaunching = "launching" // nodes were told to start processes
	phaseClearing  = "clearing"  // the launch has failed; what it started is to end
	phaseOver      = "over"
)

// Bounds of the phases, where Config.Restart names none.
const (
	LeaveWait  = 2 * time.Minute  // from the checkpoint's outcome to the last process's end
	LaunchWait = 10 * time.Minute // from the launch to all ranks of the new job epoch
	LeftWait   = 5 * time.Minute  // for a plan, before the job counts as ended
	retellWait = 3 * time.Second  // an agent that is back tells its processes within
)

// Restart bounds the phases of a restart; zero values mean the defaults.
type Restart struct {
	LeaveWait  time.Duration `yaml:"leave"`  // LeaveWait
	LaunchWait time.Duration `yaml:"launch"` // LaunchWait
}

// restartRecord is how far a restart has come.
type restartRecord struct {
	Phase    string           `json:"phase"`
	Order    uint64           `json:"order,omitempty"` // the checkpoint, 0 = none
	Resume   int64            `json:"resume_iteration,omitempty"`
	SinceNs  int64            `json:"since_unix_ns"` // of the phase
	Launch   *falcon.Launch   `json:"launch,omitempty"`
	Commands []nodeLaunch     `json:"commands,omitempty"`
	Deadline int64            `json:"deadline_unix_ns,omitempty"`
	Failed   string           `json:"failed,omitempty"`
	Home     falcon.Placement `json:"home,omitempty"`  // where the processes ran that leave; "" = nobody waits for it
	Next     *falcon.Launch   `json:"next,omitempty"`  // what a recovery has planned for when they have ended
	Ended    []falcon.Rank    `json:"ended,omitempty"` // ranks of the launch that have ended with success, ascending
	Stop     *stopRecord      `json:"stop,omitempty"`  // what has the processes of before end; nil = they end by themselves
}

// stopRecord has nodes end what runs there of generations before this one.
type stopRecord struct {
	Generation uint64       `json:"generation"`
	Commands   []nodeLaunch `json:"commands"`
}

// nodeLaunch is the command that one node gets.
type nodeLaunch struct {
	Node    falcon.Node `json:"node"`
	Command uint64      `json:"command"`
}

func (r restartRecord) going() bool { return r.Phase != "" && r.Phase != phaseOver }

func (m *journalState) setRestart(v restartRecord) { m.restart = v }

// restartDriver carries a restart of the whole job through its phases.
type restartDriver struct {
	*shared

	describer *jobDescriber
	views     *stateViews

	beginEpoch       func(now time.Time, rec jobRecord)
	relaunch         *falcon.Launch  // that a recovery's restart has come to
	answeredCommands map[uint64]bool // commands that were carried out
}

// turnTo makes a phase the present one, in the batch that holds what it leads to.
func (rs *restartDriver) turnTo(now time.Time, rec restartRecord, phase string) {
	rec.Phase, rec.SinceNs = phase, now.UnixNano()
	rs.batch.apply(record(now, kindRestart, rec))
	rs.views.dirty = true
}

// processesLeave begins to wait for the processes' end after their checkpoint.
func (rs *restartDriver) processesLeave(now time.Time, o *order, resume int64) {
	rs.turnTo(now, restartRecord{Order: o.Order.ID, Resume: resume, Home: slices.Clone(rs.state.job.Placement)}, phaseLeaving)
	rs.oplog.logf("action", 1, "checkpoint of order %d is written; a restart begins with iteration %d; the processes are leaving", o.Order.ID, resume)
}

// watch makes the moves of a restart that are due.
func (rs *restartDriver) watch(now time.Time) {
	r := rs.state.restart
	waited := time.Duration(now.UnixNano() - r.SinceNs)
	switch r.Phase {
	case phaseLeaving:
		rank, still := rs.cluster.stillRunning(now, r)
		if !still && r.Next != nil {
			rs.turnTo(now, r, phaseLeft)
			rs.relaunch = r.Next
		} else if !still {
			rs.turnTo(now, r, phaseLeft)
			rs.plan.Step(now, mitigate.Left{Order: r.Order})
		} else if waited > rs.cfg.Restart.leave() {
			rs.endWithout(now, r, fmt.Sprintf("%s has not ended %s after the checkpoint", rs.cluster.rankText(rank), rs.cfg.Restart.leave()))
		}
	case phaseLeft:
		if waited > LeftWait {
			rs.endWithout(now, r, fmt.Sprintf("no launch was planned within %s of the processes' end: start the job by hand", LeftWait))
		}
	case phaseLaunching:
		rs.watchLaunch(now, r)
	case phaseClearing:
		if rs.cleared(r) && rs.job.alive == 0 || waited > rs.cfg.Restart.leave() {
			rs.turnTo(now, r, phaseOver)
			rs.launchOver(now, r)
		}
	}
}

// watchLaunch ends a launch that can't come up any more, or whose job has run to
// its end while nobody looked.
func (rs *restartDriver) watchLaunch(now time.Time, r restartRecord) {
	rank, lost := rs.cluster.launchLost(now, r)
	switch {
	case lost != nil:
		rs.launchFails(now, rs.cluster.rankText(rank)+" has ended"+exitText(lost.state.GetExit()))
	case len(r.Ended) == len(r.Launch.Placement):
		rs.finished(now, r)
	case now.UnixNano() > r.Deadline:
		rs.launchFails(now, rs.cluster.launchText())
	}
}

// launchLost finds a rank of a launch that has ended, and not well; nil for none.
func (c *clusterView) launchLost(now time.Time, r restartRecord) (falcon.Rank, *process) {
	for i := range r.Launch.Placement {
		p := c.job.ranks[falcon.Rank(i)]
		if p == nil || p.state.GetAlive() || p.state.GetGeneration() != r.Launch.Generation || falconv1.ExitedWell(p.state.GetExit()) {
			continue
		}
		if p.state.GetExit() != "" || now.Sub(p.endedAt) >= exitWait {
			return p.rank, p
		}
	}
	return 0, nil
}

// stopOlder has nodes end what is left of earlier generations; r is the record that
// the next phase begins with.
func (rs *restartDriver) stopOlder(now time.Time, r *restartRecord, generation uint64, nodes []falcon.Node) {
	r.Stop = &stopRecord{Generation: generation}
	for _, n := range nodes {
		if !rs.state.fences.nodeFenced(n) { // one that is fenced is told so by its fence
			r.Stop.Commands = append(r.Stop.Commands, nodeLaunch{n, rs.batch.commandID(now)})
		}
	}
	rs.batch.whenDurableDo(func(err error) {
		if err == nil { // it is durable
			rs.sendStops("")
		}
	})
}

// sendStops tells the nodes that have not answered, or one of them.
func (rs *restartDriver) sendStops(only falcon.Node) {
	r, now := rs.state.restart, rs.cfg.Now()
	if r.Stop == nil || !r.going() {
		return
	}
	for _, c := range r.Stop.Commands {
		if (only == "" || c.Node == only) && !rs.answeredCommands[c.Command] {
			rs.cluster.sendTo(c.Node, command(&falconv1.Command{
				Epoch: rs.state.epoch, Id: c.Command, DeadlineUnixNs: now.Add(rs.cfg.Restart.leave()).UnixNano(),
				Body: &falconv1.Command_Stop{Stop: &falconv1.StopCommand{Generation: r.Stop.Generation}},
			}, now))
		}
	}
}

// cleared reports whether every node says that nothing of before runs there.
func (rs *restartDriver) cleared(r restartRecord) bool {
	return r.Stop == nil || !slices.ContainsFunc(r.Stop.Commands, func(c nodeLaunch) bool {
		return !rs.answeredCommands[c.Command] && !rs.state.fences.nodeFenced(c.Node)
	})
}

// launchOver tells who planned a launch how it has come out.
func (rs *restartDriver) launchOver(now time.Time, r restartRecord) {
	if r.Next != nil {
		rs.tellRecovery(now, r)
		return
	}
	rs.plan.Step(now, mitigate.Launched{Generation: r.Launch.Generation, Failed: r.Failed})
}

// endWithout ends a restart that can't come to a launch.
func (rs *restartDriver) endWithout(now time.Time, r restartRecord, why string) {
	r.Failed = why
	rs.turnTo(now, r, phaseOver)
	rs.oplog.logf("action", 3, "the restart ends here: %s", why)
	if r.Next != nil {
		rs.tellRecovery(now, r)
		return
	}
	rs.plan.Step(now, mitigate.Left{Order: r.Order, Reason: why})
}

// planLaunch makes a launch durable, with a command for every node.
func (rs *restartDriver) planLaunch(now time.Time, l *falcon.Launch, r *decidedRound) {
	rec := rs.state.restart
	rec.Launch, rec.Commands, rec.Ended, rec.Failed = l, nil, nil, ""
	rec.Deadline = now.Add(rs.cfg.Restart.launch()).UnixNano()
	byNode := map[falcon.Node]bool{}
	for _, d := range l.Placement {
		byNode[d.Node()] = true
	}
	for _, n := range sortedKeys(byNode) {
		rec.Commands = append(rec.Commands, nodeLaunch{n, rs.batch.commandID(now)})
	}
	rs.turnTo(now, rec, phaseLaunching)
	rs.oplog.logf("action", 1, "launch %d: %d ranks on %s", l.Generation, len(l.Placement), nodesText(sortedKeys(byNode)))
	r.steps = append(r.steps, func() { // what has ended makes room for what comes
		rs.job.floor = max(rs.job.floor, l.Generation)
		rs.job.forgetEnded()
	})
	r.launch = true
}

// sendLaunch tells the nodes that have not answered, or one of them.
func (rs *restartDriver) sendLaunch(only falcon.Node) {
	r := rs.state.restart
	if r.Phase != phaseLaunching {
		return
	}
	for _, c := range r.Commands {
		if (only == "" || c.Node == only) && !rs.answeredCommands[c.Command] {
			rs.cluster.sendTo(c.Node, launchFrame(rs.state.epoch, r, c, rs.cfg.Now()))
		}
	}
}

func launchFrame(epoch uint64, r restartRecord, c nodeLaunch, now time.Time) *falconv1.EngineFrame {
	l := &falconv1.LaunchCommand{Generation: r.Launch.Generation, World: int32(len(r.Launch.Placement)), Resume: r.Launch.Resume}
	for rank, d := range r.Launch.Placement {
		if d.Node() == c.Node {
			l.Ranks = append(l.Ranks, &falconv1.RankLaunch{Rank: int32(rank), LocalRank: int32(d.Index()), Device: string(d)})
		}
	}
	return command(&falconv1.Command{
		Epoch: epoch, Id: c.Command, DeadlineUnixNs: r.Deadline, Body: &falconv1.Command_Launch{Launch: l},
	}, now)
}

// onAnswer takes a node's word; false for one about something else.
func (rs *restartDriver) onAnswer(now time.Time, node falcon.Node, in *falconv1.CommandResult) bool {
	r, c := rs.state.restart, nodeLaunch{node, in.GetId()}
	stops := r.Stop != nil && slices.Contains(r.Stop.Commands, c)
	if !stops && !slices.Contains(r.Commands, c) {
		return false
	}
	switch in.GetStatus() {
	case falconv1.CommandStatus_COMMAND_STATUS_DONE:
		rs.answeredCommands[c.Command] = true
	case falconv1.CommandStatus_COMMAND_STATUS_REFUSED, falconv1.CommandStatus_COMMAND_STATUS_EXPIRED:
		if stops {
			rs.oplog.logf("action", 2, "node %s has not ended what runs there of before: %s", node, clean(in.GetDetail()))
		} else if r.Phase == phaseLaunching && len(r.Ended) == 0 { // else it came up: ranks have come to the job's end
			rs.launchFails(now, fmt.Sprintf("node %s: %s", node, clean(in.GetDetail())))
		}
	}
	return true
}

// launchFails waits for what the launch has started to end, before another one
// can be tried on the same nodes.
func (rs *restartDriver) launchFails(now time.Time, why string) {
	r := rs.state.restart
	r.Failed = why
	rs.oplog.logf("action", 3, "launch %d has failed: %s", r.Launch.Generation, why)
	rs.stopOlder(now, &r, r.Launch.Generation+1, placementNodes(r.Launch.Placement))
	rs.turnTo(now, r, phaseClearing)
}

// settle ends a restart once its launch is the job.
func (rs *restartDriver) settle(now time.Time) {
	r := rs.state.restart
	if r.Phase != phaseLaunching || rs.state.job.Generation != r.Launch.Generation || !rs.job.complete() {
		return
	}
	rs.turnTo(now, r, phaseOver)
	rs.oplog.logf("action", 1, "launch %d runs: %d ranks in job epoch %d", r.Launch.Generation, len(rs.state.job.Processes), rs.state.job.Epoch)
	rs.launchOver(now, r)
}

// overtaken ends a restart whose job runs again by somebody else's hand.
func (rs *restartDriver) overtaken(now time.Time) {
	r := rs.state.restart
	if !r.going() {
		return
	}
	was := r.Phase
	r.Failed = "somebody else started the job"
	rs.oplog.logf("action", 2, "the restart ends here: %s", r.Failed)
	rs.turnTo(now, r, phaseOver)
	if was == phaseLaunching || was == phaseClearing {
		rs.launchOver(now, r)
	}
}

// restore gives the planner back what it may not have heard.
func (rs *restartDriver) restore(now time.Time) {
	r := rs.state.restart
	if r.Launch != nil {
		rs.job.floor = max(rs.job.floor, r.Launch.Generation)
	}
	switch {
	case r.Phase == phaseLeft && r.Next != nil:
		rs.relaunch = r.Next
	case r.Phase == phaseLeft:
		rs.plan.Step(now, mitigate.Left{Order: r.Order})
	}
}

// launchText names the first rank that a launch waits for.
func (c *clusterView) launchText() string {
	l := c.state.restart.Launch
	for i, d := range l.Placement {
		p := c.job.ranks[falcon.Rank(i)]
		if p == nil || !p.state.GetAlive() || p.state.GetGeneration() != l.Generation {
			return fmt.Sprintf("launch %d waits for rank %d on %s", l.Generation, i, d.Node())
		}
	}
	return fmt.Sprintf("launch %d waits for the ranks to tell their layout", l.Generation)
}

func nodesText(nodes []falcon.Node) string {
	const most = 8
	s := ""
	for i, n := range nodes[:min(len(nodes), most)] {
		if i > 0 {
			s += ", "
		}
		s += string(n)
	}
	if len(nodes) > most {
		s += fmt.Sprintf(" and %d more", len(nodes)-most)
	}
	return s
}

func (r Restart) leave() time.Duration  { return orElse(r.LeaveWait, LeaveWait) }
func (r Restart) launch() time.Duration { return orElse(r.LaunchWait, LaunchWait) }

func orElse(v, otherwise time.Duration) time.Duration {
	if v > 0 {
		return v
	}
	return otherwise
}
