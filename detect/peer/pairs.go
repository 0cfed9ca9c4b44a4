package peer

import (
	"cmp"
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
	var received []receive
	for i := range profiles {
		received = w.receivesOf(&profiles[i], res, received[:0])
		w.addPairs(&profiles[i], res, received)
	}
	places := map[position][]float64{}
	own := map[position][]float64{}
	for i := range res.Pairs {
		p := &res.Pairs[i]
		k := w.positionOf(p)
		places[k] = append(places[k], p.RecvMs)
		p.OwnMs = w.Healthy.receiveTime(way{p.From, p.To, p.Bytes}, p.Internode)
		own[k] = append(own[k], excessRatio(p.RecvMs, p.OwnMs))
	}
	alike := map[position]others{}
	pasts := map[position]past{}
	spreads := map[position]kindSpread{}
	for k, v := range places {
		alike[k] = othersOf(v)
		pasts[k] = summarizePast(own[k], w.Rules.Suspect)
		spreads[k] = w.spreadOfKind(v, own[k])
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
			p.Suspect = p.Suspect &&
				spreads[k].standsOut(p.RecvMs, p.OwnMs, w.Rules.Matter*res.IterationMs/p.CallsPerIt)
		}
	}
}

// receive is one receive and how long it took.
type receive struct {
	way
	ms float64
}

// receivesOf adds a profile's receives to out, by their ways, and sums them up.
func (w *Window) receivesOf(p *falcon.RankProfile, res *Result, out []receive) []receive {
	for i := range p.Calls {
		c := &p.Calls[i]
		if from, ok := w.senderOf(p.Rank, c); ok && positive(c.DurationMs) {
			out = append(out, receive{way{from, p.Rank, c.Bytes}, c.DurationMs})
			res.Ranks[p.Rank].RecvMs += c.DurationMs / float64(max(1, p.Iterations))
		}
	}
	slices.SortFunc(out, func(a, b receive) int {
		return cmp.Or(
			cmp.Compare(a.from, b.from),
			cmp.Compare(a.bytes, b.bytes),
			cmp.Compare(a.ms, b.ms),
		)
	})
	return out
}

// addPairs adds the ways of a rank's receives, which are sorted.
func (w *Window) addPairs(p *falcon.RankProfile, res *Result, received []receive) {
	for len(received) > 0 {
		k := received[0].way
		n := 1
		for n < len(received) && received[n].way == k {
			n++
		}
		res.Pairs = append(res.Pairs, Pair{
			From:       k.from,
			To:         k.to,
			Bytes:      k.bytes,
			Internode:  w.internode(k.from, k.to),
			RecvMs:     received[int(0.1*float64(n-1))].ms,
			CallsPerIt: float64(n) / float64(max(1, p.Iterations)),
		})
		received = received[n:]
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
	from := w.Layout.Coord(p.From)
	to := w.Layout.Coord(p.To)
	from.DP, to.DP = 0, 0
	if w.Layout.Mesh != (falcon.Mesh{}) {
		from.TP, to.TP = 0, 0
	}
	return position{from, to, p.Bytes, w.internode(p.From, p.To)}
}

// senderOf is the rank that a receive comes from.
func (w *Window) senderOf(to falcon.Rank, c *falcon.CallTiming) (falcon.Rank, bool) {
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
		p.BaseMs = alike.medianWithout(p.RecvMs)
		p.Basis = ByPeers
	case p.OwnMs > 0:
		p.BaseMs = p.OwnMs
		p.Basis = ByOwn
	default:
		return
	}
	p.Ratio = p.RecvMs / p.BaseMs
	excess := (p.RecvMs - p.BaseMs) * p.CallsPerIt
	p.Suspect = p.Ratio > w.Rules.Suspect &&
		excess > w.Rules.Matter*res.IterationMs &&
		!res.AllSlow &&
		len(res.SlowStages) == 0
}

func (w *Window) internode(a, b falcon.Rank) bool {
	return int(max(a, b)) < len(w.Placement) && w.Placement[a].Node() != w.Placement[b].Node()
}
