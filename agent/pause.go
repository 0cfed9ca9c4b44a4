package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/failslow/falcon/agent/act"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of a pause.
const (
	heldPollEvery = time.Millisecond     // between polls while the job is held
	reportEvery   = 5 * time.Millisecond // reports of changes, which may come and go before the cut
	// for a hook to take up an order; its side thread polls every 100 ms
	takeUpWait  = 2 * time.Second
	releaseWait = 500 * time.Millisecond  // for a hook to confirm the release
	overdueWait = 1500 * time.Millisecond // beyond the deadline, for a hook that says nothing
)

var (
	errHeld     = errors.New("a pause is in force already")
	errSurprise = errors.New("this agent does not know the phase of the pause: update it")
)

// hold is the pause in force on this node. The loop steps it until no rank is
// held any more, whether or not the engine is still there; the hooks release by
// themselves at untilNs in any case.
type hold struct {
	agent   *Agent
	pause   uint64
	untilNs int64
	ranks   []*heldRank
	reason  string    // why it was taken back, "" unless a rank refused
	freed   time.Time // when the agent took it back, zero before
	over    bool
	version int // grows with every change of a rank's state
}

// heldRank is one rank's part of a hold.
type heldRank struct {
	*process
	order   uint64 // number of the pause on this process
	armedNs int64
	now     *falconv1.RankPause
}

var _ = enter[*falconv1.Command_Pause](command{
	start: func(a *Agent, cmd *falconv1.Command, now, _ time.Time) (act.Task, error) {
		return a.startPause(cmd.GetPause(), now)
	},
})

// startPause begins one step of a pause.
func (a *Agent) startPause(cmd *falconv1.PauseCommand, now time.Time) (act.Task, error) {
	switch cmd.GetPhase() {
	case falconv1.PausePhase_PAUSE_PHASE_SURVEY:
		if len(a.processes.withRanks(nil)) == 0 {
			return nil, errNoRank
		}
		if ranksMoving(a.processes.withRanks(nil)) {
			return nil, errMoving
		}
		return surveyTask{a}, nil
	case falconv1.PausePhase_PAUSE_PHASE_ARM:
		h, err := a.armCuts(cmd)
		var no *noHold
		switch {
		case errors.As(err, &no):
			return no, nil
		case err != nil:
			return nil, err
		}
		return &armTask{hold: h}, nil
	case falconv1.PausePhase_PAUSE_PHASE_RESUME:
		return a.releasePause(cmd.GetPause(), now)
	}
	return nil, errSurprise
}

// armCuts writes the cuts of all ranks of the node, or none.
func (a *Agent) armCuts(cmd *falconv1.PauseCommand) (*hold, error) {
	if a.held != nil {
		return nil, fmt.Errorf("%w: number %d", errHeld, a.held.pause)
	}
	ranks, cuts, err := a.ranksOfCuts(cmd.GetCuts())
	if err != nil {
		return nil, err
	}
	mono := a.dir.MonoNs()
	h := &hold{
		agent:   a,
		pause:   cmd.GetPause(),
		untilNs: mono + min(boundedMs(cmd.GetLifeMs()), ring.PauseMax).Nanoseconds(),
	}
	for i, p := range ranks {
		if p.window != nil {
			p.window.cut = true // a pause inside an iteration would count as its computation
		}
		r := &heldRank{
			process: p,
			order:   nextOrder(cmd.GetPause(), p.seg.Pause()),
			armedNs: mono,
		}
		boundary := int64(-1)
		if p.hasMarks() {
			boundary = cuts[i].GetIteration()
		}
		if err := p.seg.Arm(r.order, h.untilNs, boundary, limitsOf(cuts[i])); err != nil {
			h.releaseRanks()
			return nil, &noHold{rank: p, err: err}
		}
		h.ranks = append(h.ranks, r)
	}
	a.held = h
	a.log.Info(
		"the job's pause was ordered",
		slog.Uint64("pause", h.pause),
		slog.Int("ranks", len(h.ranks)),
	)
	return h, nil
}

func boundedMs(n int64) time.Duration {
	return time.Duration(min(max(n, 0), 1<<32)) * time.Millisecond
}

// noHold refuses to hold the node, for one rank that can't be: its answer says
// which, and whether a later cut could do.
type noHold struct {
	rank *process
	err  error
}

func (n *noHold) Error() string {
	return fmt.Sprintf("%s: %v", n.rank, n.err)
}

