package train

import (
	"errors"
	"fmt"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/adapter"
	"github.com/failslow/falcon/cmd/falcon-trainer/model"
)

// ledger is what a rank remembers of the orders it has agreed to.
type ledger struct {
	newest uint64 // id
	epoch  uint64
	stop   bool
}

// judge decides on an order from what all ranks know alike, so that all come
// to the same answer.
func (l ledger) judge(o falcon.Order, split model.Split, unit int) (int32, error) {
	if o.Epoch < l.epoch {
		return adapter.RefusedStale, fmt.Errorf("made for job epoch %d, now is %d", o.Epoch, l.epoch)
	}
	switch o.Kind {
	case falcon.OrderStop:
		return adapter.Applied, nil
	case falcon.OrderMicroBatches:
		if err := split.Check(o.MicroBatches, unit); err != nil {
			return adapter.RefusedValues, err
		}
		return adapter.Applied, nil
	}
	return adapter.RefusedKind, errors.New("this trainer knows no such order")
}

// commit acts on the world's vote of iteration i: the vote is the commit, and
// the order holds from i+1 on. Votes repeat until a newer order comes.
func (w *worker) commit(i int64, vote uint64) error {
	if vote <= w.orders.newest {
		return nil
	}
	o, held, err := w.fetch(vote)
	if err != nil {
		return err
	}
	status, why := adapter.RefusedGone, adapter.ErrGone
	if held {
		status, why = w.orders.judge(o, w.split, w.cfg.unit())
	}
	w.orders.newest = vote
	if status == adapter.Applied {
		w.apply(o)
	}
	w.hook.Ack(vote, i+1, status)
	line := orderLine{Order: vote, Rank: int(w.cfg.Rank), Kind: o.Kind, From: i + 1, Status: status, MicroBatches: o.MicroBatches}
	if why != nil {
		line.Reason = why.Error()
	}
	return w.cfg.Log.line(line)
}

// fetch takes the voted order from the mailbox, and asks the world whether all
// ranks could: a mailbox holds few orders, and one that a single rank has lost
// must bind nobody. This second vote costs only when an order comes.
func (w *worker) fetch(id uint64) (falcon.Order, bool, error) {
	o, err := w.hook.Fetch(id)
	mine := uint64(1)
	if err != nil {
		mine = 0
	}
	w.tally.begin(mine)
	w.tally.reduce(w.groups.world)
	if err := w.wait(); err != nil {
		return o, false, err
	}
	_, all := w.tally.result()
	return o, all == 1, nil
}

func (w *worker) apply(o falcon.Order) {
	w.orders.epoch = o.Epoch
	if o.Kind == falcon.OrderStop {
		w.orders.stop = true
		return
	}
	w.split = o.MicroBatches
	w.hook.Describe(w.cfg.Layout, int(w.split[w.at.DP]))
}
