package agent

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of a recovery's orders.
const (
	recoverEvery = 2 * time.Millisecond   // looks while processes are awaited: to park, to train again, to end
	urgentFor    = 100 * time.Millisecond // beyond the last look at an order in progress
	rejoinWait   = 10 * time.Minute       // for groups and shards, whatever the command's deadline, which bounds the delivery
	namedMax     = 8                      // processes named in a sentence
)

// urgent has the loop look often for a while.
func (a *Agent) urgent(now time.Time) { a.urgentTil = now.Add(urgentFor) }

// alive is every process of the node that lives, whether or not its rank is known.
func (a *Agent) alive() []*process {
	return slices.DeleteFunc(a.processes(), func(p *process) bool { return p.dead })
}

// canPark says that a process answers to a suspension, or holds nobody: one that
// has made no communicator yet comes to park by itself, or goes.
func (p *process) canPark() bool {
	return p.seg.Control().Coverage&ring.CoverAdapter != 0 || !p.comms.anyIn(ring.CommLive)
}

// parkedIn says that a process has left training and obeyed the suspension of
// this generation or a newer one; one made anew counts as having obeyed its own.
func (p *process) parkedIn(generation uint64) bool {
	at, ok := p.seg.Park()
	return ok && at.On && at.Generation >= generation
}

// suspendTask watches the node's processes until all that live are parked.
type suspendTask struct {
	agent      *Agent
	generation uint64
	untilNs    int64 // so long a rank in its optimizer is left alone
}

// startSuspend has every process of an older generation leave training, or
// none: where one can't park, nothing is written. What the agent holds or
// profiles of the job ends: the recovery goes first.
func (a *Agent) startSuspend(cmd *falconv1.SuspendCommand, now time.Time) (*suspendTask, error) {
	g := cmd.GetGeneration()
	for _, p := range a.alive() {
		st := p.seg.Control()
		switch {
		case st.SuspendWanted > g:
			return nil, fmt.Errorf("%s is suspended for generation %d, which is newer", p, st.SuspendWanted)
		case st.GenerationNow < g && !p.canPark():
			return nil, fmt.Errorf("%s can't park: the job has no adapter (falcon_job.h)", p)
		}
	}
	if a.held != nil {
		a.held.letGo(now)
	}
	a.suspended = max(a.suspended, g)
	wait := min(ms64(cmd.GetOptimizerWaitMs()), ring.SuspendMax)
	t := &suspendTask{agent: a, generation: g, untilNs: a.dir.MonoNs() + wait.Nanoseconds()}
	for _, p := range a.alive() {
		if p.window != nil {
			p.window.cut = true
		}
		if err := t.suspend(p); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	a.log.Info("the job's processes were suspended", slog.Uint64("generation", g))
	return t, nil
}

// suspend tells a process of an older generation, once: the word of an earlier
// life of this agent holds.
func (t *suspendTask) suspend(p *process) error {
	if st := p.seg.Control(); st.SuspendWanted >= t.generation || st.GenerationNow >= t.generation {
		return nil
	}
	return p.seg.Suspend(t.generation, t.untilNs)
}

// open is what lives and has not parked. Each process that has is told to the
// engine first. One that shows up only now is suspended too.
func (t *suspendTask) open() (open []*process) {
	for _, p := range t.agent.alive() {
		st := p.seg.Control()
		switch {
		case p.parkedIn(t.generation):
			t.agent.tell(p)
		case st.GenerationNow >= t.generation && st.RejoinOrdered >= t.generation: // it has gone on since
		case t.suspend(p) != nil || p.rank >= 0 || len(p.comms.list) > 0:
			open = append(open, p)
		}
	}
	return open
}

// Step is done when all that live are parked, also those that have shown up
// since the last scan.
func (t *suspendTask) Step(now time.Time) (*falconv1.CommandResult, bool) {
	if t.agent.urgent(now); len(t.open()) > 0 {
		return t.superseded()
	}
	if t.agent.scan(); len(t.open()) > 0 {
		return nil, false
	}
	return &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}, true
}

// superseded ends a suspension that a newer one has taken the place of: nobody
// waits for it any more.
func (t *suspendTask) superseded() (*falconv1.CommandResult, bool) {
	if t.agent.suspended <= t.generation {
		return nil, false
	}
	return overdue(t.open(), fmt.Sprintf("did not park before generation %d was suspended", t.agent.suspended)), true
}

