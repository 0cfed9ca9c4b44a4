package engine

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/outbox"
	"github.com/failslow/falcon/backend/vote"
)

// Lives of commands. An order must reach all agents within OrderLife; for its vote
// there is vote.Wait on top.
const (
	OrderLife  = 30 * time.Second
	WindowLife = 30 * time.Second
)

// order is one that waits for its ranks.
type order struct {
	orderRecord
	vote  *vote.Vote
	item  *outbox.Item // as it is sent; nil once it is given up
	quiet time.Time    // until then no rank may have answered yet: the engine has just started
}

// orderBook knows the orders in the outbox, which have no outcome, and those that
// were given up.
type orderBook struct {
	outbox *outbox.Box
	lost   []*order // newest last; the ranks may still agree on one
}

// open are the orders without an outcome, oldest first.
func (b *orderBook) open() []*order {
	items := b.outbox.Items(orderCommand)
	out := make([]*order, len(items))
	for i, it := range items {
		out[i] = it.About.(*order)
	}
	return out
}

// close takes an order out that has its outcome.
func (b *orderBook) close(o *order) {
	b.outbox.Remove(func(it *outbox.Item) bool { return it == o.item })
	o.item = nil
}

// lostMax bounds the orders remembered that were given up on.
const lostMax = 16

func (b *orderBook) giveUp(o *order) {
	b.close(o)
	b.lost = keepNewest(append(b.lost, o), lostMax)
}

// lateResult takes an agent's answer to an order that was given up on; false for one
// about something else.
func (b *orderBook) lateResult(node falcon.Node, res *falconv1.CommandResult, jobEpoch uint64) bool {
	for _, o := range b.lost {
		if o.Command == res.GetId() && o.Order.Epoch == jobEpoch {
			o.vote.Answer(node, res)
			return true
		}
	}
	return false
}

// revived takes out an order that was given up on, and that all ranks of the world
// have agreed on after all; nil for none. recovered is that a recovery has taken
// the job over: what has left with a checkpoint is that one's to start again.
func (b *orderBook) revived(world int, jobEpoch uint64, recovered bool) (*order, outcomeRecord) {
	for i, o := range b.lost {
		if o.Order.Epoch != jobEpoch ||
			world == 0 ||
			o.vote.Taken() < world ||
			recovered && o.Order.Leave {
			continue
		}
		if out := o.vote.Agreed(); out.Failed == "" {
			b.lost = slices.Delete(b.lost, i, i+1)
			return o, out
		}
	}
	return nil, outcomeRecord{}
}

// votable are the orders that ranks may still vote for.
func (b *orderBook) votable() []*order {
	return slices.Concat(b.lost, b.open())
}

// newOrderBook holds the orders that are open, and those that were given up.
func newOrderBook(box *outbox.Box, pending, lost []orderRecord) *orderBook {
	b := &orderBook{outbox: box}
	for _, rec := range pending {
		b.addOrder(rec)
	}
	for _, rec := range lost {
		b.lost = append(b.lost, newOrder(rec))
	}
	return b
}

// addOrder puts an order into the outbox. Its life begins when it is sent for the
// first time.
func (b *orderBook) addOrder(rec orderRecord) *order {
	o := newOrder(rec)
	o.item = b.outbox.Put(outbox.Item{
		Class:    orderCommand,
		ID:       rec.Command,
		Deadline: time.Unix(0, rec.DeadlineNs),
		Life:     OrderLife,
		Repeat:   true,
		About:    o,
		Body: func(falcon.Node) *falconv1.Command {
			body := convert.OrderToProto(rec.Order)
			body.Generation = rec.Generation
			return &falconv1.Command{Body: &falconv1.Command_Order{Order: body}}
		},
	})
	return o
}

func newOrder(rec orderRecord) *order {
	return &order{orderRecord: rec, vote: vote.New(rec.Order, rec.Voted)}
}

// heavy orders change which process does what: nothing else may look at the
// job meanwhile.
func (o *order) heavy() bool {
	return o.Order.Kind == falcon.OrderPlacement || o.Order.Kind == falcon.OrderCheckpoint
}

// leaving is the open order after which the processes end; nil without one.
func (b *orderBook) leaving() *order {
	return firstOf(b.open(), func(o *order) bool { return o.Order.Leave })
}

func firstOf(list []*order, is func(*order) bool) *order {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i]
	}
	return nil
}

// heavy reports whether an order is out that nothing else may overlap.
func (b *orderBook) heavy() bool {
	return slices.ContainsFunc(b.open(), (*order).heavy)
}

// byOrder finds an open one by the order's own id.
func (b *orderBook) byOrder(id uint64) *order {
	return firstOf(b.open(), func(o *order) bool {
		return o.Order.ID == id
	})
}

// forget drops an order that was given up on.
func (b *orderBook) forget(id uint64) {
	b.lost = slices.DeleteFunc(b.lost, func(o *order) bool {
		return o.Order.ID == id
	})
}
