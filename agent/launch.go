package agent

import (
	"fmt"
	"os"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/act"
	"github.com/failslow/falcon/agent/launch"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// launchWait is how long processes may take from their start to their first
// communicator: imports, data, rendezvous. Then the launch has failed.
const launchWait = 10 * time.Minute

// launchTask watches the processes of one launch until each has made itself
// known through its hook.
type launchTask struct {
	agent *Agent
	plan  launch.Plan
	began time.Time
	told  int // ranks in the last report
}

func (a *Agent) startLaunch(cmd *falconv1.LaunchCommand, now time.Time) (act.Task, error) {
	plan := launch.Plan{Generation: cmd.GetGeneration(), World: int(cmd.GetWorld()), Resume: cmd.GetResume()}
	for _, r := range cmd.GetRanks() {
		plan.Ranks = append(plan.Ranks, launch.Rank{Rank: int(r.GetRank()), LocalRank: int(r.GetLocalRank()), Device: falcon.Device(r.GetDevice())})
	}
	var running []launch.Running
	for _, p := range a.processes() {
		if !p.dead {
			running = append(running, launch.Running{PID: p.header.PID, Generation: p.status.Generation, Text: p.String()})
		}
	}
	if err := a.launcher.Begin(plan, running); err != nil {
		return nil, err
	}
	return &launchTask{agent: a, plan: plan, began: now}, nil
}

// Step reports each rank that made itself known, and ends when all have, or one
// can't any more: then the others of this node are ended, as they would wait for
// it.
func (t *launchTask) Step(now time.Time) (*falconv1.CommandResult, bool) {
	t.agent.launcher.Collect()
	var known []*falconv1.RankAck
	for _, r := range t.plan.Ranks {
		if p := t.agent.launched(r, t.plan.Generation); p != nil {
			known = append(known, &falconv1.RankAck{Rank: int32(r.Rank), NowRank: int32(r.Rank), Iteration: p.status.Iteration})
			continue
		}
		if at := t.agent.launcher.State(r.Rank); at.Ended {
			return t.fail(falconv1.CommandStatus_COMMAND_STATUS_REFUSED, earlyEnd(r, at)), true
		}
	}
	switch {
	case len(known) == len(t.plan.Ranks):
		return &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE, Ranks: known}, true
	case now.Sub(t.began) >= launchWait:
		why := fmt.Sprintf("%d of %d processes made no communicator under the hook within %v: does launch.command start them with falcon-agent run?", len(t.plan.Ranks)-len(known), len(t.plan.Ranks), launchWait)
		return t.fail(falconv1.CommandStatus_COMMAND_STATUS_EXPIRED, why), true
	case len(known) != t.told:
		t.told = len(known)
		return &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED, Ranks: known}, false
	}
	return nil, false
}

// Linger goes on: the command's deadline bounds the start, launchWait the rest.
func (t *launchTask) Linger(now time.Time) (*falconv1.CommandResult, bool) { return t.Step(now) }

func (t *launchTask) fail(status falconv1.CommandStatus, why string) *falconv1.CommandResult {
	t.agent.launcher.End()
	return &falconv1.CommandResult{Status: status, Detail: why}
}

func earlyEnd(r launch.Rank, at launch.State) string {
	how := at.How
	if how == "" {
		how = "ended"
	}
	where := "set launch.log_dir to see what it prints"
	if at.Log != os.DevNull {
		where = "what it printed is in " + at.Log
	}
	return fmt.Sprintf("rank %d (pid %d) %s before it had made a communicator; %s", r.Rank, at.PID, how, where)
}

// launched is the process that has made itself known as this rank of the
// generation, and was told to the engine; nil while there is none.
func (a *Agent) launched(r launch.Rank, generation uint64) *process {
	for _, p := range a.processes() {
		if p.header.Rank == r.Rank && !p.dead && p.status.Generation == generation && p.device(a.node) == string(r.Device) &&
			p.sent.GetAlive() && len(p.sent.GetComms()) > 0 {
			return p
		}
	}
	return nil
}
