package engine

import (
	"bytes"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// fakeHold is an agent's half of a pause. The fake ranks mark their steps, and
// call the one communicator once an iteration; iteration i begins with i calls
// done.
type fakeHold struct {
	pause  uint64
	arm    *falconv1.Command // in force
	quiet  bool
	heldMs float64
	phases []falconv1.PausePhase // as they came
	tests  []falconv1.TestKind
	late   int                          // so many orders are refused
	code   falconv1.PauseReason         // why, else missed
	mute   map[falconv1.PausePhase]bool // never answered
	silent falconv1.TestKind            // test that is never answered
	survey func(*falconv1.RankPause)    // what is wrong in the survey
	onTest func()                       // called before a test is answered
	slow   map[int32]float64            // by rank, × of everything
	letGo  int                          // orders to resume that were obeyed
	stuck  bool                         // its ranks never come to the boundary
}

// validates handles the commands of a validation; false for others.
func (a *fakeAgent) validates(c *falconv1.Command, j *fakeJob) bool {
	switch {
	case c.GetTest() != nil:
		a.test(c)
	case c.GetPause() == nil:
		return false
	default:
		p := c.GetPause()
		a.hold.phases = append(a.hold.phases, p.GetPhase())
		if a.hold.mute[p.GetPhase()] { // as if it had never come
			delete(a.executed, cmdKey{c.GetEpoch(), c.GetId()})
			return true
		}
		switch p.GetPhase() {
		case falconv1.PausePhase_PAUSE_PHASE_SURVEY:
			a.survey(c, j)
		case falconv1.PausePhase_PAUSE_PHASE_ARM:
			a.armHold(c, j)
		case falconv1.PausePhase_PAUSE_PHASE_RESUME:
			a.resume(c)
		}
	}
	return true
}

func (a *fakeAgent) reply(c *falconv1.Command, r *falconv1.CommandResult) {
	r.Epoch = c.GetEpoch()
	r.Id = c.GetId()
	a.answers[cmdKey{c.GetEpoch(), c.GetId()}] = r
	a.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Result{Result: r}})
}

func (a *fakeAgent) pauses(state falconv1.PauseState) []*falconv1.RankPause {
	var out []*falconv1.RankPause
	for _, r := range a.ranks {
		out = append(out, &falconv1.RankPause{
			Rank:    r,
			State:   state,
			HeldMs:  a.hold.heldMs,
			QuietMs: 12,
		})
	}
	return out
}

func (a *fakeAgent) survey(c *falconv1.Command, j *fakeJob) {
	res := &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}
	for _, p := range a.pauses(falconv1.PauseState_PAUSE_STATE_RUNNING) {
		p.Newest = j.iteration
		p.Boundary = j.iteration
		p.Exact = true
		p.IterationMs = healthyMs
		p.Counts = []*falconv1.CommCount{{
			Comm:                    77,
			Calls:                   uint64(j.iteration),
			PerIteration:            1,
			Steady:                  true,
			CollectivesPerIteration: 1,
			Collectives:             uint64(j.iteration),
			Whole:                   true,
		}}
		if a.hold.survey != nil {
			a.hold.survey(p)
		}
		res.Pauses = append(res.Pauses, p)
	}
	a.reply(c, res)
}

