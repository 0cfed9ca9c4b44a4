package cause

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// together explains a job that slowed as a whole: a facility fault where all
// clocks fell, the job's own work where the clocks are normal.
func (c *Case) together() opinion {
	ranks := make([]falcon.Rank, len(c.Timing.Ranks))
	for i := range ranks {
		ranks[i] = falcon.Rank(i)
	}
	known, reduced := c.clocks(ranks)
	o := opinion{}
	o.add(falcon.EvidenceTiming, weightTogether, "All %d measured ranks compute %.2f x as long as when healthy, and none longer than its peers", len(ranks)-c.Timing.Missing, c.Timing.AllRatio)
	switch {
	case known == 0:
		o.cause = falcon.CauseUnknown
		o.against(falcon.EvidenceCounter, "No GPU counters since the onset tell whether the clocks fell")
	case len(reduced)*2 > known:
		o.cause, o.ranks = falcon.CauseFacility, reduced
		o.add(falcon.EvidenceCounter, weightNormal, "The SM clocks of %d of %d GPUs fell together: power or cooling, not one device", len(reduced), known)
	default:
		o.cause = falcon.CauseNotHardware
		o.add(falcon.EvidenceCounter, weightNormal, "The SM clocks of %d of %d GPUs are as before: the work itself grew", known-len(reduced), known)
	}
	return o
}

// stages explains stages that slowed as a whole: the counters of their nodes,
// or the job's own work.
func (c *Case) stages() opinion {
	var ranks []falcon.Rank
	for _, r := range c.Timing.Ranks {
		if slices.Contains(c.Timing.SlowStages, c.Layout.Coord(r.Rank).PP) {
			ranks = append(ranks, r.Rank)
		}
	}
	o := opinion{}
	o.add(falcon.EvidenceTiming, weightTogether, "All %d ranks of pipeline stages %v slowed alike, the other stages did not", len(ranks), c.Timing.SlowStages)
	known, reduced := c.clocks(ranks)
	starved := slices.DeleteFunc(slices.Clone(ranks), func(r falcon.Rank) bool {
		return !c.hostProofs(&opinion{}, r)
	})
	switch {
	case len(reduced) > 0:
		o.cause, o.ranks = falcon.CauseGPU, reduced
		o.add(falcon.EvidenceCounter, weightClock, "The SM clocks of %d of these %d GPUs fell", len(reduced), known)
	case len(starved) > 0:
		o.cause, o.ranks = falcon.CauseCPU, starved
		c.hostProofs(&o, starved[0])
	case known == 0:
		o.cause = falcon.CauseUnknown
		o.against(falcon.EvidenceCounter, "No GPU counters since the onset tell whether the clocks fell")
	default:
		o.cause = falcon.CauseNotHardware
		o.add(falcon.EvidenceCounter, weightNormal, "The SM clocks of all %d of these GPUs are as before: the stages' own work grew", known)
	}
	return o
}

// network explains long transfers by a link, where peers leave one, else by
// the group. Groups that hold a slow rank are left out: its host serves the
// network late too.
func (c *Case) network() (opinion, bool) {
	o := opinion{cause: falcon.CauseNetwork}
	best := 0.0
	for _, g := range c.Timing.Groups {
		if g.Suspect && !c.holdsSlow(g.Ranks) {
			o.evidence = append(o.evidence, falcon.Evidence{Kind: falcon.EvidenceTiming, Text: fmt.Sprintf(
				"%s group of ranks %v: %s of %d bytes takes %.2f ms, %.2f x the usual %.2f ms", g.Dimension, g.Ranks, g.Op, g.Bytes, g.TransferMs, g.Ratio, g.BaseMs)})
			o.ranks = append(o.ranks, g.Ranks...)
			best = max(best, weightOf(g.Basis))
		}
	}
	for _, p := range c.worstPairs() {
		o.evidence = append(o.evidence, falcon.Evidence{Kind: falcon.EvidenceTiming, Text: fmt.Sprintf(
			"%s to %s: a receive of %d bytes takes at least %.2f ms, %.2f ms usually", c.name(p.From), c.name(p.To), p.Bytes, p.RecvMs, p.BaseMs)})
		o.ranks = append(o.ranks, p.From, p.To)
		best = max(best, weightOf(p.Basis))
	}
	if best == 0 {
		return opinion{}, false
	}
	o.proofs = append(o.proofs, best)
	if len(c.Timing.Slow) == 0 && !c.Timing.AllSlow && len(c.Timing.SlowStages) == 0 {
		o.add(falcon.EvidenceTiming, weightSelf, "No rank computes longer than its peers or its own past")
	}
	c.nameLinks(&o)
	return o, true
}

