package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/mitigate"
)

// fakePlace is an agent's half of placements and launches.
type fakePlace struct {
	launches int32           // processes that it can start
	pids     map[int32]int32 // by rank, once they are not those that the job began with
	refuse   string          // launches, with this reason
	started  int             // launches carried out
	// acknowledgements of placements and checkpoints get lost; what ranks say themselves does not
	mute bool
}

// fakeHistory is what really happened, to be compared with what the engine
// made of it.
type fakeHistory struct {
	order, generation uint64
	from              int64
	status            int32 // with which the ranks refuse placements
	stays             int32 // so many ranks, from the last, do not end after a checkpoint
	holder            map[sampleKey]int32
}

type sampleKey struct {
	rank      int32
	iteration int64
}

func (h *fakeHistory) note(rank int32, iteration int64, pid int32) {
	if h.holder == nil {
		h.holder = map[sampleKey]int32{}
	}
	h.holder[sampleKey{rank, iteration}] = pid
}

func (j *fakeJob) agent(node string) *fakeAgent {
	return j.agents[slices.IndexFunc(j.agents, func(a *fakeAgent) bool { return a.node == node })]
}

func (j *fakeJob) pidOf(node string, r int32) int32 {
	if pid, ok := j.agent(node).place.pids[r]; ok {
		return pid
	}
	return j.pid + r
}

// holders are the agents whose nodes hold ranks.
func (j *fakeJob) holders() []*fakeAgent {
	return slices.DeleteFunc(slices.Clone(j.agents), func(a *fakeAgent) bool {
		return len(a.ranks) == 0
	})
}

// spare adds a node without ranks; all nodes can start processes then.
func (j *fakeJob) spare() {
	a := *j.agents[0]
	a.node = fmt.Sprint("n", len(j.agents))
	a.ranks = nil
	a.answers = map[cmdKey]*falconv1.CommandResult{}
	a.executed = map[cmdKey]int{}
	a.mailbox = map[uint64]*falconv1.OrderCommand{}
	j.agents = append(j.agents, &a)
	for _, a := range j.agents {
		a.place.launches = 2
	}
}

// votes carries out what is no split; false for splits.
func (j *fakeJob) votes(id uint64) bool {
	switch o := j.agents[0].mailbox[id]; falcon.OrderKind(o.GetKind()) {
	case falcon.OrderPlacement:
		j.swap(id, o.GetBlocks())
	case falcon.OrderCheckpoint:
		j.checkpoint(id)
	default:
		return false
	}
	return true
}

// swap moves the ranks, as all of them do at the vote. Every agent announces
// its new ranks first and acknowledges then.
func (j *fakeJob) swap(id uint64, blocks []int32) {
	olds := map[*fakeAgent][]int32{}
	if j.kept.status == 0 {
		j.kept.order = id
		j.kept.from = j.iteration
	}
	for _, a := range j.holders() {
		olds[a] = a.ranks
		if j.kept.status != 0 {
			continue
		}
		now := []int32{}
		pids := map[int32]int32{}
		for _, r := range a.ranks {
			to := blocks[r/2]*2 + r%2
			now = append(now, to)
			pids[to] = j.pidOf(a.node, r)
		}
		a.ranks, a.place.pids = now, pids
	}
	for _, a := range j.holders() {
		for _, r := range a.ranks {
			if s := j.rankState(a.node, r); j.kept.status == 0 {
				s.GetRank().Comms[0].Id = 77 + id
				a.send(s)
			}
		}
		a.swapped(id, j.iteration, olds[a], j.kept.status)
	}
}

func (a *fakeAgent) swapped(id uint64, iteration int64, olds []int32, status int32) {
	for k, res := range a.answers {
		if res.GetStatus() != falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED || a.place.mute {
			continue
		}
		done := &falconv1.CommandResult{
			Epoch:  k.epoch,
			Id:     k.id,
			Status: falconv1.CommandStatus_COMMAND_STATUS_DONE,
		}
		for i, r := range olds {
			done.Ranks = append(done.Ranks, &falconv1.RankAck{
				Rank:       r,
				NowRank:    a.ranks[i],
				Order:      id,
				Iteration:  iteration,
				Status:     status,
				StepMs:     []float64{1, 2, 3, float64(r)},
				MovedBytes: 1e6,
			})
		}
		a.answers[k] = done
		a.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Result{Result: done}})
	}
}

