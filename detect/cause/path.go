package cause

import (
	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// explainsShare is the least share of a slowdown that longer transfers have to be.
const explainsShare = 0.3

// pathJudge looks at the path that all traffic between a job's nodes takes.
type pathJudge struct{ *Case }

// onlyPath explains a job all of whose groups between nodes are slower than when healthy,
// where they all cross one pair of nodes: there is nothing to compare them with, and no other
// path that they could wait for. Jobs on two nodes are so.
func (c pathJudge) onlyPath() (opinion, bool) {
	t := &c.Timing
	if len(t.Slow) > 0 || t.AllSlow || len(t.SlowStages) > 0 || t.Uneven {
		return opinion{}, false
	}
	var path falcon.Link
	var worst *peer.Group
	groups := 0
	for i := range t.Groups {
		g := &t.Groups[i]
		if !g.Internode || g.Dimension == falcon.DimWorld {
			continue
		}
		if !g.Crowded {
			return opinion{}, false
		}
		links := c.ringLinks(g)
		if len(links) != 1 || groups > 0 && links[0] != path {
			return opinion{}, false
		}
		path = links[0]
		groups++
		if worst == nil || excessOf(g) > excessOf(worst) {
			worst = g
		}
	}
	if groups == 0 ||
		excessOf(worst) < explainsShare*(c.SlowMs-c.HealthyMs) ||
		c.pairsAcross(path) {
		return opinion{}, false
	}
	o := opinion{cause: falcon.CauseNetwork, links: []falcon.Link{path}}
	for i := range t.Groups {
		if g := &t.Groups[i]; g.Internode && g.Dimension != falcon.DimWorld {
			o.ranks = append(o.ranks, g.Ranks...)
		}
	}
	o.addEvidence(falcon.EvidenceTiming, weightOwn,
		"All %d groups between nodes are slower than when healthy: that of ranks %v takes %s for %s of %d bytes, %.2f x its own %s",
		groups, worst.Ranks, falcon.DurationText(worst.TransferMs), worst.Op, worst.Bytes,
		worst.TransferMs/worst.OwnMs, falcon.DurationText(worst.OwnMs))
	o.addEvidence(falcon.EvidenceTiming, weightSelf, "No rank computes longer than its peers or its own past")
	use := linkUse{
		suspect: map[falcon.Link]bool{path: true},
		healthy: map[falcon.Link]bool{},
	}
	if !c.nameByTest(&o, use) {
		if o.refuted || len(o.links) == 0 {
			return opinion{}, false
		}
		o.addEvidence(falcon.EvidenceTiming, weightLinkNamed,
			"%s is the only path between the job's nodes that they cross: it, or the port at one of its ends",
			path)
		c.addCongestion(&o, c.congestedLinks(o.links))
	}
	c.addPorts(&o)
	workJudge(c).addVolumes(&o)
	return o, true
}

// excessOf is by how much a group's transfers take longer in an iteration than when healthy, ms.
func excessOf(g *peer.Group) float64 {
	return (g.TransferMs - g.OwnMs) * g.CallsPerIt
}

// pairsAcross reports whether messages between two ranks cross a path as fast as ever.
func (c pathJudge) pairsAcross(path falcon.Link) bool {
	for _, p := range c.Timing.Pairs {
		l, ok := c.linkBetween(p.From, p.To)
		if ok && l == path && !p.Suspect && !p.Crowded && p.Basis != peer.ByNone {
			return true
		}
	}
	return false
}
