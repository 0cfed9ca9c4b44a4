package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/act"
	"github.com/failslow/falcon/agent/launch"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// launchWait is how long processes may take from their start to their first
// communicator: imports, data, rendezvous. Then the launch has failed.
const launchWait = 10 * time.Minute

// launchTask watches the processes of one launch until each has made itself
// known through its hook: by its communicators, or, where it joins others, by
// parking.
type launchTask struct {
	agent    *Agent
	plan     launch.Plan
	began    time.Time
	reported int       // ranks in the last report
	waits    bool      // for others, which were ordered to end, and still run here
	doubted  time.Time // when a process of the plan was first found to be unproven
}

var _ = enter[*falconv1.Command_Launch](command{
	start: func(a *Agent, cmd *falconv1.Command, now, _ time.Time) (act.Task, error) {
		return a.startLaunch(cmd.GetLaunch(), now)
	},
	resumes: true,
})

func (a *Agent) startLaunch(cmd *falconv1.LaunchCommand, now time.Time) (act.Task, error) {
	plan := launch.Plan{
		Generation: cmd.GetGeneration(),
		World:      int(cmd.GetWorld()),
		Resume:     cmd.GetResume(),
		Join:       cmd.GetJoin(),
	}
	for _, r := range cmd.GetRanks() {
		plan.Ranks = append(plan.Ranks, launch.Rank{
			Rank:      int(r.GetRank()),
			LocalRank: int(r.GetLocalRank()),
			Device:    falcon.Device(r.GetDevice()),
		})
	}
	t := &launchTask{agent: a, plan: plan, began: now}
	if err := t.startProcesses(); err != nil {
		return nil, err
	}
	maps.DeleteFunc(a.notes.endedWell, func(s launchedRank, _ bool) bool {
		return s.generation != plan.Generation
	})
	return t, nil
}

// startProcesses starts the processes of the plan. Those that must be gone first are
// waited for where they were ordered to end, and are a reason to refuse where they
// were not. What would start ranks beside this agent is ended before.
func (t *launchTask) startProcesses() error {
	var running []launch.Running
	left, err := t.agent.found.elastic.end(t.agent.now(), t.agent.launcher.GraceTime())
	if t.waits = left && err == nil; left || err != nil {
		return err
	}
	for _, p := range t.agent.processes.living() {
		r := launch.Running{
			PID:        p.header.PID,
			Rank:       int(p.rank),
			Device:     falcon.Device(p.deviceName(t.agent.node)),
			Generation: p.status.Generation,
			Text:       p.String(),
		}
		t.waits = t.waits || p.ending.ordered && t.plan.Excludes(r)
		running = append(running, r)
	}
	if t.waits {
		return nil
	}
	err = t.agent.launcher.Begin(t.plan, running)
	var older *launch.OlderError
	if errors.As(err, &older) {
		return &act.Older{Newest: older.Newest, Reason: err}
	}
	return err
}

// Poll reports each rank that made itself known, and ends when all have, or one
// can't any more: then the others of this node are ended, as they would wait for
// it.
func (t *launchTask) Poll(now time.Time) (*falconv1.CommandResult, bool) {
	t.agent.launcher.Collect()
	if t.waits {
		if err := t.startProcesses(); err != nil {
			return act.Refused(err), true
		}
	}
	if t.waits && now.Sub(t.began) < launchWait {
		return nil, false
	}
	if t.plan.Join {
		t.agent.pollOften(now) // the whole job waits for it
		scanForJoiners(t.agent, now)
	}
	var known []*falconv1.RankAck
	for _, r := range t.plan.Ranks {
		ack, failed := t.stateOf(r)
		if failed != "" {
			return t.failLaunch(falconv1.CommandStatus_COMMAND_STATUS_REFUSED, failed), true
		}
		if ack != nil {
			known = append(known, ack)
		}
	}
	if len(known) < len(t.plan.Ranks) {
		if u := t.unprovenProcess(now); u != nil {
			r := t.failLaunch(falconv1.CommandStatus_COMMAND_STATUS_REFUSED, u.String())
			r.Unproven = convert.UnprovenToProto(*u)
			return r, true
		}
	}
	switch {
	case len(known) == len(t.plan.Ranks):
		return &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE, Ranks: known}, true
	case now.Sub(t.began) >= launchWait:
		why := fmt.Sprintf(
			"%d of %d processes %s under the hook within %v: does launch.command start them with falcon-agent run?",
			len(t.plan.Ranks)-len(known), len(t.plan.Ranks), missedStep(t.plan.Join), launchWait,
		)
		return t.failLaunch(falconv1.CommandStatus_COMMAND_STATUS_EXPIRED, why), true
	case len(known) != t.reported:
		t.reported = len(known)
		return &falconv1.CommandResult{
			Status: falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED,
			Ranks:  known,
		}, false
	}
	return nil, false
}

