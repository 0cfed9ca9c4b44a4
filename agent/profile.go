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
	columns  bool      // the engine takes calls in columns
	windowBy time.Time // when the window ends at the latest
	deadline time.Time // when the answer must be given
	stopped  time.Time // zero while it is open
}

var _ = enter[*falconv1.Command_Profile](command{
	start: func(a *Agent, cmd *falconv1.Command, now, deadline time.Time) (act.Task, error) {
		return a.startProfile(cmd.GetProfile(), now, deadline)
	},
	refused: func(a *Agent, cmd *falconv1.Command, why string) {
		a.ship.Send(profileFrame(&falconv1.Profile{
			Window:  cmd.GetProfile().GetWindow(),
			Refused: why,
		}))
	},
})

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
		agent:    a,
		id:       cmd.GetWindow(),
		ranks:    ranks,
		columns:  cmd.GetColumns(),
		want:     min(max(int(cmd.GetIterations()), 1), iterationsMax),
		deadline: deadline,
	}
	left := deadline.Sub(now)
	t.windowBy = now.Add(min(profileMax, left-min(timingsWait, left/2)))
	until := a.dir.MonoNs() + t.windowBy.Sub(now).Nanoseconds()
	for _, p := range ranks {
		p.refresh()
		p.window = newWindow(t.id, p.status, p.lost)
		p.window.single = p.iterations.infer.Period() == 1
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
	if !t.timingsWritten() &&
		now.Sub(t.stopped) < timingsWait &&
		now.Before(t.deadline) {
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
	return !slices.ContainsFunc(t.ranks, func(p *process) bool {
		return p.status.ProfileDone != p.window.id
	})
}

func (t *profileTask) sendProfile() *falconv1.CommandResult {
	var profiles []falcon.RankProfile
	var thin []string
	moved := false
	for _, p := range t.ranks {
		moved = moved || p.window.moved
		p.refresh()
		got := p.summarize(t.id, p.seg.Timings(p.window.id, nil))
		p.window = nil
		p.queueMs = got.QueueMs
		if got.Iterations == 0 {
			thin = append(thin, fmt.Sprintf("%s (%d timings, %d lost)",
				p, len(got.Calls), got.Dropped))
		}
		profiles = append(profiles, got)
	}
	res := &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}
	refused := ""
	switch {
	case len(t.ranks) == 0:
		refused = "every rank of the window ended before it did"
	case moved:
		refused = "the ranks changed places while the window was open: ask again"
	case len(thin) == len(t.ranks):
		refused = fmt.Sprintf("no whole iteration was timed within %.0f s", profileMax.Seconds())
		if lost := droppedOf(profiles); lost > 0 {
			refused += fmt.Sprintf(": %d timings were lost", lost)
		}
	case len(thin) > 0:
		res.Detail = "no whole iteration was timed on " + strings.Join(thin, ", ")
	}
	if refused != "" {
		res.Status = falconv1.CommandStatus_COMMAND_STATUS_REFUSED
		res.Detail = refused
		t.agent.ship.Send(profileFrame(&falconv1.Profile{
			Window:  t.id,
			Refused: refused,
		}))
		return res
	}
	for _, part := range frameParts(profiles) {
		out := &falconv1.Profile{Window: t.id}
		for _, p := range part {
			if t.columns {
				out.Ranks = append(out.Ranks, convert.PackedProfileToProto(p))
			} else {
				out.Ranks = append(out.Ranks, convert.ProfileToProto(p))
			}
		}
		t.agent.ship.Send(profileFrame(out))
	}
	return res
}

func droppedOf(profiles []falcon.RankProfile) (lost uint64) {
	for i := range profiles {
		lost += profiles[i].Dropped
	}
	return lost
}

// frameParts spreads the ranks' profiles over as many frames as keep each to
// frameCallsMax timings, or to one rank.
func frameParts(profiles []falcon.RankProfile) (parts [][]falcon.RankProfile) {
	calls := 0
	for _, p := range profiles {
		if calls += len(p.Calls); len(parts) == 0 || calls > frameCallsMax {
			parts = append(parts, nil)
			calls = len(p.Calls)
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], p)
	}
	return parts
}
