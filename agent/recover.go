package agent

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/act"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of a recovery's orders.
const (
	// between polls while processes are awaited: to park, to train again, to end
	recoveryPollEvery = 2 * time.Millisecond
	recoveryPollFor   = 100 * time.Millisecond // beyond the last poll of an order in progress
	// for groups and shards, whatever the command's deadline, which bounds the delivery
	rejoinWait = 10 * time.Minute
	namedMax   = 8 // processes named in a sentence
)

// pollOften has the loop poll at recoveryPollEvery for a while.
func (a *Agent) pollOften(now time.Time) {
	a.pollSoonBy = now.Add(recoveryPollFor)
}

// canBeParked reports whether a process obeys a suspension, or holds no peer up: one that
// has made no communicator yet parks by itself, or ends.
func (p *process) canBeParked() bool {
	return p.parks() || !p.comms.anyInState(ring.CommLive)
}

// parks reports whether the process has declared that it leaves training for a recovery.
func (p *process) parks() bool {
	return p.seg.JobState().Can.Park
}

// parkedForGeneration reports whether a process has left training and obeyed the suspension of
// this generation or a newer one; a replacement counts as having obeyed its own.
func (p *process) parkedForGeneration(generation uint64) bool {
	at, ok := p.seg.Park()
	return ok && at.On && at.Generation >= generation
}

// suspendTask watches the node's processes until all that live are parked.
type suspendTask struct {
	agent      *Agent
	generation uint64
	untilNs    int64 // so long a rank in its optimizer is left alone
}

var _ = enter[*falconv1.Command_Suspend](command{
	start: func(a *Agent, cmd *falconv1.Command, now, _ time.Time) (act.Task, error) {
		return a.startSuspend(cmd.GetSuspend(), now)
	},
	resumes: true,
})

// startSuspend has every process of an older generation leave training, or
// none: where one can't park, nothing is written. What the agent holds or
// profiles of the job ends: the recovery goes first.
func (a *Agent) startSuspend(cmd *falconv1.SuspendCommand, now time.Time) (act.Task, error) {
	g := cmd.GetGeneration()
	for _, p := range a.processes.living() {
		st := p.seg.Control()
		switch {
		case st.SuspendWanted > g:
			return nil, newerSuspension(p, st.SuspendWanted)
		case st.GenerationNow < g && !p.canBeParked():
			return nil, fmt.Errorf("%s can't park: the job has no adapter for recoveries (falcon_job.h)", p)
		}
	}
	if a.held != nil {
		a.held.releaseOnce(now)
	}
	a.suspended = max(a.suspended, g)
	wait := min(boundedMs(cmd.GetOptimizerWaitMs()), ring.SuspendMax)
	t := &suspendTask{
		agent:      a,
		generation: g,
		untilNs:    a.dir.MonoNs() + wait.Nanoseconds(),
	}
	for _, p := range a.processes.living() {
		if p.window != nil {
			p.window.cut = true
		}
		if err := t.suspendProcess(p); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	a.log.Info("the job's processes were suspended", slog.Uint64("generation", g))
	return t, nil
}

// newerSuspension refuses an order of a generation that is over.
func newerSuspension(p *process, generation uint64) error {
	return &act.Older{
		Newest: generation,
		Reason: fmt.Errorf("%s is suspended for generation %d, which is newer", p, generation),
	}
}

// suspendProcess suspends a process of an older generation, once: the order of an
// earlier life of this agent holds.
func (t *suspendTask) suspendProcess(p *process) error {
	st := p.seg.Control()
	if st.SuspendWanted >= t.generation || st.GenerationNow >= t.generation {
		return nil
	}
	return p.seg.Suspend(t.generation, t.untilNs)
}

// notParked is what lives and has not parked. Each process that has is reported to the
// engine first. One that appears only now is suspended too.
func (t *suspendTask) notParked() (open []*process) {
	for _, p := range t.agent.processes.living() {
		st := p.seg.Control()
		switch {
		case p.parkedForGeneration(t.generation):
			t.agent.sendState(p)
		case st.GenerationNow >= t.generation && st.RejoinOrdered >= t.generation: // it has gone on since
		case t.suspendProcess(p) != nil || p.rank >= 0 || len(p.comms.list) > 0:
			open = append(open, p)
		}
	}
	return open
}

// Poll is done when all that live are parked, also those that have shown up
// since the last scan.
func (t *suspendTask) Poll(now time.Time) (*falconv1.CommandResult, bool) {
	if t.agent.pollOften(now); len(t.notParked()) > 0 {
		return t.superseded()
	}
	if t.agent.scanDirectory(); len(t.notParked()) > 0 {
		return nil, false
	}
	return &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}, true
}