// unprovenWait is how long a process that was started may be without proof.
const unprovenWait = 2 * time.Second

// unprovenProcess is one that was started and can't be followed, as under a hook of
// another format; nil where there is none. No waiting helps, and the node is not at fault.
func (t *launchTask) unprovenProcess(now time.Time) *falcon.Unproven {
	for _, r := range t.plan.Ranks {
		u := t.agent.unseen.unprovenRank(r.Rank, t.agent.launcher.State(r.Rank).PID)
		switch {
		case u == nil:
			continue
		case t.doubted.IsZero():
			t.doubted = now
		}
		if now.Sub(t.doubted) >= unprovenWait {
			return u
		}
		return nil
	}
	t.doubted = time.Time{}
	return nil
}

// stateOf is a rank's acknowledgement once it has made itself known, and why it can't
// any more where its process ended before. What the hook left is complete by then: it
// is taken up first, as the process may have trained and ended between two scans.
func (t *launchTask) stateOf(r launch.Rank) (ack *falconv1.RankAck, failed string) {
	ack, at := t.acknowledgement(r), t.agent.launcher.State(r.Rank)
	if ack != nil || !at.Ended {
		return ack, ""
	}
	if !t.plan.Join {
		if t.agent.processes.follows(at.PID, t.plan.Generation) {
			return nil, "" // its end is reported by the next poll
		}
		t.agent.scanDirectory()
		if ack = t.acknowledgement(r); ack != nil {
			return ack, ""
		}
	}
	return nil, earlyEndDetail(r, at, t.plan.Join)
}

// acknowledgement is a rank's by what the engine was sent of it: its process, or its
// end with success.
func (t *launchTask) acknowledgement(r launch.Rank) *falconv1.RankAck {
	ack := &falconv1.RankAck{Rank: int32(r.Rank), NowRank: int32(r.Rank)}
	if p := t.agent.launchedProcess(r, t.plan); p != nil {
		ack.Iteration = p.status.Iteration
		return ack
	}
	if t.agent.notes.endedWell[launchedRank{r.Rank, t.plan.Generation}] {
		return ack
	}
	return nil
}

// PollLate goes on: the command's deadline bounds the start, launchWait the rest.
func (t *launchTask) PollLate(now time.Time) (*falconv1.CommandResult, bool) {
	return t.Poll(now)
}

func (t *launchTask) failLaunch(status falconv1.CommandStatus, why string) *falconv1.CommandResult {
	t.agent.launcher.End()
	return &falconv1.CommandResult{Status: status, Detail: why}
}

// missedStep is what a process did not do that never made itself known.
func missedStep(join bool) string {
	if join {
		return "did not park (falcon_job_park)"
	}
	return "made no communicator"
}

func earlyEndDetail(r launch.Rank, at launch.State, join bool) string {
	how := at.How
	if how == "" {
		how = "ended"
	}
	where := "set launch.log_dir to see what it prints"
	if at.Log != os.DevNull {
		where = "what it printed is in " + at.Log
	}
	before := "before it had made a communicator"
	if join {
		before = "before it was parked to join the job"
	}
	return fmt.Sprintf("rank %d (pid %d) %s %s; %s", r.Rank, at.PID, how, before, where)
}

// launchedProcess is the process that has made itself known as this rank of the
// generation, and was reported to the engine; nil while there is none.
func (a *Agent) launchedProcess(r launch.Rank, plan launch.Plan) *process {
	for _, p := range a.processes.living() {
		if p.header.Rank != r.Rank ||
			p.status.Generation != plan.Generation ||
			p.deviceName(a.node) != string(r.Device) {
			continue
		}
		known := len(p.reported.state.GetComms()) > 0
		if plan.Join {
			p.readRecovery()
			a.suspendLateJoiner(p)
			a.announceChanges(p)
			known = p.joinReported(plan.Generation)
		}
		if p.reported.state.GetAlive() && known {
			return p
		}
	}
	return nil
}

// joinReported reports whether a replacement process has parked to join the job, and the
// engine was sent that. One that has gone on since has done that too.
func (p *process) joinReported(generation uint64) bool {
	return p.reported.state.GetPark().GetJoining() ||
		p.reported.state.GetRejoinedGeneration() >= generation
}