func (a *fakeAgent) armHold(c *falconv1.Command, j *fakeJob) {
	cuts := c.GetPause().GetCuts()
	for _, cut := range cuts {
		if cut.GetIteration() != cuts[0].GetIteration() ||
			cut.GetLimits()[0].GetCalls() != uint64(cut.GetIteration()) {
			a.t.Errorf("cut %v is not at the start of its iteration", cut)
		}
	}
	if a.hold.late > 0 || cuts[0].GetIteration() < j.iteration {
		a.hold.late--
		res := &falconv1.CommandResult{
			Status: falconv1.CommandStatus_COMMAND_STATUS_REFUSED,
			Detail: "the cut was missed",
		}
		for _, p := range a.pauses(falconv1.PauseState_PAUSE_STATE_REFUSED)[:1] {
			p.ReasonCode = falconv1.PauseReason_PAUSE_REASON_MISSED
			if a.hold.code != 0 {
				p.ReasonCode = a.hold.code
			}
			res.Pauses = append(res.Pauses, p)
		}
		a.reply(c, res)
		return
	}
	a.hold.arm, a.hold.pause, a.hold.quiet, a.hold.heldMs = c, c.GetPause().GetPause(), false, 0
	a.reply(c, &falconv1.CommandResult{
		Status: falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED,
		Pauses: a.pauses(falconv1.PauseState_PAUSE_STATE_ARMED),
	})
}

func (a *fakeAgent) resume(c *falconv1.Command) {
	a.hold.letGo++
	arm := a.hold.arm
	if arm != nil && a.hold.pause == c.GetPause().GetPause() {
		a.hold.arm = nil
		a.reply(arm, &falconv1.CommandResult{
			Status: falconv1.CommandStatus_COMMAND_STATUS_DONE,
			Pauses: a.pauses(falconv1.PauseState_PAUSE_STATE_RELEASED),
		})
	}
	a.reply(c, &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE})
}

// held reports whether some rank is held at its cut; each reports that once.
func (j *fakeJob) held() bool {
	held := false
	for _, a := range j.agents {
		arm := a.hold.arm
		if arm == nil ||
			a.hold.stuck ||
			j.iteration < arm.GetPause().GetCuts()[0].GetIteration() {
			continue
		}
		held = true
		a.hold.heldMs += healthyMs
		if !a.hold.quiet {
			a.hold.quiet = true
			a.reply(arm, &falconv1.CommandResult{
				Status: falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED,
				Pauses: a.pauses(falconv1.PauseState_PAUSE_STATE_QUIET),
			})
		}
	}
	return held
}

// expire is what the hooks do at the order's deadline.
func (a *fakeAgent) expire() {
	if arm := a.hold.arm; arm != nil {
		a.hold.arm = nil
		a.reply(arm, &falconv1.CommandResult{
			Status: falconv1.CommandStatus_COMMAND_STATUS_DONE,
			Pauses: a.pauses(falconv1.PauseState_PAUSE_STATE_EXPIRED),
		})
	}
}

func (a *fakeAgent) test(c *falconv1.Command) {
	res := &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}
	if a.hold.onTest != nil {
		a.hold.onTest()
	}
	for _, t := range c.GetTest().GetTests() {
		a.hold.tests = append(a.hold.tests, t.GetKind())
		if t.GetKind() == a.hold.silent {
			return
		}
		out := &falconv1.TestResult{
			Test:     c.GetTest().GetTest(),
			Rank:     t.GetRank(),
			Kind:     t.GetKind(),
			Status:   falconv1.TestStatus_TEST_STATUS_DONE,
			MedianMs: 2,
		}
		if x := a.hold.slow[t.GetRank()]; x > 0 {
			out.MedianMs *= x
		}
		switch {
		case a.hold.arm == nil || !a.hold.quiet:
			out.Status = falconv1.TestStatus_TEST_STATUS_REFUSED
			out.Reason = "the job is not held"
		case t.GetKind() == falconv1.TestKind_TEST_KIND_ID:
			out.ForwardId = bytes.Repeat([]byte{1}, uniqueID)
			out.BackwardId = bytes.Repeat([]byte{2}, uniqueID)
		case t.GetKind() == falconv1.TestKind_TEST_KIND_LINK &&
			(len(t.GetForwardId()) != uniqueID || t.GetForwardId()[0] != 1):
			out.Status = falconv1.TestStatus_TEST_STATUS_FAILED
			out.Reason = "no ids"
		}
		res.Tests = append(res.Tests, out)
	}
	a.reply(c, res)
}