// superseded ends a suspension that a newer one has replaced: the engine does not wait
// for it any more.
func (t *suspendTask) superseded() (*falconv1.CommandResult, bool) {
	if t.agent.suspended <= t.generation {
		return nil, false
	}
	return overdueResult(t.notParked(), fmt.Sprintf("did not park before generation %d was suspended",
		t.agent.suspended)), true
}

// PollLate gives up at the deadline, and names who has not parked.
func (t *suspendTask) PollLate(now time.Time) (*falconv1.CommandResult, bool) {
	if r, done := t.Poll(now); done {
		return r, true
	}
	return overdueResult(t.notParked(), "did not park in time"), true
}

// overdueResult is the end of an order that some processes have not obeyed.
func overdueResult(open []*process, what string) *falconv1.CommandResult {
	return &falconv1.CommandResult{
		Status: falconv1.CommandStatus_COMMAND_STATUS_EXPIRED,
		Detail: joinNames(open) + " " + what,
	}
}

func joinNames(ps []*process) string {
	var out []string
	for _, p := range ps[:min(len(ps), namedMax)] {
		out = append(out, p.String())
	}
	if over := len(ps) - namedMax; over > 0 {
		out = append(out, fmt.Sprintf("%d more", over))
	}
	return strings.Join(out, ", ")
}

// rejoinTask watches the processes that were ordered to go on until each has reported
// its outcome, or can't any more.
type rejoinTask struct {
	agent      *Agent
	generation uint64
	seats      []*process
	began      time.Time
	reported   int
}

var _ = enter[*falconv1.Command_Rejoin](command{
	start: func(a *Agent, cmd *falconv1.Command, now, _ time.Time) (act.Task, error) {
		return a.startRejoin(cmd.GetRejoin(), now)
	},
	resumes: true,
})

