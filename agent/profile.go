package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/act"
	"github.com/failslow/falcon/agent/ring"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Refusals of commands; their text is what the operator reads.
var (
	errNoRank  = errors.New("no training process of this job is known here")
	errWindow  = errors.New("a profile window is open already")
	errMoving  = errors.New("the ranks are changing places: ask again")
	errUnknown = errors.New("this agent does not know the command: update it")
)

// profileTask holds one profile window on some of the node's ranks.
type profileTask struct {
	agent    *Agent
	id       uint64
	want     int // whole iterations
	ranks    []*process
	windowBy time.Time // when the window ends at the latest
	deadline time.Time // when the answer must be given
	stopped  time.Time // zero while it is open
}

func (a *Agent) startProfile(cmd *falconv1.ProfileCommand, now, deadline time.Time) (act.Task, error) {
	ranks := a.processes.withRanks(cmd.GetRanks())
	if len(ranks) == 0 {
		return nil, errNoRank
	}
	if a.held != nil {
		return nil, errHeld
	}
	if ranksMoving(ranks) {
		return nil, errMoving
	}
	for _, p := range ranks {
		if p.window != nil {
			return nil, errWindow
		}
	}
	t := &profileTask{
		agent: a, id: cmd.GetWindow(), ranks: ranks,
		want:     min(max(int(cmd.GetIterations()), 1), iterationsMax),
		deadline: deadline,
	}
	left := deadline.Sub(now)
	t.windowBy = now.Add(min(profileMax, left-min(timingsWait, left/2)))
	until := a.dir.MonoNs() + t.windowBy.Sub(now).Nanoseconds()
	for _, p := range ranks {
		p.refresh()
		p.window = newWindow(t.id, p.status)
		p.seg.StartProfile(p.window.id, until, ring.CommMask{})
	}
	return t, nil
}

// Poll closes the window once every rank has its iterations, waits for the
// device to finish, and ships the profile.
func (t *profileTask) Poll(now time.Time) (*falconv1.CommandResult, bool) {
	t.ranks = slices.DeleteFunc(t.ranks, func(p *process) bool { return p.dead })
	if t.stopped.IsZero() {
		if !t.windowComplete() && now.Before(t.windowBy) {
			return nil, false
		}
		for _, p := range t.ranks {
			p.seg.StopProfile()
		}
		t.stopped = now
		return nil, false
	}
	if !t.timingsWritten() && now.Sub(t.stopped) < timingsWait && now.Before(t.deadline) {
		return nil, false
	}
	return t.sendProfile(), true
}

func (t *profileTask) windowComplete() bool {
	return !slices.ContainsFunc(t.ranks, func(p *process) bool {
		return !p.window.cut && p.window.wholeIterations(p.hasMarks(), p.status) < t.want
	})
}

func (t *profileTask) timingsWritten() bool {
	return !slices.ContainsFunc(t.ranks, func(p *process) bool { return p.status.ProfileDone != p.window.id })
}

func (t *profileTask) sendProfile() *falconv1.CommandResult {
	out := &falconv1.Profile{Window: t.id}
	var thin []string
	moved := false
	for _, p := range t.ranks {
		moved = moved || p.window.moved
		p.refresh()
		got := p.summarize(t.id, p.seg.Timings(p.window.id, nil))
		p.window = nil
		p.queueMs = got.QueueMs
		if got.Iterations == 0 {
			thin = append(thin, p.String())
		}
		trimCalls(&got, frameCallsMax/len(t.ranks))
		out.Ranks = append(out.Ranks, convert.ProfileToProto(got))
	}
	res := &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}
	switch {
	case len(t.ranks) == 0:
		out.Refused = "every rank of the window ended before it did"
	case moved:
		out.Refused = "the ranks changed places while the window was open: ask again"
	case len(thin) == len(t.ranks):
		out.Refused = fmt.Sprintf("no whole iteration was timed within %.0f s", profileMax.Seconds())
	case len(thin) > 0:
		res.Detail = "no whole iteration was timed on " + strings.Join(thin, ", ")
	}
	if out.Refused != "" {
		out.Ranks = nil
		res.Status, res.Detail = falconv1.CommandStatus_COMMAND_STATUS_REFUSED, out.Refused
	}
	t.agent.ship.Send(profileFrame(out))
	return res
}

// trimCalls keeps the newest timings, whose count goes into Dropped, so that a
// frame stays within what the engine takes.
func trimCalls(p *falcon.RankProfile, most int) {
	if over := len(p.Calls) - most; over > 0 {
		p.Dropped += uint64(over)
		p.Calls = p.Calls[over:]
	}
}
