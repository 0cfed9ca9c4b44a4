package recovery

import (
	"slices"

	"github.com/failslow/falcon"
)

// replies is what nodes and ranks have answered to the orders of one attempt. An
// engine that starts again gets it from the agents.
type replies struct {
	ordered   []falcon.Node            // to suspend
	suspended map[falcon.Node]bool     // acknowledged
	stopping  map[falcon.Rank]bool     // ordered to end, to be replaced on their device
	awaited   map[falcon.Rank]bool     // launched and not parked yet
	tabled    map[falcon.Node]bool     // have the rank table
	rejoined  map[falcon.Rank]Rejoined // with success
}

// suspend begins to wait for the nodes that were ordered to suspend.
func (r *replies) suspend(nodes []falcon.Node) {
	r.ordered, r.suspended, r.stopping = nodes, map[falcon.Node]bool{}, map[falcon.Rank]bool{}
}

// acknowledge enters a node's suspension; it reports whether that is new.
func (r *replies) acknowledge(n falcon.Node) bool {
	known := r.suspended[n]
	r.suspended[n] = true
	return !known
}

// allSuspended reports whether all but the fenced nodes have acknowledged.
func (r *replies) allSuspended(fenced []falcon.Node) bool {
	if len(r.suspended) < len(r.ordered)-len(fenced) {
		return false // asked with every report of every process
	}
	for _, n := range r.ordered {
		if !r.suspended[n] && !slices.Contains(fenced, n) {
			return false
		}
	}
	return true
}

// await begins to wait for launched ranks.
func (r *replies) await(ranks []falcon.Rank) {
	r.awaited = make(map[falcon.Rank]bool, len(ranks))
	for _, rank := range ranks {
		r.awaited[rank] = true
	}
}

// arrived takes a rank off those awaited; it reports whether it was one.
func (r *replies) arrived(rank falcon.Rank) bool {
	awaited := r.awaited[rank]
	delete(r.awaited, rank)
	return awaited
}

// table begins to wait for the nodes to have the rank table.
func (r *replies) table() { r.tabled = map[falcon.Node]bool{} }

// rejoin begins to wait for the ranks to train again.
func (r *replies) rejoin() { r.rejoined = map[falcon.Rank]Rejoined{} }

func (r *replies) hasRejoined(rank falcon.Rank) bool { _, ok := r.rejoined[rank]; return ok }

// slowestRejoin is the longest time, in ms, that a rank took for its groups and for
// its state.
func (r *replies) slowestRejoin() (groups, restore float64) {
	for _, x := range r.rejoined {
		groups, restore = max(groups, x.GroupsMs), max(restore, x.RestoreMs)
	}
	return groups, restore
}

// renumber moves the answers of ranks to their new numbers.
func (r *replies) renumber(perm []falcon.Rank) {
	r.stopping, r.awaited = rekeyed(r.stopping, perm), rekeyed(r.awaited, perm)
}