// startRejoin orders the node's seats to go on, all or none: each must be parked in this
// generation, or have been ordered so by an earlier life of this agent.
func (a *Agent) startRejoin(cmd *falconv1.RejoinCommand, now time.Time) (act.Task, error) {
	t := &rejoinTask{
		agent:      a,
		generation: cmd.GetGeneration(),
		began:      now,
	}
	for _, seat := range cmd.GetSeats() {
		p, err := a.processInSeat(seat, t.generation)
		if err != nil {
			return nil, err
		}
		if slices.Contains(t.seats, p) {
			return nil, fmt.Errorf("%s has two seats", p)
		}
		t.seats = append(t.seats, p)
	}
	if len(t.seats) == 0 {
		return nil, errNoRank
	}
	for _, p := range t.seats {
		if p.seg.Control().RejoinOrdered >= t.generation {
			continue
		}
		if err := p.seg.PutRejoin(rejoinOrder(cmd, p.rank)); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	a.log.Info(
		"parked processes were ordered to continue",
		slog.Uint64("generation", t.generation),
		slog.Int64("iteration", cmd.GetResumeIteration()),
	)
	return t, nil
}

// processInSeat is the process that a seat names, when it may go on.
func (a *Agent) processInSeat(s *falconv1.RankSeat, generation uint64) (*process, error) {
	for _, p := range a.processes.living() {
		if p.header.PID != int(s.GetPid()) || p.rank != falcon.Rank(s.GetRank()) {
			continue
		}
		st := p.seg.Control()
		at, ok := p.seg.Park()
		switch {
		case st.SuspendWanted > generation:
			return nil, newerSuspension(p, st.SuspendWanted)
		case st.RejoinOrdered == generation:
		case !ok || !at.On:
			return nil, fmt.Errorf("%s is not parked", p)
		case at.Generation != generation:
			return nil, fmt.Errorf("%s is parked in generation %d, not in %d", p, at.Generation, generation)
		}
		return p, nil
	}
	return nil, fmt.Errorf("rank %d (pid %d) does not run here", s.GetRank(), s.GetPid())
}

// movesMax is how many moves an order to one process holds. Of more, it gets those that
// it takes part in: the mailbox has room for little more.
const movesMax = 256

func rejoinOrder(cmd *falconv1.RejoinCommand, rank falcon.Rank) ring.Rejoin {
	out := ring.Rejoin{
		Generation:   cmd.GetGeneration(),
		Resume:       cmd.GetResumeIteration(),
		Checkpoint:   cmd.GetCheckpoint(),
		MicroBatches: cmd.GetMicroBatches(),
	}
	for _, m := range cmd.GetMoves() {
		to := falcon.Rank(m.GetRank())
		from := falcon.Rank(m.GetFrom())
		if len(cmd.GetMoves()) <= movesMax || to == rank || from == rank {
			out.Moves = append(out.Moves, falcon.ShardMove{Rank: to, From: from})
		}
	}
	return out
}

// collectAcks collects what the seats have reported. A seat whose process has ended, or
// was suspended again, reports no more.
func (t *rejoinTask) collectAcks() (acks []*falconv1.RankAck, open, lost []*process) {
	for _, p := range t.seats {
		at, ok := p.seg.Rejoined()
		switch {
		case ok && at.Generation == t.generation:
			if !p.dead {
				t.agent.sendState(p)
			}
			acks = append(acks, rejoinAck(p, at))
		case p.dead || p.seg.Control().SuspendWanted > t.generation:
			lost = append(lost, p)
		default:
			open = append(open, p)
		}
	}
	return acks, open, lost
}

func rejoinAck(p *process, at ring.Rejoined) *falconv1.RankAck {
	return &falconv1.RankAck{
		Rank:       int32(p.rank),
		NowRank:    int32(p.rank),
		Order:      at.Generation,
		Generation: at.Generation,
		Iteration:  at.Iteration,
		Status:     at.Status,
		MovedBytes: at.Bytes,
		GroupsMs:   float64(at.GroupsNs) / 1e6,
		RestoreMs:  float64(at.StateNs) / 1e6,
	}
}

// Poll reports each process that has reported its outcome, and ends when all have, or
// can't.
func (t *rejoinTask) Poll(now time.Time) (*falconv1.CommandResult, bool) {
	t.agent.pollOften(now)
	acks, open, lost := t.collectAcks()
	r := &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED, Ranks: acks}
	switch {
	case len(open) == 0 && len(lost) > 0:
		r.Status = falconv1.CommandStatus_COMMAND_STATUS_REFUSED
		r.Detail = joinNames(lost) + " ended or was suspended again before it trained again"
		return r, true
	case len(open) == 0:
		r.Status, r.Detail = falconv1.CommandStatus_COMMAND_STATUS_DONE, firstFailedRejoin(acks)
		return r, true
	case now.Sub(t.began) >= rejoinWait:
		r = overdueResult(open, fmt.Sprintf("did not train again within %v", rejoinWait))
		r.Ranks = acks
		return r, true
	case len(acks) != t.reported:
		t.reported = len(acks)
		return r, false
	}
	return nil, false
}

// PollLate goes on: the command's deadline bounds the delivery.
func (t *rejoinTask) PollLate(now time.Time) (*falconv1.CommandResult, bool) {
	return t.Poll(now)
}

// firstFailedRejoin names the first rank whose rejoin failed, "" for none.
func firstFailedRejoin(acks []*falconv1.RankAck) string {
	for _, a := range acks {
		if a.Status != 0 {
			return fmt.Sprintf("rank %d could not go on: status %d", a.Rank, a.Status)
		}
	}
	return ""
}
