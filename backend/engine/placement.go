package engine

import (
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate"
)

// A placement moves ranks between processes. The picture of who holds a rank
// changes in one piece, when the order's outcome is known: what agents say of
// their new ranks before is kept beside it, whatever the order in which their
// messages arrive. The job epoch stays, as the processes do.

// moves is the rank that each rank's process holds after a placement; nil
// where the blocks are no permutation that fits the world.
func moves(blocks []int32, world int) []falcon.Rank {
	n := len(blocks)
	if n == 0 || world == 0 || world%n != 0 {
		return nil
	}
	size := world / n
	seen := make([]bool, n)
	out := make([]falcon.Rank, world)
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

// applyPlacement gives every process its new rank at once.
func (j *job) applyPlacement(perm []falcon.Rank, id uint64) {
	held := j.ranks
	j.ranks = make(map[falcon.Rank]*process, len(held))
	for old, p := range held {
		if int(old) < len(perm) {
			p.rank = perm[old]
			p.order = id
		}
		if p.next != nil && p.next.GetPlacementOrder() <= id {
			alive := p.state.GetAlive()
			j.count(p, -1)
			p.state = p.next
			p.next = nil
			p.state.Alive = alive
			j.count(p, 1)
		}
		j.ranks[p.rank] = p
	}
	j.dirty = true
	j.changes++
}

// announcedPlacement finds a placement that all processes say they have carried out and
// that is of no open order: its order was given up on, or its journal is
// lost. The processes are right.
func (c *clusterView) announcedPlacement() (id uint64, iteration int64, perm []falcon.Rank) {
	world := len(c.state.job.Processes)
	perm = make([]falcon.Rank, world)
	taken := make([]bool, world)
	for r := range world {
		p := c.job.ranks[falcon.Rank(r)]
		if p == nil ||
			p.next == nil ||
			(id != 0 && p.next.GetPlacementOrder() != id) {
			return 0, 0, nil
		}
		id = p.next.GetPlacementOrder()
		iteration = p.next.GetPlacementIteration()
		to := int(p.next.GetRank())
		if to < 0 || to >= world || taken[to] {
			return 0, 0, nil
		}
		taken[to] = true
		perm[r] = falcon.Rank(to)
	}
	return id, iteration, perm
}

// reconcile takes a placement from the processes' own reports.
func (pd *planDelivery) reconcile(now time.Time) {
	id, iteration, perm := pd.cluster.announcedPlacement()
	if id == 0 ||
		pd.orders.byOrder(id) != nil ||
		!pd.describer.place(now, id, iteration, perm) {
		return
	}
	pd.orders.forget(id)
	pd.oplog.logf("action", 1, "",
		"all processes hold the ranks of placement %d since iteration %d, whose order was given up on",
		id, iteration)
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
