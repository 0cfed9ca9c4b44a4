package engine

import (
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/mitigate"
)

// A placement moves ranks between processes. The picture of who holds a rank
// changes in one piece, when the order's outcome is known: what agents say of
// their new ranks before is kept beside it, whatever the order in which their
// messages arrive. The job epoch stays, as the processes do.

// placedWait is how long the acknowledgements of a placement may be missing
// after every process has announced its new rank: they carry the steps' times.
const placedWait = 3 * time.Second

// moves is the rank that each rank's process holds after a placement; nil
// where the blocks are no permutation that fits the world.
func moves(blocks []int32, world int) []falcon.Rank {
	n := len(blocks)
	if n == 0 || world == 0 || world%n != 0 {
		return nil
	}
	size, seen, out := world/n, make([]bool, n), make([]falcon.Rank, world)
	for b, to := range blocks {
		if to < 0 || int(to) >= n || seen[to] {
			return nil
		}
		seen[to] = true
		for i := range size {
			out[b*size+i] = falcon.Rank(int(to)*size + i)
		}
	}
	return out
}

// moved permutes what is listed by rank.
func moved[T any](in []T, now []falcon.Rank) []T {
	if len(in) != len(now) {
		return nil
	}
	out := make([]T, len(in))
	for old, r := range now {
		out[r] = in[old]
	}
	return out
}

// noteOwnState takes what a process's state says of its vote for its word on the order,
// of a placement the new rank. The acknowledgement says more and wins; but it can
// be lost with the agent, and the state can't.
func (o *order) noteOwnState(p *process, now time.Time) {
	if o.announced[p.rank] != nil {
		return
	}
	var ack *falconv1.RankAck
	if s := p.next; o.Order.Kind == falcon.OrderPlacement && s != nil && s.GetPlacementOrder() == o.Order.ID {
		ack = &falconv1.RankAck{Rank: int32(p.rank), Order: o.Order.ID, Iteration: s.GetPlacementIteration(), NowRank: s.GetRank()}
	}
	if c := p.state.GetCommitted(); o.Order.Kind != falcon.OrderPlacement && c.GetOrder() == o.Order.ID {
		ack = &falconv1.RankAck{
			Rank: int32(p.rank), Order: o.Order.ID, Iteration: c.GetIteration(), Status: c.GetStatus(), NowRank: int32(p.rank), ResumeIteration: c.GetResumeIteration(),
		}
	}
	if ack != nil {
		o.announced[p.rank], o.announcedAt = ack, now
	}
}

// gatherWitnesses gathers what the processes have announced about an order.
func (c *clusterView) gatherWitnesses(o *order, now time.Time) {
	if o.Order.Kind != falcon.OrderPlacement {
		return
	}
	for _, r := range sortedKeys(c.job.ranks) {
		o.noteOwnState(c.job.ranks[r], now)
	}
}

// swapSummary sums a placement up: the steps of the slowest rank, the bytes of all.
func (o *order) swapSummary() *falcon.Swap {
	out, slowest := &falcon.Swap{}, -1.0
	for _, r := range sortedKeys(o.acks) {
		a := o.acks[r]
		out.MovedMB += float64(a.GetMovedBytes()) / 1e6
		var steps [4]float64
		total := 0.0
		for i, ms := range a.GetStepMs()[:min(len(a.GetStepMs()), len(steps))] {
			steps[i] = finite(ms, msMost)
			total += steps[i]
		}
		if total > slowest {
			out.StepMs, slowest = steps, total
		}
	}
	return out
}

// applyPlacement gives every process its new rank at once.
func (j *job) applyPlacement(perm []falcon.Rank, id uint64) {
	held := j.ranks
	j.ranks = make(map[falcon.Rank]*process, len(held))
	for old, p := range held {
		if int(old) < len(perm) {
			p.rank, p.order = perm[old], id
		}
		if p.next != nil && p.next.GetPlacementOrder() <= id {
			alive := p.state.GetAlive()
			j.count(p, -1)
			p.state, p.next = p.next, nil
			p.state.Alive = alive
			j.count(p, 1)
		}
		j.ranks[p.rank] = p
	}
	j.dirty = true
}

// announcedPlacement finds a placement that all processes say they have carried out and
// that no open order stands for: its order was given up on, or its journal is
// lost. The processes are right.
func (c *clusterView) announcedPlacement() (id uint64, iteration int64, perm []falcon.Rank) {
	world := len(c.state.job.Processes)
	perm = make([]falcon.Rank, world)
	taken := make([]bool, world)
	for r := range world {
		p := c.job.ranks[falcon.Rank(r)]
		if p == nil || p.next == nil || (id != 0 && p.next.GetPlacementOrder() != id) {
			return 0, 0, nil
		}
		id, iteration = p.next.GetPlacementOrder(), p.next.GetPlacementIteration()
		to := int(p.next.GetRank())
		if to < 0 || to >= world || taken[to] {
			return 0, 0, nil
		}
		taken[to], perm[r] = true, falcon.Rank(to)
	}
	return id, iteration, perm
}

// reconcile takes a placement from the processes' own word.
func (pd *planDelivery) reconcile(now time.Time) {
	id, iteration, perm := pd.cluster.announcedPlacement()
	if id == 0 || pd.orders.byOrder(id) != nil || !pd.describer.place(now, id, iteration, perm) {
		return
	}
	pd.orders.forget(id)
	pd.oplog.logf("action", 1, "all processes hold the ranks of placement %d since iteration %d, whose order was given up on", id, iteration)
	pd.plan.Step(now, mitigate.Committed{Order: id, Iteration: iteration})
	pd.describer.announceToPlanner(now)
}

// afterPlacement permutes the speeds that plans are solved with: how fast a device is
// goes with it. What groups of ranks moved is not known in the new places.
func (v speedsRecord) afterPlacement(perm []falcon.Rank) speedsRecord {
	v.SelfMs = moved(v.SelfMs, perm)
	v.Profile.SelfMs = moved(v.Profile.SelfMs, perm)
	v.Profile.Groups = nil
	return v
}
