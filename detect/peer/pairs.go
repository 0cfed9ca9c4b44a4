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
	iterations := map[falcon.Rank]int{}
	for _, p := range profiles {
		iterations[p.Rank] = max(1, p.Iterations)
		for _, c := range p.Calls {
			from, ok := w.senderOf(p.Rank, c)
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
			From: k.from, To: k.to, Bytes: k.bytes, Internode: len(w.nodesOf([]falcon.Rank{k.from, k.to})) > 1,
			RecvMs: lowQuantile(v, 0.1), CallsPerIt: float64(len(v)) / float64(iterations[k.to]),
		})
	}
	places, own := map[position][]float64{}, map[position][]float64{}
	for i := range res.Pairs {
		p := &res.Pairs[i]
		k := w.positionOf(p)
		places[k] = append(places[k], p.RecvMs)
		p.OwnMs = w.Healthy.receiveTime(way{p.From, p.To, p.Bytes}, p.Internode)
		own[k] = append(own[k], excessRatio(p.RecvMs, p.OwnMs))
	}
	alike, pasts, spreads := map[position]others{}, map[position]past{}, map[position]kindSpread{}
	for k, v := range places {
		alike[k], pasts[k], spreads[k] = othersOf(v), summarizePast(own[k], w.Rules.Suspect), w.spreadOfKind(v, own[k])
	}
	troubled := w.troubled(res)
	for i := range res.Pairs {
		p := &res.Pairs[i]
		k := w.positionOf(p)
		w.comparePair(res, p, alike[k])
		was := pasts[k]
		p.Crowded = was.crowd && excessRatio(p.RecvMs, p.OwnMs)/was.common > w.Rules.Suspect
		p.Suspect = p.Suspect && !troubled[w.Layout.Replica(p.To)]
		if w.Rules.Small && p.Basis == ByPeers {
			p.Suspect = p.Suspect && spreads[k].standsOut(p.RecvMs, p.OwnMs, w.Rules.Matter*res.IterationMs/p.CallsPerIt)
		}
	}
}

// troubled are the replicas that have a slow rank, or one that was not measured
// and may be: its lateness would look like that of the links around it.
func (w *Window) troubled(res *Result) []bool {
	out := make([]bool, w.Layout.DP)
	for i := range res.Ranks {
		if r := &res.Ranks[i]; r.Slow || !r.Measured {
			out[w.Layout.Replica(r.Rank)] = true
		}
	}
	return out
}

// position is what pairs must share to be compared: stages, tensor-parallel
// coordinates where there is no mesh, size, and whether they cross nodes.
type position struct {
	from, to  falcon.Coord // without the replica
	bytes     int64
	internode bool
}

func (w *Window) positionOf(p *Pair) position {
	from, to := w.Layout.Coord(p.From), w.Layout.Coord(p.To)
	from.DP, to.DP = 0, 0
	if w.Layout.Mesh != (falcon.Mesh{}) {
		from.TP, to.TP = 0, 0
	}
	return position{from, to, p.Bytes, w.internode(p.From, p.To)}
}

// senderOf is the rank that a receive comes from.
func (w *Window) senderOf(to falcon.Rank, c falcon.CallTiming) (falcon.Rank, bool) {
	if c.Op != falcon.OpRecv || c.Peer < 0 {
		return 0, false
	}
	if ranks, ok := w.directory[c.Comm]; ok {
		r, ok := ranks[c.Peer]
		return r, ok
	}
	at := w.Layout.Coord(to) // an unknown communicator: taken as the pipeline's
	if at.PP = c.Peer; c.Peer >= w.Layout.PP {
		return 0, false
	}
	return w.Layout.RankOf(at), true
}

// comparePair judges one way by the same way in other replicas.
func (w *Window) comparePair(res *Result, p *Pair, alike others) {
	p.Peers = alike.count()
	switch {
	case p.Peers >= w.Rules.MinPeers:
		p.BaseMs, p.Basis = alike.medianWithout(p.RecvMs), ByPeers
	case p.OwnMs > 0:
		p.BaseMs, p.Basis = p.OwnMs, ByOwn
	default:
		return
	}
	p.Ratio = p.RecvMs / p.BaseMs
	excess := (p.RecvMs - p.BaseMs) * p.CallsPerIt
	p.Suspect = p.Ratio > w.Rules.Suspect && excess > w.Rules.Matter*res.IterationMs && !res.AllSlow && len(res.SlowStages) == 0
}

func (w *Window) internode(a, b falcon.Rank) bool {
	return int(max(a, b)) < len(w.Placement) && w.Placement[a].Node() != w.Placement[b].Node()
}
