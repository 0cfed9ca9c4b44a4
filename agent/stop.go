package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent/act"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// ending is what was done to have a process end.
type ending struct {
	ordered bool
	termed  time.Time // when it was sent SIGTERM, zero = never
	killed  bool
}

// stopTask watches processes that were ordered to end, until they have.
type stopTask struct {
	agent    *Agent
	cmd      *falconv1.StopCommand
	ranks    []*process
	left     int           // launched here and not followed, that still run
	restarts bool          // an elastic agent still runs, which would start ranks again
	since    int64         // when the order came, on the monotonic clock
	grace    time.Duration // from SIGTERM to SIGKILL
}

var _ = enter[*falconv1.Command_Stop](command{
	start: func(a *Agent, cmd *falconv1.Command, now, deadline time.Time) (act.Task, error) {
		return a.startStop(cmd.GetStop(), now, deadline)
	},
	resumes: true,
})

// startStop has processes end with success where they park. One that trains is
// suspended for it; one that has gone on in this generation is not meant. Without
// ranks the whole node is meant: also what becomes known only later, and what was
// launched for an earlier generation and never made a communicator.
//
// A process whose adapter takes no part in recoveries obeys no order: on a node that can start the job
// again it is ended by signals.
func (a *Agent) startStop(cmd *falconv1.StopCommand, now, deadline time.Time) (act.Task, error) {
	t := &stopTask{
		agent: a,
		cmd:   cmd,
		since: a.dir.MonoNs(),
		grace: min(a.launcher.GraceTime(), deadline.Sub(now)/2),
	}
	if err := t.endRestarters(now); err != nil {
		return nil, err
	}
	if err := t.orderStops(now); err != nil {
		return nil, err
	}
	a.log.Info(
		"processes were ordered to end",
		slog.Uint64("generation", cmd.GetGeneration()),
		slog.Int("processes", len(t.ranks)),
	)
	return t, nil
}

// endRestarters ends what would start this node's ranks again, where all of them are meant and this agent can
// start them.
func (t *stopTask) endRestarters(now time.Time) (err error) {
	if len(t.cmd.GetRanks()) == 0 && t.agent.launcher.CanStart() {
		t.restarts, err = t.agent.found.elastic.end(now, t.grace)
	}
	return err
}

// orderStops orders all processes that are meant and have no such order.
func (t *stopTask) orderStops(now time.Time) error {
	var fresh []*process
	for _, p := range t.agent.processes.living() {
		if !t.concerns(p) || slices.Contains(t.ranks, p) {
			continue
		}
		if !p.canBeParked() && !t.endsBySignal(p) {
			return fmt.Errorf(
				"%s can't be stopped: the job has no adapter for recoveries (falcon_job.h), and launch.command is not set here: end it yourself, then start the job again",
				p,
			)
		}
		fresh = append(fresh, p)
	}
	for _, p := range fresh {
		if err := t.orderStop(p, now); err != nil {
			return err
		}
	}
	t.ranks = append(t.ranks, fresh...)
	return nil
}

// orderStop has one process end.
func (t *stopTask) orderStop(p *process, now time.Time) error {
	if t.endsBySignal(p) {
		return t.endProcess(p, now)
	}
	st := p.seg.Control()
	g := t.cmd.GetGeneration()
	if max(st.SuspendWanted, st.GenerationNow) < g {
		if err := p.seg.Suspend(g, t.agent.dir.MonoNs()); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	p.seg.Stop(g)
	p.ending.ordered = true
	return nil
}

// endsBySignal reports whether a process is to be ended by signals: it would not park,
// and this node can start it again.
func (t *stopTask) endsBySignal(p *process) bool {
	return !p.parks() && t.agent.launcher.CanStart()
}

// endProcess asks a process to end; one that was asked stays asked.
func (t *stopTask) endProcess(p *process, now time.Time) error {
	if p.ending.ordered {
		return nil
	}
	err := p.exit.Signal(unix.SIGTERM)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s can't be ended: %w; run falcon-agent as the job's user", p, err)
	}
	t.agent.log.Warn(
		"sent SIGTERM to a process that would not park",
		slog.String("process", p.String()),
		slog.Duration("grace", t.grace),
	)
	p.ending = ending{ordered: true, termed: now}
	return nil
}

// killOverdue ends what has not ended in the time that SIGTERM gave it: it may wait
// for a peer that is dead.
func (t *stopTask) killOverdue(now time.Time) {
	for _, p := range t.stillRunning() {
		if p.ending.termed.IsZero() ||
			p.ending.killed ||
			now.Sub(p.ending.termed) < t.grace {
			continue
		}
		t.agent.log.Warn(
			"sent SIGKILL to a process that did not end after SIGTERM",
			slog.String("process", p.String()),
		)
		_ = p.exit.Signal(unix.SIGKILL) // gone already is as good
		p.ending.killed = true
	}
}

// concerns reports whether the order is about a process.
func (t *stopTask) concerns(p *process) bool {
	ranks := t.cmd.GetRanks()
	if len(ranks) > 0 && !slices.Contains(ranks, int32(p.rank)) {
		return false
	}
	g := t.cmd.GetGeneration()
	at, ok := p.seg.Rejoined()
	if ok && at.Generation >= g && at.Status == 0 && !p.parkedForGeneration(0) {
		return false
	}
	if t.endsBySignal(p) && p.header.StartMonoNs > t.since {
		return false // another job's: this one was to end before it
	}
	fresh := p.status.Generation >= g && t.agent.launcher.Fresh(p.status.Generation)
	return len(t.cmd.GetRanks()) > 0 || !fresh
}

func (t *stopTask) stillRunning() []*process {
	return slices.DeleteFunc(slices.Clone(t.ranks), func(p *process) bool { return p.dead })
}

// Poll is done when all have ended.
func (t *stopTask) Poll(now time.Time) (*falconv1.CommandResult, bool) {
	t.agent.pollOften(now)
	if len(t.cmd.GetRanks()) == 0 {
		if err := errors.Join(t.endRestarters(now), t.orderStops(now)); err != nil {
			return &falconv1.CommandResult{
				Status: falconv1.CommandStatus_COMMAND_STATUS_REFUSED,
				Detail: err.Error(),
			}, true
		}
		t.left = t.agent.launcher.EndUnseen(t.cmd.GetGeneration(), t.agent.processes.startedAs())
	}
	t.killOverdue(now)
	if len(t.stillRunning()) > 0 || t.left > 0 || t.restarts {
		return nil, false
	}
	return &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}, true
}

// PollLate gives up at the deadline, and names who has not ended.
func (t *stopTask) PollLate(now time.Time) (*falconv1.CommandResult, bool) {
	if r, done := t.Poll(now); done {
		return r, true
	}
	return overdueResult(t.stillRunning(), "did not end in time"), true
}
