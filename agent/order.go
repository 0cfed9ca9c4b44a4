package agent

import (
	"fmt"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// orderTask watches one order until every local rank has committed to it. The
// ranks commit by a vote among themselves; the agent only carries.
type orderTask struct {
	order    uint64
	ranks    []*process
	acks     map[falcon.Rank]*falconv1.RankAck
	deadline time.Time
}

func (a *Agent) startOrder(cmd *falconv1.OrderCommand, deadline time.Time) (*orderTask, error) {
	ranks := a.local(nil)
	if len(ranks) == 0 {
		return nil, errNoRank
	}
	o := falcon.Order{Epoch: cmd.GetJobEpoch(), ID: cmd.GetOrder(), Kind: cmd.GetKind(), MicroBatches: cmd.GetMicroBatches()}
	for _, p := range ranks {
		if p.seg.NewestOrder() >= o.ID {
			continue // an earlier life of this agent has put it there
		}
		if err := p.seg.PutOrder(o); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	return &orderTask{order: o.ID, ranks: ranks, acks: map[falcon.Rank]*falconv1.RankAck{}, deadline: deadline}, nil
}

// Step reports each change, and ends when all have committed or at the
// deadline.
func (t *orderTask) Step(now time.Time) (*falconv1.CommandResult, bool) {
	changed, open := false, 0
	for _, p := range t.ranks {
		switch {
		case t.acks[p.rank] != nil:
		case p.status.CommittedOrder >= t.order:
			t.acks[p.rank] = &falconv1.RankAck{
				Rank: int32(p.rank), Order: p.status.CommittedOrder,
				Iteration: p.status.CommittedIteration, Status: p.status.CommittedStatus,
			}
			changed = true
		case !p.dead:
			open++
		}
	}
	switch {
	case open == 0:
		return t.result(), true
	case !now.Before(t.deadline):
		r := t.result()
		r.Status = falconv1.CommandStatus_COMMAND_STATUS_EXPIRED
		r.Detail = fmt.Sprintf("%d of %d ranks have not committed to order %d", open, len(t.ranks), t.order)
		return r, true
	case changed:
		r := t.result()
		r.Status = falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED
		return r, false
	}
	return nil, false
}

// result lists the acknowledgements; its status is that of an ended order.
func (t *orderTask) result() *falconv1.CommandResult {
	r := &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}
	for _, p := range t.ranks {
		ack := t.acks[p.rank]
		if ack == nil {
			continue
		}
		r.Ranks = append(r.Ranks, ack)
		if ack.Status != 0 {
			r.Status = falconv1.CommandStatus_COMMAND_STATUS_REFUSED
			r.Detail = fmt.Sprintf("rank %d refused order %d with status %d", ack.Rank, ack.Order, ack.Status)
		}
	}
	if len(r.Ranks) == 0 {
		r.Status, r.Detail = falconv1.CommandStatus_COMMAND_STATUS_REFUSED, "every rank of this node ended before it committed"
	}
	return r
}
