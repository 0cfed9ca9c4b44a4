package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/act"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of watching an order. Its deadline bounds the delivery: from then on it
// lies in every mailbox, and the ranks vote when they come to it.
const (
	voteWait = 40 * time.Second // beyond the deadline until an order counts as expired
	lateWait = 10 * time.Minute // beyond the deadline for as long as late commits are reported
)

// orderTask watches one order until every local rank has committed to it. The
// ranks commit by a vote among themselves; the agent only carries. As the vote
// is the commit, it is reported whenever it comes.
type orderTask struct {
	order    falcon.Order
	ranks    []*process
	acks     map[*process]*falconv1.RankAck // a rank's number may change hands
	deadline time.Time
	expired  bool
}

var _ = enter[*falconv1.Command_Order](command{
	start: func(a *Agent, cmd *falconv1.Command, now, deadline time.Time) (act.Task, error) {
		return a.startOrder(cmd.GetOrder(), now, deadline)
	},
	resumes: true,
})

// startOrder puts an order into the mailboxes of the processes that it was made
// for. Those of a later generation are not among them, and once its deadline has
// passed no more get it: the engine may have withdrawn it by then.
func (a *Agent) startOrder(cmd *falconv1.OrderCommand, now, deadline time.Time) (act.Task, error) {
	ranks := a.processes.withRanks(nil)
	if len(ranks) == 0 {
		return nil, errNoRank
	}
	late := !now.Before(deadline)
	ranks = slices.DeleteFunc(ranks, func(p *process) bool {
		over := cmd.Generation != nil && p.generation() > cmd.GetGeneration()
		return (over || late) && p.seg.NewestOrder() < cmd.GetOrder()
	})
	if len(ranks) == 0 {
		return nil, fmt.Errorf(
			"order %d is for generation %d of the job, or came too late: no process of this node has it",
			cmd.GetOrder(), cmd.GetGeneration(),
		)
	}
	o := convert.OrderFromProto(cmd)
	for _, p := range ranks {
		if p.seg.NewestOrder() >= o.ID {
			continue // an earlier life of this agent has put it there
		}
		if err := p.seg.PutOrder(o); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	return &orderTask{order: o, ranks: ranks, acks: map[*process]*falconv1.RankAck{}, deadline: deadline}, nil
}

// Poll reports each change, and ends when all have committed.
func (t *orderTask) Poll(time.Time) (*falconv1.CommandResult, bool) {
	changed, open := t.collectAcks()
	switch {
	case open == 0:
		return t.orderResult(), true
	case changed:
		r := t.orderResult()
		r.Status = falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED
		return r, false
	}
	return nil, false
}

// PollLate goes on after the deadline. An order that not all have taken voteWait
// later is reported as expired; late commits follow until lateWait.
func (t *orderTask) PollLate(now time.Time) (*falconv1.CommandResult, bool) {
	changed, open := t.collectAcks()
	if open == 0 && (changed || !t.expired) {
		return t.orderResult(), true
	}
	late := now.Sub(t.deadline)
	expires := late >= voteWait && !t.expired
	if done := open == 0 || late >= lateWait; !changed && !expires {
		return nil, done
	}
	t.expired = t.expired || expires
	r := t.orderResult()
	r.Status = falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED
	if t.expired {
		r.Status = falconv1.CommandStatus_COMMAND_STATUS_EXPIRED
		r.Detail = fmt.Sprintf("%d of %d ranks have not committed to order %d",
			open, len(t.ranks), t.order.ID)
	}
	return r, late >= lateWait
}

// collectAcks takes in new acknowledgements, and counts the ranks that still owe one.
func (t *orderTask) collectAcks() (changed bool, open int) {
	for _, p := range t.ranks {
		switch {
		case t.acks[p] != nil:
		case p.status.CommittedOrder >= t.order.ID:
			t.acks[p] = t.acknowledgement(p)
			changed = true
		case !p.dead:
			open++
		}
	}
	return changed, open
}

// acknowledgement is a process's acknowledgement, under the rank that it voted with.
func (t *orderTask) acknowledgement(p *process) *falconv1.RankAck {
	out := &falconv1.RankAck{
		Rank:      int32(p.rank),
		NowRank:   int32(p.rank),
		Order:     p.status.CommittedOrder,
		Iteration: p.status.CommittedIteration,
		Status:    p.status.CommittedStatus,
	}
	if out.Order != t.order.ID || out.Status != 0 {
		return out
	}
	switch {
	case t.order.Kind == falcon.OrderCheckpoint:
		out.ResumeIteration = p.status.ResumeIteration
	case t.order.Kind == falcon.OrderPlacement && p.ranks.newest.Order == t.order.ID:
		if out.Rank = int32(p.ranks.rankAt(p.ranks.newest.Iteration - 1)); out.Rank < 0 {
			out.Rank = int32(rankBefore(p.rank, t.order.Blocks, p.worldSize()))
		}
		out.MovedBytes = p.ranks.newest.Bytes
		for _, ns := range p.ranks.newest.StepNs {
			out.StepMs = append(out.StepMs, float64(ns)/1e6)
		}
	}
	return out
}

// unplacedProcess is a process that has committed to a placement and did not say which
// rank it holds; nil for none.
func (t *orderTask) unplacedProcess() *process {
	for _, p := range t.ranks {
		ack := t.acks[p]
		if ack != nil &&
			t.order.Kind == falcon.OrderPlacement &&
			ack.Order == t.order.ID &&
			ack.Status == 0 &&
			p.ranks.newest.Order != t.order.ID {
			return p
		}
	}
	return nil
}

// orderResult lists the acknowledgements; its status is that of an ended order.
func (t *orderTask) orderResult() *falconv1.CommandResult {
	r := &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}
	for _, p := range t.ranks {
		ack := t.acks[p]
		if ack == nil {
			continue
		}
		r.Ranks = append(r.Ranks, ack)
		if ack.Status != 0 {
			r.Status = falconv1.CommandStatus_COMMAND_STATUS_REFUSED
			r.Detail = fmt.Sprintf("rank %d refused order %d with status %d", ack.Rank, ack.Order, ack.Status)
		}
	}
	if p := t.unplacedProcess(); p != nil {
		r.Detail = fmt.Sprintf("%s has committed to placement %d without saying which rank it holds now",
			p, t.order.ID)
	}
	if len(r.Ranks) == 0 {
		r.Status = falconv1.CommandStatus_COMMAND_STATUS_REFUSED
		r.Detail = "every rank of this node ended before it committed"
	}
	return r
}
