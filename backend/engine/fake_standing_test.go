package engine

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// standing is what an agent of now says of the orders that it has had; nil for one of before.
func (a *fakeAgent) standing(j *fakeJob) *falconv1.Standing {
	if a.protocol < falconv1.StandingRevision {
		return nil
	}
	if a.stands == nil {
		return &falconv1.Standing{}
	}
	out := proto.CloneOf(a.stands)
	out.Generation = max(out.GetGeneration(), a.crew.suspended, j.kept.generation)
	for _, r := range a.ranks {
		out.Generation = max(
			out.GetGeneration(),
			a.crew.made[r],
			a.crew.rejoined[r],
		)
	}
	return out
}

func (a *fakeAgent) follows(w *falconv1.Welcome) {
	if a.stands == nil {
		a.stands = &falconv1.Standing{}
	}
	if w.GetEpoch() > a.stands.GetEpoch() {
		a.stands.Epoch = w.GetEpoch()
		a.stands.Command = 0
		a.stands.Engine = nil
	}
	if w.GetEpoch() == a.stands.GetEpoch() {
		a.stands.Engine = w.GetEngine()
	}
}

// outdated refuses what is older than what the agent has seen, as those of now do.
func (a *fakeAgent) outdated(c *falconv1.Command, j *fakeJob) bool {
	if a.protocol < falconv1.StandingRevision {
		return false
	}
	refuse := func(n *falconv1.Standing, why string) bool {
		a.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Result{Result: &falconv1.CommandResult{
			Epoch:  c.GetEpoch(),
			Id:     c.GetId(),
			Status: falconv1.CommandStatus_COMMAND_STATUS_REFUSED,
			Detail: why,
			Newer:  n,
		}}})
		return true
	}
	if c.GetEpoch() < a.stands.GetEpoch() {
		return refuse(a.standing(j), fmt.Sprintf("epoch %d is over", c.GetEpoch()))
	}
	a.follows(&falconv1.Welcome{Epoch: c.GetEpoch(), Engine: a.stands.GetEngine()})
	a.stands.Command = max(a.stands.GetCommand(), c.GetId())
	g := max(
		c.GetSuspend().GetGeneration(),
		c.GetLaunch().GetGeneration(),
		c.GetRejoin().GetGeneration(),
	)
	has := a.standing(j).GetGeneration()
	if g != 0 && g < has {
		return refuse(
			&falconv1.Standing{Epoch: c.GetEpoch(), Generation: has},
			fmt.Sprintf("generation %d is over", g),
		)
	}
	return false
}