func (c *Case) holdsSlow(ranks []falcon.Rank) bool {
	return slices.ContainsFunc(ranks, func(r falcon.Rank) bool { return slices.Contains(c.Timing.Slow, r) })
}

// worstPairs are the suspect pairs with the greatest excess: a slow link
// throttles its whole pipeline, so lesser excesses in the same replica follow
// from it.
func (c *Case) worstPairs() []peer.Pair {
	worst := map[int]float64{}
	for _, p := range c.Timing.Pairs {
		if p.Suspect {
			d := c.Layout.Replica(p.To)
			worst[d] = max(worst[d], p.RecvMs-p.BaseMs)
		}
	}
	var out []peer.Pair
	for _, p := range c.Timing.Pairs {
		if p.Suspect && p.RecvMs-p.BaseMs >= 0.8*worst[c.Layout.Replica(p.To)] {
			out = append(out, p)
		}
	}
	return out
}

// nameLinks subtracts the links that healthy groups and pairs use from those
// that suspects use; what is left is named if it is one, or if pairs point at
// each.
func (c *Case) nameLinks(o *opinion) {
	suspect, healthy := map[falcon.Link]bool{}, map[falcon.Link]bool{}
	total := map[falcon.Link]bool{}
	for _, g := range c.Timing.Groups {
		into := healthy
		if g.Suspect {
			into = suspect
		}
		for _, l := range c.ring(g.Ranks) {
			total[l] = true
			if g.Basis != peer.ByNone && g.Dimension != falcon.DimWorld {
				into[l] = true
			}
		}
	}
	worst := c.worstPairs()
	for _, p := range c.Timing.Pairs {
		l, ok := c.link(p.From, p.To)
		if !ok {
			continue
		}
		total[l] = true
		switch {
		case slices.ContainsFunc(worst, func(q peer.Pair) bool { return q.From == p.From && q.To == p.To }):
			suspect[l] = true
		case !p.Suspect && p.Basis != peer.ByNone:
			healthy[l] = true
		}
	}
	for l := range suspect {
		if !healthy[l] {
			o.links = append(o.links, l)
		}
	}
	slices.SortFunc(o.links, func(a, b falcon.Link) int { return slices.Compare([]falcon.Node{a.A, a.B}, []falcon.Node{b.A, b.B}) })
	o.allLinks = len(o.links) == len(total)
	switch {
	case len(o.links) == 1:
		o.add(falcon.EvidenceTiming, weightLinkNamed, "%s is the only link that slow groups use and healthy ones do not", o.links[0])
	case len(o.links) > 1 && len(worst) == 0:
		o.against(falcon.EvidenceTiming, "Timing alone does not tell which of %v it is", o.links)
		o.links = nil
	}
}

// ring are the links that a ring over the ranks uses: neighbours on different
// nodes.
func (c *Case) ring(ranks []falcon.Rank) []falcon.Link {
	var out []falcon.Link
	for i := range ranks {
		if l, ok := c.link(ranks[i], ranks[(i+1)%len(ranks)]); ok && !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

func (c *Case) link(a, b falcon.Rank) (falcon.Link, bool) {
	x, y := c.device(a), c.device(b)
	if x == "" || y == "" || x.Node() == y.Node() {
		return falcon.Link{}, false
	}
	return falcon.NewLink(x.Node(), y.Node()), true
}

func weightOf(b peer.Basis) float64 {
	switch b {
	case peer.ByPeers:
		return weightPeers
	case peer.ByOwn:
		return weightOwn
	case peer.ByFew:
		return weightFew
	}
	return 0
}

// nothing is the case in which the profile names nobody.
func (c *Case) nothing() opinion {
	o := opinion{cause: falcon.CauseUnknown}
	top, at := 0.0, falcon.Rank(0)
	for _, r := range c.Timing.Ranks {
		if r.Ratio > top {
			top, at = r.Ratio, r.Rank
		}
	}
	if top == 0 {
		o.against(falcon.EvidenceTiming, "No rank could be compared with a peer or with its own past")
		return o
	}
	o.against(falcon.EvidenceTiming, "No rank or group stands out: the greatest self time is %.2f x its peers', at %s", top, c.name(at))
	return o
}
