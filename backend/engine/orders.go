package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/outbox"
)

// Lives of commands. An order must reach all agents within OrderLife; the vote
// comes at the next iteration boundary, for which VoteWait is left on top.
const (
	OrderLife  = 30 * time.Second
	VoteWait   = 30 * time.Second
	WindowLife = 30 * time.Second
)

// order is one that waits for its ranks.
type order struct {
	orderRecord
	item        *outbox.Item // as it is sent; nil once it is given up
	acks        map[falcon.Rank]*falconv1.RankAck
	announced   map[falcon.Rank]*falconv1.RankAck // what processes say of themselves in their states; see witness
	announcedAt time.Time                         // newest of them
	gone        string                            // a rank that has ended before anybody took the order
	quietUntil  time.Time                         // until then no rank may have answered yet: the engine has just started
	left        bool                              // no process is left that could acknowledge it
	patience    time.Duration                     // beyond the deadline, at least VoteWait: slow jobs vote late
	refused     map[falcon.Node]string            // nodes that will not deliver it, and why
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
			o.result(node, res)
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
		if o.Order.Epoch != jobEpoch || world == 0 || o.heardRanks() < world || recovered && o.Order.Leave {
			continue
		}
		out := o.agreed(outcomeRecord{Order: o.Order.ID, Kind: o.Order.Kind, Iteration: falcon.NoIteration})
		if out.Failed == "" {
			b.lost = slices.Delete(b.lost, i, i+1)
			return o, out
		}
	}
	return nil, outcomeRecord{}
}

// votable are the orders that ranks may still vote for.
func (b *orderBook) votable() []*order { return slices.Concat(b.lost, b.open()) }

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
		Class: orderCommand, ID: rec.Command, Deadline: time.Unix(0, rec.DeadlineNs), Life: OrderLife, Repeat: true, About: o,
		Body: func(falcon.Node) *falconv1.Command {
			body := convert.OrderToProto(rec.Order)
			body.Generation = rec.Generation
			return &falconv1.Command{Body: &falconv1.Command_Order{Order: body}}
		},
	})
	return o
}

func newOrder(rec orderRecord) *order {
	o := &order{
		orderRecord: rec, acks: map[falcon.Rank]*falconv1.RankAck{}, announced: map[falcon.Rank]*falconv1.RankAck{}, refused: map[falcon.Node]string{},
	}
	if v := rec.Voted; v != nil {
		o.announced[v.Rank] = &falconv1.RankAck{
			Rank: int32(v.Rank), NowRank: int32(v.Rank), Order: v.Order, Iteration: v.Iteration, Status: v.Status, ResumeIteration: v.Resume,
		}
	}
	return o
}

// result takes an agent's answer to an order.
func (o *order) result(node falcon.Node, res *falconv1.CommandResult) {
	for _, a := range res.GetRanks() {
		if a.GetOrder() == o.Order.ID {
			o.acks[falcon.Rank(a.GetRank())] = a
		}
	}
	switch res.GetStatus() {
	case falconv1.CommandStatus_COMMAND_STATUS_REFUSED, falconv1.CommandStatus_COMMAND_STATUS_EXPIRED:
		o.refused[node] = clean(res.GetDetail())
	case falconv1.CommandStatus_COMMAND_STATUS_DONE, falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED:
		delete(o.refused, node)
	}
}