func (a *fakeAgent) ack(r int32, order uint64, iteration int64) *falconv1.RankAck {
	return &falconv1.RankAck{
		Rank:            r,
		NowRank:         r,
		Order:           order,
		Iteration:       iteration,
		ResumeIteration: iteration,
	}
}

// checkpoint has the ranks acknowledge, and end.
func (j *fakeJob) checkpoint(id uint64) {
	for _, a := range j.agents {
		if !a.place.mute {
			a.committed(id, j.iteration)
		}
	}
	for _, a := range j.holders() {
		for _, r := range a.ranks {
			s := j.rankState(a.node, r)
			if r >= fakeRanks-j.kept.stays {
				continue
			}
			s.GetRank().Alive, s.GetRank().Exit = false, falconv1.ExitedNormally
			s.GetRank().Committed = &falconv1.Commitment{
				Order:           id,
				Iteration:       j.iteration,
				ResumeIteration: j.iteration,
			}
			a.send(s)
		}
		a.ranks = nil
	}
	j.waits = true
}

// launch starts processes; the job trains once all of them run.
func (a *fakeAgent) launch(c *falconv1.Command, j *fakeJob) {
	l := c.GetLaunch()
	if a.place.refuse != "" {
		a.reply(c, &falconv1.CommandResult{
			Status: falconv1.CommandStatus_COMMAND_STATUS_REFUSED,
			Detail: a.place.refuse,
		})
		return
	}
	a.place.started++
	a.place.pids = map[int32]int32{}
	j.kept.generation = l.GetGeneration()
	j.kept.order = 0
	j.kept.from = 0
	if l.GetWorld() != j.world() { // a trainer deals the batch as the machine does
		j.micro = falcon.Deal(8*fakeRanks, int(l.GetWorld()), 1)
	}
	done := &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}
	for _, r := range l.GetRanks() {
		a.ranks = append(a.ranks, r.GetRank())
		a.place.pids[r.GetRank()] = int32(1000*l.GetGeneration()) + r.GetRank()
		a.send(j.rankState(a.node, r.GetRank()))
		done.Ranks = append(done.Ranks, &falconv1.RankAck{
			Rank:    r.GetRank(),
			NowRank: r.GetRank(),
		})
	}
	a.reply(c, done)
	running := 0
	for _, a := range j.agents {
		running += len(a.ranks)
	}
	j.waits = running < int(l.GetWorld())
	j.stalled = j.waits
}

// fakePlanner takes one action: a placement, or a restart.
type fakePlanner struct {
	kind   falcon.OrderKind // order's
	at     int64
	blocks []int32
	to     falcon.Placement // of the launch
	fence  *mitigate.Fence  // has a node replaced instead of ordering anything

	job    mitigate.Job
	action *falcon.Action
	next   uint64
	ready  mitigate.Ready
	policy falcon.Policy
	heard  []mitigate.Input
}

// again is the planner of an engine that is started again.
func (p *fakePlanner) again() *fakePlanner {
	return &fakePlanner{
		kind:   p.kind,
		at:     p.at,
		blocks: p.blocks,
		to:     p.to,
		fence:  p.fence,
		next:   1,
	}
}

func (p *fakePlanner) Step(_ time.Time, in mitigate.Input) {
	p.heard = append(p.heard, in)
	switch in := in.(type) {
	case mitigate.Job:
		p.job = in
	case mitigate.SetPolicy:
		p.policy = in.Policy
	case mitigate.Restored:
		p.next = in.NextOrder
		for _, a := range in.Actions {
			p.action = &a
		}
		if p.fence != nil && p.on(falcon.ActionDispatched) {
			p.ready.Fences = append(p.ready.Fences, *p.fence)
		}
	case mitigate.Iteration:
		p.propose(in)
	case mitigate.Committed:
		p.committed(in)
	case mitigate.Undeliverable:
		if p.on(falcon.ActionDispatched) && in.Order == p.action.OrderID {
			p.turn(falcon.ActionFailed, in.Reason)
		}
	case mitigate.Left:
		p.left(in)
	case mitigate.Fenced:
		p.fenced(in)
	case mitigate.Launched:
		if p.on(falcon.ActionDispatched) && in.Failed == "" {
			p.turn(falcon.ActionKept, "")
		} else if p.on(falcon.ActionDispatched) {
			p.turn(falcon.ActionFailed, in.Failed)
		}
	}
}

