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
)

// Lives of commands. An order must reach all agents within OrderLife; the vote
// comes at the next iteration boundary, for which VoteWait is left on top.
const (
	OrderLife  = 30 * time.Second
	VoteWait   = 30 * time.Second
	WindowLife = 30 * time.Second
	windowsMax = 64 // profile windows remembered
	lifeOver   = -1 // life_ms of a command whose deadline has passed
)

// order is one that waits for its ranks.
type order struct {
	orderRecord
	acks        map[falcon.Rank]*falconv1.RankAck
	announced   map[falcon.Rank]*falconv1.RankAck // what processes say of themselves in their states; see witness
	announcedAt time.Time                         // newest of them
	sent        bool                              // it has gone out; false while something holds it back
	gone        string                            // a rank that has ended before anybody took the order
	quietUntil  time.Time                         // until then no rank may have answered yet: the engine has just started
	left        bool                              // no process is left that could acknowledge it
	patience    time.Duration                     // beyond the deadline, at least VoteWait: slow jobs vote late
	refused     map[falcon.Node]string            // nodes that will not deliver it, and why
}

// orderBook holds the orders without an outcome, by command id.
type orderBook struct {
	open map[uint64]*order
	lost []*order // given up on, newest last; the ranks may still agree on one
}

// lostMax bounds the orders remembered that were given up on.
const lostMax = 16

func (b *orderBook) giveUp(o *order) {
	delete(b.open, o.Command)
	b.lost = append(b.lost, o)
	b.lost = b.lost[max(0, len(b.lost)-lostMax):]
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
func (b *orderBook) votable() []*order {
	out := slices.Clone(b.lost)
	for _, id := range sortedKeys(b.open) {
		out = append(out, b.open[id])
	}
	return out
}

// newOrderBook holds the orders that are open, and those that were given up.
func newOrderBook(pending, lost []orderRecord) *orderBook {
	b := &orderBook{open: map[uint64]*order{}}
	for _, rec := range pending {
		b.addOrder(rec)
	}
	for _, rec := range lost {
		b.lost = append(b.lost, newOrder(rec))
	}
	return b
}

// unsent are the commands of open orders that something holds back.
func (b *orderBook) unsent() []uint64 {
	return slices.DeleteFunc(sortedKeys(b.open), func(id uint64) bool { return b.open[id].sent })
}

func (b *orderBook) addOrder(rec orderRecord) { b.open[rec.Command] = newOrder(rec) }

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

func (o *order) frame(epoch uint64, now time.Time) *falconv1.EngineFrame {
	body := convert.OrderToProto(o.Order)
	body.Generation = o.Generation
	return command(&falconv1.Command{
		Epoch: epoch, Id: o.Command, DeadlineUnixNs: o.DeadlineNs, Body: &falconv1.Command_Order{Order: body},
	}, now)
}

// markSent marks an order as sent. Its life begins now, where it is sent for the first
// time.
func (o *order) markSent(now time.Time) {
	if fresh := now.Add(OrderLife).UnixNano(); !o.sent && o.DeadlineNs < fresh {
		o.DeadlineNs = fresh
	}
	o.sent = true
}

// sendOrders lets orders go out that nothing holds back any more.
func (pd *planDelivery) sendOrders(now time.Time) {
	for _, id := range pd.orders.unsent() {
		if o := pd.orders.open[id]; pd.arbiter.present(now).mayOrder(o.Order.Epoch, o.heavy()) {
			o.markSent(now)
			pd.cluster.broadcast(o.frame(pd.state.epoch, now))
		}
	}
}

// sendWaiting sends what has waited for something else to end.
func (pd *planDelivery) sendWaiting(now time.Time) {
	pd.sendOrders(now)
	if len(pd.waiting) > 0 && pd.arbiter.present(now).mayProfile() {
		pd.sendWindows(now)
	}
}

// sendWindows sends the profile windows that have waited.
func (pd *planDelivery) sendWindows(now time.Time) {
	for _, w := range pd.waiting {
		w.deadline = now.Add(WindowLife)
		pd.windows.addWindow(w)
		pd.cluster.broadcast(w.frame(pd.state.epoch, now))
	}
	pd.waiting = nil
}

// orderDeadline leaves an order its life beyond what holds it back.
func (pd *planDelivery) orderDeadline(now time.Time, o falcon.Order) time.Time {
	at := pd.afterHold(now)
	if (&order{orderRecord: orderRecord{Order: o}}).heavy() && pd.windows.inFlight(now, pd.cluster.jobNodes) {
		at = at.Add(WindowLife)
	}
	return at.Add(OrderLife)
}

// command gives a command the rest of its life as it is sent: agents count it
// from its receipt, whatever their clocks say. One that is over says so.
func command(c *falconv1.Command, now time.Time) *falconv1.EngineFrame {
	if c.DeadlineUnixNs != 0 {
		life := time.Unix(0, c.DeadlineUnixNs).Sub(now).Milliseconds()
		if c.LifeMs = life; life <= 0 {
			c.LifeMs = lifeOver
		}
	}
	return &falconv1.EngineFrame{Body: &falconv1.EngineFrame_Command{Command: c}}
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
	late := now.UnixNano() > o.DeadlineNs+int64(wait) && now.After(o.quietUntil)
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
	for _, id := range sortedKeys(b.open) {
		if b.open[id].Order.Leave {
			return b.open[id]
		}
	}
	return nil
}

// heavy reports whether an order is out that nothing else may overlap.
func (b *orderBook) heavy() bool {
	for _, o := range b.open {
		if o.heavy() {
			return true
		}
	}
	return false
}

// byOrder finds an open one by the order's own id.
func (b *orderBook) byOrder(id uint64) *order {
	for _, o := range b.open {
		if o.Order.ID == id {
			return o
		}
	}
	return nil
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

func (b *windowBook) addWindow(w *window) {
	w.answered = map[falcon.Node]bool{}
	b.byCommand[w.command] = w
	b.order = append(b.order, w.command)
	if len(b.order) > windowsMax {
		delete(b.byCommand, b.order[0])
		b.order = b.order[1:]
	}
}

func (w *window) frame(epoch uint64, now time.Time) *falconv1.EngineFrame {
	return command(&falconv1.Command{
		Epoch: epoch, Id: w.command, DeadlineUnixNs: w.deadline.UnixNano(),
		Body: &falconv1.Command_Profile{Profile: &falconv1.ProfileCommand{
			Window: w.command, Iterations: int32(w.iterations),
		}},
	}, now)
}