// Linger gives up at the deadline, and names who has not parked.
func (t *suspendTask) Linger(now time.Time) (*falconv1.CommandResult, bool) {
	if r, done := t.Step(now); done {
		return r, true
	}
	return overdue(t.open(), "did not park in time"), true
}

// overdue is the end of an order that some processes have not obeyed.
func overdue(open []*process, what string) *falconv1.CommandResult {
	return &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_EXPIRED, Detail: names(open) + " " + what}
}

func names(ps []*process) string {
	var out []string
	for _, p := range ps[:min(len(ps), namedMax)] {
		out = append(out, p.String())
	}
	if over := len(ps) - namedMax; over > 0 {
		out = append(out, fmt.Sprintf("%d more", over))
	}
	return strings.Join(out, ", ")
}

// rejoinTask watches the processes that were told to go on until each has said
// what became of it, or can't any more.
type rejoinTask struct {
	agent      *Agent
	generation uint64
	seats      []*process
	began      time.Time
	told       int
}

// startRejoin tells the node's seats to go on, all or none: each must be parked
// in this generation, or have been told so by an earlier life of this agent.
func (a *Agent) startRejoin(cmd *falconv1.RejoinCommand, now time.Time) (*rejoinTask, error) {
	t := &rejoinTask{agent: a, generation: cmd.GetGeneration(), began: now}
	for _, seat := range cmd.GetSeats() {
		p, err := a.seat(seat, t.generation)
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
	a.log.Info("parked processes were told to go on", slog.Uint64("generation", t.generation), slog.Int64("iteration", cmd.GetResumeIteration()))
	return t, nil
}

// seat is the process that a seat names, when it may go on.
func (a *Agent) seat(s *falconv1.RankSeat, generation uint64) (*process, error) {
	for _, p := range a.alive() {
		if p.header.PID != int(s.GetPid()) || p.rank != falcon.Rank(s.GetRank()) {
			continue
		}
		st := p.seg.Control()
		at, ok := p.seg.Park()
		switch {
		case st.SuspendWanted > generation:
			return nil, fmt.Errorf("%s is suspended for generation %d, which is newer", p, st.SuspendWanted)
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

// movesMax is how many moves are told to a process whole. Of more, it is told
// those that it takes part in: the mailbox has room for little more.
const movesMax = 256

func rejoinOrder(cmd *falconv1.RejoinCommand, rank falcon.Rank) ring.Rejoin {
	out := ring.Rejoin{
		Generation: cmd.GetGeneration(), Resume: cmd.GetResumeIteration(), Checkpoint: cmd.GetCheckpoint(), MicroBatches: cmd.GetMicroBatches(),
	}
	for _, m := range cmd.GetMoves() {
		to, from := falcon.Rank(m.GetRank()), falcon.Rank(m.GetFrom())
		if len(cmd.GetMoves()) <= movesMax || to == rank || from == rank {
			out.Moves = append(out.Moves, falcon.ShardMove{Rank: to, From: from})
		}
	}
	return out
}

// look collects what the seats have said. A seat whose process has ended, or was
// suspended anew, will not say any more.
func (t *rejoinTask) look() (acks []*falconv1.RankAck, open, lost []*process) {
	for _, p := range t.seats {
		at, ok := p.seg.Rejoined()
		switch {
		case ok && at.Generation == t.generation:
			if !p.dead {
				t.agent.tell(p)
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
		Rank: int32(p.rank), NowRank: int32(p.rank), Order: at.Generation, Generation: at.Generation, Iteration: at.Iteration,
		Status: at.Status, MovedBytes: at.Bytes, GroupsMs: float64(at.GroupsNs) / 1e6, RestoreMs: float64(at.StateNs) / 1e6,
	}
}

// Step reports each process that has said what became of it, and ends when all
// have, or can't.
func (t *rejoinTask) Step(now time.Time) (*falconv1.CommandResult, bool) {
	t.agent.urgent(now)
	acks, open, lost := t.look()
	r := &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED, Ranks: acks}
	switch {
	case len(open) == 0 && len(lost) > 0:
		r.Status, r.Detail = falconv1.CommandStatus_COMMAND_STATUS_REFUSED, names(lost)+" ended or was suspended anew before it trained again"
		return r, true
	case len(open) == 0:
		r.Status, r.Detail = falconv1.CommandStatus_COMMAND_STATUS_DONE, failed(acks)
		return r, true
	case now.Sub(t.began) >= rejoinWait:
		r = overdue(open, fmt.Sprintf("did not train again within %v", rejoinWait))
		r.Ranks = acks
		return r, true
	case len(acks) != t.told:
		t.told = len(acks)
		return r, false
	}
	return nil, false
}

// Linger goes on: the command's deadline bounds the delivery.
func (t *rejoinTask) Linger(now time.Time) (*falconv1.CommandResult, bool) { return t.Step(now) }

// failed names the first rank whose rejoin failed, "" for none.
func failed(acks []*falconv1.RankAck) string {
	for _, a := range acks {
		if a.Status != 0 {
			return fmt.Sprintf("rank %d could not go on: status %d", a.Rank, a.Status)
		}
	}
	return ""
}

// stopTask watches processes that were told to end, until they have.
type stopTask struct {
	agent *Agent
	cmd   *falconv1.StopCommand
	ranks []*process
	left  int // launched here and not followed, that still run
}

// startStop has processes end with success where they park. One that trains is
// suspended for it; one that has gone on in this generation is not meant. Without
// ranks the whole node is meant: also what becomes known only later, and what was
// launched for an earlier generation and never made a communicator.
func (a *Agent) startStop(cmd *falconv1.StopCommand) (*stopTask, error) {
	t := &stopTask{agent: a, cmd: cmd}
	if err := t.order(); err != nil {
		return nil, err
	}
	a.log.Info("processes were told to end", slog.Uint64("generation", cmd.GetGeneration()), slog.Int("processes", len(t.ranks)))
	return t, nil
}

// order tells all processes that are meant and have not been told.
func (t *stopTask) order() error {
	var fresh []*process
	for _, p := range t.agent.alive() {
		if !t.means(p) || slices.Contains(t.ranks, p) {
			continue
		}
		if !p.canPark() {
			return fmt.Errorf("%s can't be stopped: the job has no adapter (falcon_job.h)", p)
		}
		fresh = append(fresh, p)
	}
	now, g := t.agent.dir.MonoNs(), t.cmd.GetGeneration()
	for _, p := range fresh {
		st := p.seg.Control()
		if max(st.SuspendWanted, st.GenerationNow) < g {
			if err := p.seg.Suspend(g, now); err != nil {
				return fmt.Errorf("%s: %w", p, err)
			}
		}
		p.seg.Stop(g)
		p.ending = true
	}
	t.ranks = append(t.ranks, fresh...)
	return nil
}

// means reports whether the order is about a process.
func (t *stopTask) means(p *process) bool {
	if ranks := t.cmd.GetRanks(); len(ranks) > 0 && !slices.Contains(ranks, int32(p.rank)) {
		return false
	}
	g := t.cmd.GetGeneration()
	if at, ok := p.seg.Rejoined(); ok && at.Generation >= g && at.Status == 0 && !p.parkedIn(0) {
		return false
	}
	fresh := p.status.Generation >= g && t.agent.launcher.Fresh(p.status.Generation)
	return len(t.cmd.GetRanks()) > 0 || !fresh
}

func (t *stopTask) open() []*process {
	return slices.DeleteFunc(slices.Clone(t.ranks), func(p *process) bool { return p.dead })
}

// Step is done when all have ended.
func (t *stopTask) Step(now time.Time) (*falconv1.CommandResult, bool) {
	t.agent.urgent(now)
	if len(t.cmd.GetRanks()) == 0 {
		if err := t.order(); err != nil {
			return &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_REFUSED, Detail: err.Error()}, true
		}
		t.left = t.agent.launcher.EndUnseen(t.cmd.GetGeneration(), t.agent.startedAs())
	}
	if len(t.open()) > 0 || t.left > 0 {
		return nil, false
	}
	return &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}, true
}

// Linger gives up at the deadline, and names who has not ended.
func (t *stopTask) Linger(now time.Time) (*falconv1.CommandResult, bool) {
	if r, done := t.Step(now); done {
		return r, true
	}
	return overdue(t.open(), "did not end in time"), true
}