// Poll answers at once.
func (n *noHold) Poll(time.Time) (*falconv1.CommandResult, bool) {
	code := falconv1.PauseReason_PAUSE_REASON_UNSPECIFIED
	if errors.Is(n.err, ring.ErrMissed) {
		code = falconv1.PauseReason_PAUSE_REASON_MISSED
	}
	return &falconv1.CommandResult{
		Status: falconv1.CommandStatus_COMMAND_STATUS_REFUSED,
		Detail: n.Error(),
		Pauses: []*falconv1.RankPause{{
			Rank:       int32(n.rank.rank),
			State:      falconv1.PauseState_PAUSE_STATE_REFUSED,
			Reason:     n.err.Error(),
			ReasonCode: code,
		}},
	}, true
}

// nextOrder is the pause's own number where the process has not had it, so that
// a second try of one pause is another order to the hook.
func nextOrder(pause uint64, s ring.Pause) uint64 {
	return max(pause, s.Seen+1, 1)
}

// ranksOfCuts wants one cut for each of the node's living ranks, and gives them out.
func (a *Agent) ranksOfCuts(cuts []*falconv1.RankCut) (ranks []*process, own []*falconv1.RankCut, err error) {
	ranks = a.processes.withRanks(nil)
	if len(ranks) == 0 {
		return nil, nil, errNoRank
	}
	if ranksMoving(ranks) {
		return nil, nil, errMoving
	}
	for i, p := range ranks {
		for _, c := range cuts {
			if c.GetRank() == int32(p.rank) {
				own = append(own, c)
			}
		}
		if n := len(own) - i; n != 1 {
			return nil, nil, fmt.Errorf("%s has %d cuts in the order instead of one", p, n)
		}
	}
	if len(cuts) != len(ranks) {
		return nil, nil, fmt.Errorf("the order has cuts for %d ranks, %d are here", len(cuts), len(ranks))
	}
	return ranks, own, nil
}

func limitsOf(c *falconv1.RankCut) (out []ring.Cut) {
	for _, l := range c.GetLimits() {
		out = append(out, ring.Cut{Comm: l.GetComm(), Calls: l.GetCalls()})
	}
	return out
}

// releaseRanks takes the order back on every rank.
func (h *hold) releaseRanks() {
	for _, r := range h.ranks {
		if !r.dead {
			r.seg.Release()
		}
	}
}

// releaseOnce takes the pause back, once.
func (h *hold) releaseOnce(now time.Time) {
	if h.freed.IsZero() {
		h.freed = now
		h.releaseRanks()
	}
}

// stepRanks updates every rank, releases all where one refused, and ends when none is
// held any more.
func (h *hold) stepRanks(now time.Time) {
	mono := h.agent.dir.MonoNs()
	open := 0
	for _, r := range h.ranks {
		was := r.now
		r.now = h.pauseOf(r, mono, now)
		if was == nil || was.State != r.now.State || was.Reason != r.now.Reason {
			h.version++
		}
		if r.now.State == falconv1.PauseState_PAUSE_STATE_REFUSED && h.reason == "" {
			h.reason = fmt.Sprintf("%s: %s", r.process, r.now.Reason)
			h.releaseOnce(now)
		}
		switch {
		case !pauseEnded(r.now.State):
			open++
		case was == nil || !pauseEnded(was.State):
			r.notePause() // before another order takes its place
		}
	}
	if h.over = open == 0; h.over {
		h.releaseOnce(now) // clears the order, so that the next one finds none in force
		h.agent.held = nil
	}
}

func pauseEnded(s falconv1.PauseState) bool {
	return s >= falconv1.PauseState_PAUSE_STATE_RELEASED
}

// pauseOf is the state of one rank. A hook that reports nothing of an order that was
// taken back, or long past its deadline, counts as having released: gates without an
// order hold no call.
func (h *hold) pauseOf(r *heldRank, mono int64, now time.Time) *falconv1.RankPause {
	out := &falconv1.RankPause{Rank: int32(r.rank), State: falconv1.PauseState_PAUSE_STATE_ARMED}
	if r.now != nil && (r.dead || pauseEnded(r.now.State)) {
		out.HeldMs, out.QuietMs = r.now.HeldMs, r.now.QuietMs
		out.State = r.now.State
		out.Reason = r.now.Reason
		out.ReasonCode = r.now.ReasonCode
	}
	if pauseEnded(out.State) {
		return out
	}
	if r.dead {
		out.State = falconv1.PauseState_PAUSE_STATE_RELEASED
		out.Reason = "the process ended"
		return out
	}
	s := r.seg.Pause()
	switch {
	case s.Seen == r.order && s.State != ring.PauseNone:
		h.fillFromHook(out, r, s, mono)
	case h.freed.IsZero() && mono > r.armedNs+takeUpWait.Nanoseconds():
		out.State = falconv1.PauseState_PAUSE_STATE_REFUSED
		out.Reason = "its hook does not take up the order"
		out.ReasonCode = falconv1.PauseReason_PAUSE_REASON_NOT_TAKEN_UP
	}
	overdue := mono > h.untilNs+overdueWait.Nanoseconds()
	if !pauseEnded(out.State) &&
		(overdue || !h.freed.IsZero() && now.Sub(h.freed) >= releaseWait) {
		out.State = falconv1.PauseState_PAUSE_STATE_RELEASED
		out.Reason = "the hook has not confirmed it"
	}
	return out
}

