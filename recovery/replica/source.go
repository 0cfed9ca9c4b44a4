package replica

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/failslow/falcon"
)

// load is what sources were given to send so far.
type load struct {
	sends map[falcon.Rank]int
	bytes map[falcon.Node]uint64 // a node's ranks share its way out
}

// planMoves names a source for every rank without its replicas' state of step s, rank by rank.
func (q Query) planMoves(good map[int][]falcon.Rank, s int64) []falcon.ShardMove {
	var out []falcon.ShardMove
	l := load{sends: map[falcon.Rank]int{}, bytes: map[falcon.Node]uint64{}}
	for r := falcon.Rank(0); int(r) < q.Layout.World(); r++ {
		from := good[q.shardOf(r)]
		if slices.Contains(from, r) {
			continue
		}
		source := q.pickSource(r, from, l)
		l.sends[source]++
		l.bytes[q.nodeOf(source)] += q.shardBytes(r)
		out = append(out, falcon.ShardMove{
			Rank: r,
			From: source,
			Why:  q.whyRestores(r, source, s),
		})
	}
	return out
}

// pickSource picks among the ranks that can send to r: as far from r as there is
// one (another failure domain before another node, so that what fails with r
// does not take its source along), then the least loaded, then the lowest rank.
func (q Query) pickSource(r falcon.Rank, from []falcon.Rank, l load) falcon.Rank {
	return slices.MinFunc(from, func(a, b falcon.Rank) int {
		return cmp.Or(
			cmp.Compare(q.proximity(r, a), q.proximity(r, b)),
			cmp.Compare(l.sends[a], l.sends[b]),
			cmp.Compare(l.bytes[q.nodeOf(a)], l.bytes[q.nodeOf(b)]),
			cmp.Compare(a, b),
		)
	})
}

// proximity is 0 for ranks in different failure domains, 1 in one domain, 2 on one node.
func (q Query) proximity(a, b falcon.Rank) int {
	switch na, nb := q.nodeOf(a), q.nodeOf(b); {
	case na == nb:
		return 2
	case q.domainOf(na) == q.domainOf(nb):
		return 1
	}
	return 0
}

func (q Query) shardBytes(r falcon.Rank) uint64 {
	if n := q.Bytes[r]; n > 0 {
		return n
	}
	return 1
}

// whyRestores is why r restores, and from where.
func (q Query) whyRestores(r, source falcon.Rank, s int64) string {
	text := "it held nothing"
	h := q.Holds[r]
	if _, same := h.At(s); same && q.survives(r) {
		text = fmt.Sprintf("its checksum of step %d is not the one of its replicas", s)
	} else if n := newestStep(h); q.survives(r) && n >= 0 {
		text = fmt.Sprintf("holds step %d, not %d", n, s)
	}
	if len(q.Placement) == 0 {
		return text
	}
	return text +
		[...]string{
			"; source in another failure domain",
			"; source in the same failure domain",
			"; source on the same node",
		}[q.proximity(r, source)]
}
