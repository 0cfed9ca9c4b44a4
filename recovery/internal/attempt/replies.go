package attempt

import (
	"maps"
	"slices"

	"github.com/failslow/falcon"
)

// Replies is what nodes and ranks have answered to the orders of one attempt.
type Replies struct {
	ordered   []falcon.Node         // to suspend
	suspended map[falcon.Node]bool  // acknowledged
	stopping  map[falcon.Rank]bool  // ordered to end, to be replaced on their device
	awaited   map[falcon.Rank]bool  // launched and not parked yet
	tabled    map[falcon.Node]bool  // have the rank table
	rejoined  map[falcon.Rank]Times // with success
}

// Times are a rank's own times of its rejoin, in ms.
type Times struct{ GroupsMs, RestoreMs float64 }

// Suspend begins to wait for the nodes that were ordered to suspend.
func (r *Replies) Suspend(nodes []falcon.Node) {
	r.ordered = nodes
	r.suspended = map[falcon.Node]bool{}
	r.stopping = map[falcon.Rank]bool{}
}

// Acknowledge enters a node's suspension; it reports whether that is new.
func (r *Replies) Acknowledge(n falcon.Node) bool {
	known := r.suspended[n]
	r.suspended[n] = true
	return !known
}

// Suspended reports whether a node has acknowledged.
func (r *Replies) Suspended(n falcon.Node) bool { return r.suspended[n] }

// AllSuspended reports whether all but the fenced nodes have acknowledged.
func (r *Replies) AllSuspended(fenced []falcon.Node) bool {
	if len(r.suspended) < len(r.ordered)-len(fenced) {
		return false // asked with every report of every process
	}
	return !slices.ContainsFunc(r.ordered, func(n falcon.Node) bool {
		return !r.suspended[n] && !slices.Contains(fenced, n)
	})
}

// Stop enters that a rank was ordered to end; it reports whether that is new.
func (r *Replies) Stop(rank falcon.Rank) bool {
	known := r.stopping[rank]
	r.stopping[rank] = true
	return !known
}

// Stopping reports whether a rank was ordered to end.
func (r *Replies) Stopping(rank falcon.Rank) bool {
	return r.stopping[rank]
}

// Replaced forgets that a rank was ordered to end: its next process was not.
func (r *Replies) Replaced(rank falcon.Rank) {
	delete(r.stopping, rank)
}

// Await begins to wait for launched ranks.
func (r *Replies) Await(ranks []falcon.Rank) {
	r.awaited = make(map[falcon.Rank]bool, len(ranks))
	for _, rank := range ranks {
		r.awaited[rank] = true
	}
}

// Awaits reports whether a launched rank has not parked yet.
func (r *Replies) Awaits(rank falcon.Rank) bool { return r.awaited[rank] }

// AnyAwaited reports whether a launched rank has not parked yet.
func (r *Replies) AnyAwaited() bool { return len(r.awaited) > 0 }

// Awaited lists the launched ranks that have not parked yet, ascending.
func (r *Replies) Awaited() []falcon.Rank {
	out := slices.Collect(maps.Keys(r.awaited))
	slices.Sort(out)
	return out
}

// Arrived takes a rank off those awaited.
func (r *Replies) Arrived(rank falcon.Rank) {
	delete(r.awaited, rank)
}

// Next forgets all answers but who is awaited: launched ranks keep starting in the next attempt.
func (r *Replies) Next() Replies { return Replies{awaited: r.awaited} }

// Table begins to wait for the nodes to have the rank table.
func (r *Replies) Table() {
	r.tabled = map[falcon.Node]bool{}
}

// AddTabled enters that a node has the rank table.
func (r *Replies) AddTabled(n falcon.Node) {
	r.tabled[n] = true
}

// Tabled reports whether a node has the rank table.
func (r *Replies) Tabled(n falcon.Node) bool { return r.tabled[n] }

// TabledCount is how many nodes have the rank table.
func (r *Replies) TabledCount() int { return len(r.tabled) }

// Rejoin begins to wait for the ranks to train again.
func (r *Replies) Rejoin() {
	r.rejoined = map[falcon.Rank]Times{}
}

// AddRejoined enters that a rank trains again.
func (r *Replies) AddRejoined(rank falcon.Rank, t Times) {
	r.rejoined[rank] = t
}

// Rejoined reports whether a rank trains again.
func (r *Replies) Rejoined(rank falcon.Rank) bool {
	_, ok := r.rejoined[rank]
	return ok
}

// RejoinedCount is how many ranks train again.
func (r *Replies) RejoinedCount() int { return len(r.rejoined) }

// Slowest is the longest time that a rank took for its groups, and for its state.
func (r *Replies) Slowest() Times {
	var out Times
	for _, t := range r.rejoined {
		out.GroupsMs = max(out.GroupsMs, t.GroupsMs)
		out.RestoreMs = max(out.RestoreMs, t.RestoreMs)
	}
	return out
}

// Renumber gives the answers of rank r to rank perm[r].
func (r *Replies) Renumber(perm []falcon.Rank) {
	r.stopping, r.awaited = renumbered(r.stopping, perm), renumbered(r.awaited, perm)
}

func renumbered(ranks map[falcon.Rank]bool, perm []falcon.Rank) map[falcon.Rank]bool {
	out := make(map[falcon.Rank]bool, len(ranks))
	for r := range ranks {
		out[perm[r]] = true
	}
	return out
}