// pauseStates are the contract's names of the hook's states.
var pauseStates = map[ring.PauseState]falconv1.PauseState{
	ring.PauseArmed:    falconv1.PauseState_PAUSE_STATE_ARMED,
	ring.PauseReached:  falconv1.PauseState_PAUSE_STATE_REACHED,
	ring.PauseQuiet:    falconv1.PauseState_PAUSE_STATE_QUIET,
	ring.PauseReleased: falconv1.PauseState_PAUSE_STATE_RELEASED,
	ring.PauseExpired:  falconv1.PauseState_PAUSE_STATE_EXPIRED,
	ring.PauseRefused:  falconv1.PauseState_PAUSE_STATE_REFUSED,
}

func (h *hold) fillFromHook(out *falconv1.RankPause, r *heldRank, s ring.Pause, mono int64) {
	out.State = pauseStates[s.State]
	out.HeldMs = float64(s.HeldNs(mono)) / 1e6
	q := s.QuietNs - r.armedNs
	if s.QuietNs > 0 && q >= 0 && q <= int64(ring.PauseMax) {
		out.QuietMs = float64(q) / 1e6
	}
	if s.State == ring.PauseRefused {
		if out.Reason = s.Reason.String(); out.Reason == "" {
			out.Reason = "the hook gives no reason"
		}
		out.ReasonCode = reasonCode(s.Reason)
	}
}

// reasonCode is the contract's name of the hook's reason; those of the agent
// itself are not the hook's to give.
func reasonCode(r ring.PauseReason) falconv1.PauseReason {
	code := falconv1.PauseReason(min(r, math.MaxInt32))
	if _, known := falconv1.PauseReason_name[int32(code)]; !known ||
		code >= falconv1.PauseReason_PAUSE_REASON_MISSED {
		return falconv1.PauseReason_PAUSE_REASON_UNSPECIFIED
	}
	return code
}

// isQuiet reports whether tests may run on this rank.
func (r *heldRank) isQuiet() bool {
	return r.now != nil && r.now.State == falconv1.PauseState_PAUSE_STATE_QUIET
}

func (h *hold) commandResult(status falconv1.CommandStatus) *falconv1.CommandResult {
	out := &falconv1.CommandResult{Status: status}
	for _, r := range h.ranks {
		if r.now != nil {
			out.Pauses = append(out.Pauses, r.now)
		}
	}
	return out
}

// armTask reports a hold: accepted at each change, done when it is over.
type armTask struct {
	hold       *hold
	reported   int
	reportedAt time.Time
}

// Poll reports what changed.
func (t *armTask) Poll(now time.Time) (*falconv1.CommandResult, bool) {
	switch {
	case t.hold.over && t.hold.reason != "":
		r := t.hold.commandResult(falconv1.CommandStatus_COMMAND_STATUS_REFUSED)
		r.Detail = t.hold.reason
		return r, true
	case t.hold.over:
		return t.hold.commandResult(falconv1.CommandStatus_COMMAND_STATUS_DONE), true
	case t.reported != t.hold.version && now.Sub(t.reportedAt) >= reportEvery:
		t.reported = t.hold.version
		t.reportedAt = now
		return t.hold.commandResult(falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED), false
	}
	return nil, false
}

// PollLate goes on beyond the command's deadline, which bounds the delivery; the
// hold has a deadline of its own.
func (t *armTask) PollLate(now time.Time) (*falconv1.CommandResult, bool) {
	return t.Poll(now)
}

// resumeTask waits for the hold's end.
type resumeTask struct{ hold *hold }

// Poll is done when every rank has been released.
func (t resumeTask) Poll(time.Time) (*falconv1.CommandResult, bool) {
	if !t.hold.over {
		return nil, false
	}
	return t.hold.commandResult(falconv1.CommandStatus_COMMAND_STATUS_DONE), true
}

