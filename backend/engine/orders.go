package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Lives of commands. An order must reach all agents within OrderLife; the vote
// comes at the next iteration boundary, for which VoteWait is left on top.
const (
	OrderLife  = 30 * time.Second
	VoteWait   = 30 * time.Second
	WindowLife = 30 * time.Second
	windowsMax = 64 // profile windows remembered
)

// order is one that waits for its ranks.
type order struct {
	orderRecord
	acks     map[falcon.Rank]*falconv1.RankAck
	patience time.Duration          // beyond the deadline, at least VoteWait: slow jobs vote late
	refused  map[falcon.Node]string // nodes that will not deliver it, and why
}

// orderBook holds the orders without an outcome, by command id.
type orderBook struct {
	open map[uint64]*order
	lost []*order // given up on, newest last; the ranks may still agree on one
}

// lostMax bounds the orders remembered that were given up on.
const lostMax = 64

func (b *orderBook) giveUp(o *order) {
	delete(b.open, o.Command)
	b.lost = append(b.lost, o)
	b.lost = b.lost[max(0, len(b.lost)-lostMax):]
}

// late takes an agent's word about an order that was given up on; it says
// whether all ranks of the world have agreed on it after all.
func (b *orderBook) late(node falcon.Node, res *falconv1.CommandResult, world int, jobEpoch uint64) (*order, outcomeRecord, bool) {
	for i, o := range b.lost {
		if o.Command != res.GetId() || o.Order.Epoch != jobEpoch {
			continue
		}
		o.result(node, res)
		out := o.agreed(outcomeRecord{Order: o.Order.ID, Iteration: falcon.NoIteration})
		if world == 0 || len(o.acks) < world || out.Failed != "" {
			return o, out, false
		}
		b.lost = slices.Delete(b.lost, i, i+1)
		return o, out, true
	}
	return nil, outcomeRecord{}, false
}

func newOrderBook(pending []orderRecord) *orderBook {
	b := &orderBook{open: map[uint64]*order{}}
	for _, rec := range pending {
		b.add(rec)
	}
	return b
}

func (b *orderBook) add(rec orderRecord) {
	b.open[rec.Command] = &order{
		orderRecord: rec, acks: map[falcon.Rank]*falconv1.RankAck{}, refused: map[falcon.Node]string{},
	}
}

func (o *order) frame(epoch uint64) *falconv1.EngineFrame {
	return command(&falconv1.Command{
		Epoch: epoch, Id: o.Command, DeadlineUnixNs: o.DeadlineNs,
		Body: &falconv1.Command_Order{Order: &falconv1.OrderCommand{
			Order: o.Order.ID, Kind: o.Order.Kind, MicroBatches: o.Order.MicroBatches, JobEpoch: o.Order.Epoch,
		}},
	})
}

func command(c *falconv1.Command) *falconv1.EngineFrame {
	return &falconv1.EngineFrame{Body: &falconv1.EngineFrame_Command{Command: c}}
}

// result takes an agent's word about an order.
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
	out := outcomeRecord{Order: o.Order.ID, Iteration: falcon.NoIteration}
	wait := max(VoteWait, o.patience)
	late := now.UnixNano() > o.DeadlineNs+int64(wait)
	switch {
	case o.Order.Epoch != jobEpoch:
		out.Failed = fmt.Sprintf("it was made for job epoch %d and this is epoch %d", o.Order.Epoch, jobEpoch)
	case world > 0 && len(o.acks) >= world:
		return o.agreed(out), true
	case len(o.acks) > 0 && late:
		return o.agreed(out), true // the vote was cast by all; some agents are gone with their word
	case len(o.acks) > 0:
		return out, false
	case len(o.refused) > 0:
		out.Failed = o.refusal()
	case late:
		out.Failed = fmt.Sprintf("no rank had taken it %s after its deadline", wait)
	}
	return out, out.Failed != ""
}

// agreed takes the iteration that most ranks name: all of them voted for one,
// so a rank that names another one is wrong about itself.
func (o *order) agreed(out outcomeRecord) outcomeRecord {
	named := map[int64]int{}
	for _, a := range o.acks {
		named[a.GetIteration()]++
		if a.GetStatus() != 0 {
			out.Status = a.GetStatus()
		}
	}
	for _, iteration := range sortedKeys(named) {
		if named[iteration] > named[out.Iteration] {
			out.Iteration = iteration
		}
	}
	if len(o.acks) > 0 && 2*named[out.Iteration] <= len(o.acks) {
		keys := sortedKeys(named)
		out.Failed = fmt.Sprintf("the ranks disagree: it holds from iteration %d on one and from %d on another", keys[0], keys[len(keys)-1])
	}
	return out
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

// window is one profile request on its way. On the wire a window is named by
// its command id, which no restart gives out twice.
type window struct {
	command    uint64
	window     uint64 // the detector's id
	iterations int
	deadline   time.Time
	answered   map[falcon.Node]bool
}

type windowBook struct {
	byCommand map[uint64]*window
	order     []uint64
}

func newWindowBook() *windowBook { return &windowBook{byCommand: map[uint64]*window{}} }

func (b *windowBook) add(w *window) {
	w.answered = map[falcon.Node]bool{}
	b.byCommand[w.command] = w
	b.order = append(b.order, w.command)
	if len(b.order) > windowsMax {
		delete(b.byCommand, b.order[0])
		b.order = b.order[1:]
	}
}

func (w *window) frame(epoch uint64) *falconv1.EngineFrame {
	return command(&falconv1.Command{
		Epoch: epoch, Id: w.command, DeadlineUnixNs: w.deadline.UnixNano(),
		Body: &falconv1.Command_Profile{Profile: &falconv1.ProfileCommand{
			Window: w.command, Iterations: int32(w.iterations),
		}},
	})
}
