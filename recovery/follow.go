package recovery

import (
	"slices"

	"github.com/failslow/falcon"
)

// The ranks may agree on a placement just before a fault, and the word of it
// comes when the recovery has begun already: processes hold other ranks then than
// those that the recovery was opened with. It follows, as long as nothing was
// launched for the ranks of before.

// mayFollow reports whether a placement of the present job epoch can be taken up.
func (m *Machine) mayFollow() bool {
	c := m.cur
	if !m.hasJob || c == nil {
		return m.hasJob
	}
	early := c.State == falcon.RecoveryProposed || c.State == falcon.RecoverySuspend
	return early && !c.Whole && len(c.Launched) == 0 && slices.Equal(c.Placement, m.job.Placement)
}

// permutation is the new rank of every rank where two placements have the same
// devices; nil where they have not, or are equal.
func permutation(from, to falcon.Placement) []falcon.Rank {
	if len(from) != len(to) || slices.Equal(from, to) {
		return nil
	}
	at := make(map[falcon.Device]falcon.Rank, len(to))
	for r, d := range to {
		at[d] = falcon.Rank(r)
	}
	out := make([]falcon.Rank, len(from))
	for r, d := range from {
		now, known := at[d]
		if !known || len(at) != len(to) {
			return nil
		}
		out[r] = now
	}
	return out
}

// follow gives everything that is known by rank its new one.
func (m *Machine) follow(to falcon.Placement, perm []falcon.Rank) {
	ranks := make([]member, len(m.ranks))
	for r, x := range m.ranks {
		x.proc.Rank, x.beat.Rank = perm[r], perm[r]
		ranks[perm[r]] = x
	}
	m.ranks = ranks
	m.job.Placement = slices.Clone(to)
	m.ends.follow(perm)
	if c := m.cur; c != nil {
		c.Placement, c.Pending, c.Replaced = slices.Clone(to), renumbered(c.Pending, perm), rekeyed(c.Replaced, perm)
		for i := range c.Faults {
			c.Faults[i].Ranks = renumbered(c.Faults[i].Ranks, perm)
		}
		m.at.stopping, m.at.awaited = rekeyed(m.at.stopping, perm), rekeyed(m.at.awaited, perm)
		m.dirty()
	}
	m.index()
}

func renumbered(ranks, perm []falcon.Rank) []falcon.Rank {
	var out []falcon.Rank
	for _, r := range ranks {
		out = append(out, perm[r])
	}
	slices.Sort(out)
	return out
}

func rekeyed[V any](m map[falcon.Rank]V, perm []falcon.Rank) map[falcon.Rank]V {
	if m == nil {
		return nil
	}
	out := make(map[falcon.Rank]V, len(m))
	for r, v := range m {
		out[perm[r]] = v
	}
	return out
}
