package peer

import (
	"cmp"
	"maps"
	"slices"

	"github.com/failslow/falcon"
)

// way is the receives of one rank from one other, of one size.
type way struct {
	from, to falcon.Rank
	bytes    int64
}

// judgePairs finds pipeline links that take longer than the same link of other
// replicas. Only receives are judged, as eager sends finish early, and of them
// the first decile, as the rest of a receive is the pipeline's bubble.
func (w *Window) judgePairs(res *Result, profiles []falcon.RankProfile) {
	waits := map[way][]float64{}
	iterations := 1
	for _, p := range profiles {
		iterations = max(iterations, p.Iterations)
		for _, c := range p.Calls {
			from, ok := w.sender(p.Rank, c)
			if !ok || !positive(c.DurationMs) {
				continue
			}
			k := way{from, p.Rank, c.Bytes}
			waits[k] = append(waits[k], c.DurationMs)
			res.Ranks[p.Rank].RecvMs += c.DurationMs / float64(max(1, p.Iterations))
		}
	}
	ways := slices.SortedFunc(maps.Keys(waits), func(a, b way) int {
		return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.from, b.from), cmp.Compare(a.bytes, b.bytes))
	})
	for _, k := range ways {
		v := waits[k]
		res.Pairs = append(res.Pairs, Pair{
			From: k.from, To: k.to, Bytes: k.bytes,
			RecvMs: low(v, 0.1), CallsPerIt: float64(len(v)) / float64(iterations),
		})
	}
	alike := map[position][]int{}
	for i := range res.Pairs {
		k := w.positionOf(&res.Pairs[i])
		alike[k] = append(alike[k], i)
	}
	for i := range res.Pairs {
		w.comparePair(res, i, alike[w.positionOf(&res.Pairs[i])])
	}
}

// position is what pairs must share to be compared: stages, tensor-parallel
// coordinates, size, and whether they cross nodes.
type position struct {
	from, to  falcon.Coord // without the replica
	bytes     int64
	internode bool
}

func (w *Window) positionOf(p *Pair) position {
	from, to := w.Layout.Coord(p.From), w.Layout.Coord(p.To)
	from.DP, to.DP = 0, 0
	return position{from, to, p.Bytes, w.internode(p.From, p.To)}
}

// sender is the rank that a receive comes from.
func (w *Window) sender(to falcon.Rank, c falcon.CallTiming) (falcon.Rank, bool) {
	if c.Op != falcon.OpRecv || c.Peer < 0 {
		return 0, false
	}
	if ranks, ok := w.directory[c.Comm]; ok {
		r, ok := ranks[c.Peer]
		return r, ok
	}
	line := w.Layout.Peers(to, falcon.DimPP)
	if c.Peer >= len(line) {
		return 0, false
	}
	return line[c.Peer], true
}

// comparePair judges one way by the same way in other replicas. A replica
// whose own ranks compute slowly delays its messages without any link's fault.
func (w *Window) comparePair(res *Result, i int, alike []int) {
	p := &res.Pairs[i]
	var others []float64
	for _, k := range alike {
		if k != i {
			others = append(others, res.Pairs[k].RecvMs)
		}
	}
	p.Peers = len(others)
	own := w.Healthy.receive(way{p.From, p.To, p.Bytes})
	switch {
	case p.Peers >= w.Rules.MinPeers:
		p.BaseMs, p.Basis = Median(others), ByPeers
	case own > 0:
		p.BaseMs, p.Basis = own, ByOwn
	default:
		return
	}
	p.Ratio = p.RecvMs / p.BaseMs
	excess := (p.RecvMs - p.BaseMs) * p.CallsPerIt
	p.Suspect = p.Ratio > w.Rules.Suspect && excess > w.Rules.Matter*res.IterationMs &&
		!w.slowReplica(res, w.Layout.Replica(p.To)) && !res.AllSlow && len(res.SlowStages) == 0
}

func (w *Window) slowReplica(res *Result, replica int) bool {
	return slices.ContainsFunc(res.Slow, func(r falcon.Rank) bool { return w.Layout.Replica(r) == replica })
}

func (w *Window) internode(a, b falcon.Rank) bool {
	return int(max(a, b)) < len(w.Placement) && w.Placement[a].Node() != w.Placement[b].Node()
}