func (p *fakePlanner) on(s falcon.ActionState) bool {
	return p.action != nil && p.action.State == s
}

func (p *fakePlanner) turn(s falcon.ActionState, why string) {
	p.action.State, p.action.Reason = s, why
	p.ready.Actions = append(p.ready.Actions, *p.action)
}

func (p *fakePlanner) propose(in mitigate.Iteration) {
	if p.action != nil || in.Index < p.at {
		return
	}
	if p.fence != nil {
		p.action = &falcon.Action{
			ID:        p.fence.Action,
			Incident:  p.fence.Incident,
			Rung:      falcon.RungS4,
			Execution: falcon.Execution{Phase: falcon.PhaseFencing},
			Decision:  falcon.Decision{DecidedBy: byPolicy},
			Plan:      falcon.Plan{PlanHash: "p1", Variant: falcon.VariantFence},
		}
		p.ready.Fences = append(p.ready.Fences, *p.fence)
		p.turn(falcon.ActionDispatched, "")
		return
	}
	p.action = &falcon.Action{
		ID:        "INC-0001/S3/1",
		Incident:  "INC-0001",
		Rung:      falcon.RungS3,
		Execution: falcon.Execution{OrderID: p.next},
		Decision:  falcon.Decision{DecidedBy: byPolicy},
		Plan:      falcon.Plan{PlanHash: "p1"},
	}
	p.ready.Orders = append(p.ready.Orders, falcon.Order{
		Epoch:  p.job.Epoch,
		ID:     p.next,
		Kind:   p.kind,
		Blocks: p.blocks,
		Leave:  p.kind == falcon.OrderCheckpoint,
	})
	p.next++
	p.turn(falcon.ActionDispatched, "")
}

func (p *fakePlanner) committed(in mitigate.Committed) {
	switch {
	case p.action == nil ||
		in.Order != p.action.OrderID ||
		p.on(falcon.ActionApplied):
	case in.Status != 0:
		p.turn(falcon.ActionFailed, "rolled back")
	case p.kind == falcon.OrderCheckpoint:
		p.turn(falcon.ActionDispatched, "leaving")
	default:
		p.action.AppliedIteration = in.Iteration
		p.action.Swap = in.Swap
		p.turn(falcon.ActionApplied, "")
		p.ready.Acted = append(p.ready.Acted, mitigate.Acted{
			Incident:  "INC-0001",
			Rung:      falcon.RungS3,
			Iteration: in.Iteration,
			Placement: swapped(p.job.Placement),
		})
	}
}

func swapped(p falcon.Placement) falcon.Placement {
	return moved(p, moves([]int32{1, 0}, len(p)))
}

func (p *fakePlanner) left(in mitigate.Left) {
	if !p.on(falcon.ActionDispatched) || p.action.Reason != "leaving" {
		return
	}
	if in.Reason != "" {
		p.turn(falcon.ActionFailed, in.Reason)
		return
	}
	p.ready.Launch = &falcon.Launch{Generation: 1, Placement: p.to, Resume: true}
	p.turn(falcon.ActionDispatched, "launching")
}

func (p *fakePlanner) fenced(in mitigate.Fenced) {
	if p.action == nil {
		return
	}
	p.action.Phase = ""
	p.action.Recovery = in.Recovery
	p.action.Resume = in.Resume
	if in.Failed != "" {
		p.turn(falcon.ActionFailed, in.Failed)
		return
	}
	p.to = in.Placement
	p.turn(falcon.ActionKept, "")
}

func (p *fakePlanner) Tick(time.Time) {}
func (p *fakePlanner) Ready() mitigate.Ready {
	return p.ready
}

func (p *fakePlanner) Advance() {
	p.ready = mitigate.Ready{}
}

func (p *fakePlanner) Policy() falcon.Policy {
	return p.policy
}
func (p *fakePlanner) Check(mitigate.Decision) error        { return nil }
func (p *fakePlanner) OverheadsMs() map[falcon.Rung]float64 { return nil }

func (p *fakePlanner) Ladder(string) (falcon.Ladder, bool) {
	return falcon.Ladder{}, false
}

// allCan is an adapter that can do everything.
func allCan() *falconv1.Capabilities {
	return &falconv1.Capabilities{
		Park:       true,
		Split:      true,
		Place:      true,
		Checkpoint: true,
		Versions:   1,
	}
}
