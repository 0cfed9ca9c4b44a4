package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/adapter"
	"github.com/failslow/falcon/cmd/falcon-trainer/model"
	"github.com/failslow/falcon/cmd/falcon-trainer/snapshot"
)

// ledger is what a rank remembers of the orders it has agreed to.
type ledger struct {
	newest uint64 // id
	epoch  uint64
	end    string // EndDone until an order ends the run in another way
}

// judgeOrder decides on an order from what all ranks know alike, so that all come
// to the same answer.
func (c Config) judgeOrder(l ledger, o falcon.Order, split model.Split) (int32, error) {
	if o.Epoch < l.epoch {
		return adapter.RefusedStale, fmt.Errorf("made for job epoch %d, now is %d", o.Epoch, l.epoch)
	}
	var why error
	switch o.Kind {
	case falcon.OrderStop:
	case falcon.OrderMicroBatches:
		why = split.Check(o.MicroBatches, c.splitUnit())
	case falcon.OrderPlacement:
		why = model.Blocks(o.Blocks).Check(c.Layout)
	case falcon.OrderCheckpoint:
		if c.Checkpoint.Folder == "" {
			why = fmt.Errorf("%w: it has no folder; start the job with --checkpoint-dir",
				snapshot.ErrCheckpoint)
		}
	default:
		return adapter.RefusedKind, errors.New("this trainer knows no such order")
	}
	if why != nil {
		return adapter.RefusedValues, why
	}
	return adapter.Applied, nil
}

// commitVote acts on the world's vote of iteration i: the vote is the commit, and
// the order holds from i+1 on; but a placement and a checkpoint may still fail,
// on all ranks alike. Votes repeat until a newer order comes.
func (w *worker) commitVote(ctx context.Context, i int64, vote uint64) error {
	if vote <= w.orders.newest {
		return nil
	}
	began := time.Now()
	rank := w.rank
	o, held, err := w.fetchOrder(vote)
	if err != nil {
		return err
	}
	status, why := adapter.RefusedGone, adapter.ErrGone
	if held {
		status, why = w.cfg.judgeOrder(w.orders, o, w.split)
	}
	w.orders.newest = vote
	if status == adapter.Applied {
		if status, why, err = w.applyOrder(ctx, i, o); err != nil {
			return err
		}
	}
	w.hook.Ack(vote, i+1, status)
	w.clock.ordered = time.Since(began)
	line := orderLine{
		Order:        vote,
		Rank:         int(rank),
		Kind:         o.Kind,
		From:         i + 1,
		Status:       status,
		MicroBatches: o.MicroBatches,
		Blocks:       o.Blocks,
		Leave:        o.Leave,
	}
	if why != nil {
		line.Reason = why.Error()
	}
	return w.cfg.Log.writeLine(line)
}

// fetchOrder takes the voted order from the mailbox, and asks the world whether all
// ranks could: a mailbox holds few orders, and one that a single rank has lost
// must bind no rank. This second vote costs only when an order comes.
func (w *worker) fetchOrder(id uint64) (falcon.Order, bool, error) {
	o, err := w.hook.Fetch(id)
	mine := uint64(1)
	if err != nil {
		mine = 0
	}
	all, err := w.votes.leastValue(mine)
	return o, all == 1, err
}

// applyOrder carries out an order that was found good. why is set where it failed on
// some rank and changed nothing on any; err ends the run.
func (w *worker) applyOrder(ctx context.Context, i int64, o falcon.Order) (status int32, why, err error) {
	w.orders.epoch = o.Epoch
	switch o.Kind {
	case falcon.OrderStop:
		w.orders.end = EndStopped
	case falcon.OrderPlacement:
		return w.carryOutPlacement(ctx, i, o)
	case falcon.OrderCheckpoint:
		return w.saveOnOrder(i, o)
	default:
		w.split = o.MicroBatches
		w.hook.Describe(w.cfg.Layout, int(w.split[w.at.DP]))
	}
	return adapter.Applied, nil, nil
}