// PollLate goes on: the hold ends by itself.
func (t resumeTask) PollLate(now time.Time) (*falconv1.CommandResult, bool) {
	return t.Poll(now)
}

// releasePause ends the pause in force. One that is not in force here is done already.
func (a *Agent) releasePause(pause uint64, now time.Time) (act.Task, error) {
	switch {
	case a.held == nil:
		return resumeTask{&hold{over: true}}, nil
	case a.held.pause != pause:
		return nil, fmt.Errorf("pause %d is not in force here, %d is", pause, a.held.pause)
	}
	a.held.releaseOnce(now)
	return resumeTask{a.held}, nil
}

// releaseLeftoverPause ends a pause that a killed predecessor of this agent has left in
// force: what it was for is not known any more.
func (p *process) releaseLeftoverPause(log *slog.Logger) {
	if s := p.seg.Pause(); s.Wanted != 0 {
		p.seg.Release()
		log.Warn(
			"took back a pause that an earlier agent has ordered",
			slog.String("process", p.String()),
			slog.Uint64("order", s.Wanted),
		)
	}
}

// surveyTask reports the counts of the node's ranks. The loop has drained them just
// before.
type surveyTask struct{ agent *Agent }

// Poll answers at once.
func (t surveyTask) Poll(time.Time) (*falconv1.CommandResult, bool) {
	out := &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}
	for _, p := range t.agent.processes.withRanks(nil) {
		p.refresh()
		out.Pauses = append(out.Pauses, p.surveyReply())
	}
	return out, true
}

// surveyReply is one rank's counts at the start of its newest iteration.
func (p *process) surveyReply() *falconv1.RankPause {
	out := &falconv1.RankPause{
		Rank:        int32(p.rank),
		State:       falconv1.PauseState_PAUSE_STATE_RUNNING,
		Newest:      -1,
		Exact:       p.hasMarks(),
		IterationMs: p.iterations.newestMs,
		RunAhead:    p.runAhead(),
	}
	if newest, known := p.survey.Newest(); known {
		out.Newest = newest
	}
	var known bool
	out.Boundary, out.Counts, known = p.survey.Report(p.comms.list)
	if missing := p.survey.Missing(); !known || missing > 0 {
		out.State = falconv1.PauseState_PAUSE_STATE_REFUSED
		out.Reason = fmt.Sprintf("three whole iterations of this rank are not known yet: wait for %d more",
			missing)
		if !p.hasMarks() && p.iterations.infer.Period() == 0 {
			out.Reason = p.periodReason()
		}
	}
	return out
}

// runAhead is how many iterations the host was ahead of the device in the last
// profile, rounded up; 0 when that is not known.
func (p *process) runAhead() int64 {
	if p.iterations.newestMs <= 0 || p.queueMs <= 0 {
		return 0
	}
	const most = 1 << 20
	return int64(min(p.queueMs/p.iterations.newestMs, most) + 0.5)
}

// span is a stretch of time in which the hook held a rank, CLOCK_MONOTONIC ns.
type span struct {
	order    uint64
	from, to int64 // to is 0 while it goes on
}

// spansMax is how many pauses are remembered, to be taken out of the iterations
// that they fell into.
const spansMax = 8

// pauseHistory is the newest pauses of a process.
type pauseHistory struct{ spans []span } // newest last

func (h *pauseHistory) addPause(s ring.Pause) {
	if s.TrappedNs <= 0 || s.State == ring.PauseNone {
		return
	}
	now := span{order: s.Seen, from: s.TrappedNs, to: s.ReleasedNs}
	i := slices.IndexFunc(h.spans, func(o span) bool {
		return o.order == s.Seen
	})
	if i >= 0 {
		h.spans[i] = now
		return
	}
	h.spans = append(h.spans[max(0, len(h.spans)+1-spansMax):], now)
}

// pausedWithin is how much of a stretch of time the hook held the rank.
func (h *pauseHistory) pausedWithin(fromNs, toNs int64) time.Duration {
	var held int64
	for _, s := range h.spans {
		end := toNs
		if s.to > 0 {
			end = min(s.to, toNs)
		}
		held += max(0, end-max(s.from, fromNs))
	}
	return time.Duration(min(held, toNs-fromNs))
}

// notePause remembers the newest pause of the process.
func (p *process) notePause() {
	p.pauses.addPause(p.seg.Pause())
}

// pausedMsWithin is how much of a stretch of time the hook held the rank.
func (p *process) pausedMsWithin(fromNs, toNs int64) float64 {
	p.notePause()
	return float64(p.pauses.pausedWithin(fromNs, toNs)) / 1e6
}