// outcome judges an order: the vote is the commit, so it holds when every rank
// of the world says so with the same iteration. It can't take effect any more
// when a node will not deliver it or time is up, and no rank has taken it; once
// one rank has, all have voted for it, and only their word is missing.
func (o *order) outcome(world int, jobEpoch uint64, now time.Time) (outcomeRecord, bool) {
	out := outcomeRecord{Order: o.Order.ID, Kind: o.Order.Kind, Iteration: falcon.NoIteration}
	wait := max(VoteWait, o.patience)
	late := o.item != nil && now.After(o.item.Deadline.Add(wait)) && now.After(o.quietUntil)
	switch {
	case o.Order.Epoch != jobEpoch:
		out.Failed = fmt.Sprintf("it was made for job epoch %d and this is epoch %d", o.Order.Epoch, jobEpoch)
	case world > 0 && len(o.acks) >= world:
		return o.agreed(out), true
	case world > 0 && o.heardRanks() >= world && now.Sub(o.announcedAt) >= placedWait:
		return o.agreed(out), true // all announce what the order leads to
	case o.heardRanks() > 0 && (late || o.left):
		return o.agreed(out), true // the vote was cast by all; some agents are gone with their word
	case o.heardRanks() > 0:
		return out, false
	case len(o.refused) > 0:
		out.Failed = o.refusal()
	case o.gone != "":
		out.Failed = o.gone
	case late:
		out.Failed = fmt.Sprintf("no rank had taken it %s after its deadline", wait)
	}
	return out, out.Failed != ""
}

// firstVote is the first vote known of an order, where it is not recorded yet; nil otherwise.
func (o *order) firstVote() *voteRecord {
	if o.Voted != nil || o.heardRanks() == 0 {
		return nil
	}
	heard := o.heardAcks()
	r := sortedKeys(heard)[0]
	a := heard[r]
	o.Voted = &voteRecord{Order: o.Order.ID, Rank: r, Iteration: a.GetIteration(), Status: a.GetStatus(), Resume: a.GetResumeIteration()}
	return o.Voted
}

// heardRanks counts the ranks that have taken the order, by their acknowledgement or
// by what they announce.
func (o *order) heardRanks() int {
	n := len(o.acks)
	for r := range o.announced {
		if o.acks[r] == nil {
			n++
		}
	}
	return n
}

// heardAcks are all of them; an acknowledgement says more than an announced rank.
func (o *order) heardAcks() map[falcon.Rank]*falconv1.RankAck {
	out := make(map[falcon.Rank]*falconv1.RankAck, o.heardRanks())
	maps.Copy(out, o.announced)
	maps.Copy(out, o.acks)
	return out
}

// agreed takes what most ranks name: all of them voted for one iteration and
// one status, so a rank that names another one is wrong about itself.
func (o *order) agreed(out outcomeRecord) outcomeRecord {
	iterations, statuses, resumes := map[int64]int{}, map[int32]int{}, map[int64]int{}
	heard := o.heardAcks()
	for _, a := range heard {
		iterations[a.GetIteration()]++
		statuses[a.GetStatus()]++
		resumes[a.GetResumeIteration()]++
	}
	out.Iteration, out.Status, out.Resume = mostCommon(iterations, falcon.NoIteration), mostCommon(statuses, 0), mostCommon(resumes, 0)
	if keys := sortedKeys(iterations); len(heard) > 0 && 2*iterations[out.Iteration] <= len(heard) {
		out.Failed = fmt.Sprintf("the ranks disagree: it holds from iteration %d on one and from %d on another", keys[0], keys[len(keys)-1])
	}
	if o.Order.Kind == falcon.OrderPlacement && out.Status == 0 && out.Failed == "" {
		out.Swap = o.swapSummary()
	}
	return out
}

// mostCommon is the key with the largest count, the smallest of several.
func mostCommon[K cmp.Ordered](count map[K]int, none K) K {
	best := none
	for _, k := range sortedKeys(count) {
		if count[k] > count[best] {
			best = k
		}
	}
	return best
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
	return firstOf(b.open(), func(o *order) bool { return o.Order.ID == id })
}

// forget drops an order that was given up on.
func (b *orderBook) forget(id uint64) {
	b.lost = slices.DeleteFunc(b.lost, func(o *order) bool { return o.Order.ID == id })
}

func (o *order) refusal() string {
	first := falcon.Node("")
	for n := range o.refused {
		if first == "" || n < first {
			first = n
		}
	}
	return fmt.Sprintf("node %s does not deliver it: %s", first, o.refused[first])
}
