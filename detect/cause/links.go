package cause

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/nccl"
	"github.com/failslow/falcon/detect/peer"
)

// network explains long transfers by a link, or else by the group. Groups with a slow rank
// are left out: its host serves the network late too.
func (c *Case) network() (opinion, bool) {
	o := opinion{cause: falcon.CauseNetwork}
	best := 0.0
	for _, g := range c.Timing.Groups {
		if g.Suspect && !c.holdsSlow(g.Ranks) {
			o.evidence = append(o.evidence, falcon.Evidence{
				Kind: falcon.EvidenceTiming,
				Text: fmt.Sprintf(
					"%s group of ranks %v: %s of %d bytes takes %s, %.2f x the usual %s",
					g.Dimension, g.Ranks, g.Op, g.Bytes, falcon.DurationText(g.TransferMs),
					g.Ratio, falcon.DurationText(g.BaseMs)),
			})
			o.ranks = append(o.ranks, g.Ranks...)
			best = max(best, weightOf(g.Basis))
		}
	}
	for _, p := range c.worstPairs() {
		o.evidence = append(o.evidence, falcon.Evidence{
			Kind: falcon.EvidenceTiming,
			Text: fmt.Sprintf(
				"%s to %s: a receive of %d bytes takes at least %s, %s usually",
				c.nameOf(p.From), c.nameOf(p.To), p.Bytes, falcon.DurationText(p.RecvMs),
				falcon.DurationText(p.BaseMs)),
		})
		o.ranks = append(o.ranks, p.From, p.To)
		best = max(best, weightOf(p.Basis))
	}
	if best == 0 {
		return opinion{}, false
	}
	o.proofs = append(o.proofs, best)
	if len(c.Timing.Slow) == 0 &&
		!c.Timing.AllSlow &&
		len(c.Timing.SlowStages) == 0 {
		o.addEvidence(falcon.EvidenceTiming, weightSelf,
			"No rank computes longer than its peers or its own past")
	}
	c.nameLinks(&o)
	c.narrowRanks(&o)
	c.addPorts(&o)
	workJudge{c}.addVolumes(&o)
	c.paths().addChoices(&o)
	return o, true
}

// narrowRanks leaves the ranks at the ends of the named links; the others only wait.
func (c *Case) narrowRanks(o *opinion) {
	if len(o.links) == 0 {
		return
	}
	o.ranks = slices.DeleteFunc(o.ranks, func(r falcon.Rank) bool {
		node := c.deviceOf(r).Node()
		return !slices.ContainsFunc(o.links, func(l falcon.Link) bool {
			return l.A == node || l.B == node
		})
	})
}

func (c *Case) holdsSlow(ranks []falcon.Rank) bool {
	return slices.ContainsFunc(ranks, func(r falcon.Rank) bool {
		return slices.Contains(c.Timing.Slow, r)
	})
}

// worstPairs are the suspect pairs with the greatest excess: lesser ones in the same replica
// follow from a slow link.
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

// nameLinks names links where it can, by the most direct proof: tests of the
// suspects' links; what is left of them once those of healthy groups and pairs
// are subtracted, if it is one or if pairs point at each; the congestion
// counters of both ends.
func (c *Case) nameLinks(o *opinion) {
	u := c.paths().linkUse(false)
	o.links = u.unexplained()
	defer func() {
		o.allLinks = len(o.links) > 0 && len(o.links) == len(u.total)
	}()
	if c.nameByTest(o, u) {
		return
	}
	hot := c.congestedLinks(o.links)
	switch {
	case len(o.links) == 1 && !c.paths().isSure(o.links[0]):
		o.addAgainst(falcon.EvidenceTiming,
			"%s is the only link that slow groups use and healthy ones do not if their all-reduces are rings, which nothing shows",
			o.links[0])
		o.links = nil
	case len(o.links) == 1:
		o.addEvidence(falcon.EvidenceTiming, weightLinkNamed,
			"%s is the only link that slow groups use and healthy ones do not",
			o.links[0])
		c.addCongestion(o, hot)
	case len(hot) > 0 && len(hot) < len(o.links):
		o.links = hot
		c.addCongestion(o, hot)
	case len(o.links) > 1 && !u.pairs:
		o.addAgainst(falcon.EvidenceTiming, "Timing alone does not show which of %v is slow", o.links)
		o.links = nil
	}
}

// nameByTest names the tested links that are slow, takes the healthy ones out, and reports
// whether it named any.
func (c *Case) nameByTest(o *opinion, u linkUse) bool {
	tests := c.linkTests(u)
	slow := slowLinks(tests, u.suspect)
	judged, clear, shared := 0, 0, 0
	for l := range u.suspect {
		if tests[l].judged > 0 {
			judged++
		}
		if tests[l].judged > 0 && tests[l].slow == 0 {
			clear++
		}
		if u.healthy[l] {
			shared++
		}
	}
	if len(slow) == 0 {
		o.refuted = clear > 0 && clear == len(u.suspect) && shared == clear
		o.links = slices.DeleteFunc(o.links, func(l falcon.Link) bool {
			return tests[l].judged > 0
		})
		if clear > 0 {
			o.addAgainst(falcon.EvidenceTest,
				"%d of the %d links that the slow groups use were tested, and none is slow",
				clear, len(u.suspect))
		}
		return false
	}
	for _, l := range slow {
		o.evidence = append(o.evidence, c.linkTestEvidence(l, tests[l]))
		if u.healthy[l] {
			o.addAgainst(falcon.EvidenceTiming, "%s: groups that use it too are as fast as ever", l)
		}
	}
	o.proofs = append(o.proofs, weightLinkTest)
	if judged > len(slow) {
		o.evidence = append(o.evidence, falcon.Evidence{
			Kind: falcon.EvidenceTest,
			Text: fmt.Sprintf(
				"%d other tested links of the slow groups are healthy", judged-len(slow)),
		})
	}
	o.links = slow
	c.addCongestion(o, c.congestedLinks(slow))
	return true
}

// linkUse is which links the measured groups and pairs use.
type linkUse struct {
	suspect, healthy, total map[falcon.Link]bool
	balance                 map[falcon.Link]int // healthy pairs, less suspect ones
	pairs                   bool                // suspect pairs point at each link
}

// unexplained are the links that suspects use and healthy groups and pairs do not.
func (u linkUse) unexplained() []falcon.Link {
	var out []falcon.Link
	for l := range u.suspect {
		if !u.healthy[l] {
			out = append(out, l)
		}
	}
	sortLinks(out)
	return out
}

// linksOf are the links that a group uses, each once; those that it may use as well where
// its algorithm is assumed, and those that it uses in any case.
func (c pathJudge) linksOf(g *peer.Group) (used, wide, sure []falcon.Link) {
	paths := c.pathsOf(g)
	used = c.linksOver(paths.Edges)
	if paths.Else == nil {
		return used, used, used
	}
	wide = slices.Clone(used)
	for _, l := range c.linksOver(paths.Else) {
		if slices.Contains(used, l) {
			sure = append(sure, l)
		} else {
			wide = append(wide, l)
		}
	}
	return used, wide, sure
}

// isSure reports whether a link is the only one that slow groups use and healthy ones do not
// whatever algorithm carries the groups whose own is only assumed.
func (c pathJudge) isSure(l falcon.Link) bool {
	return slices.Equal(c.linkUse(true).unexplained(), []falcon.Link{l})
}

// linkUse counts what groups and pairs use. With doubt, slow groups are suspected of all
// that they may use, and healthy ones clear what they use in any case.
func (c pathJudge) linkUse(doubt bool) linkUse {
	u := linkUse{
		suspect: map[falcon.Link]bool{},
		healthy: map[falcon.Link]bool{},
		total:   map[falcon.Link]bool{},
		balance: map[falcon.Link]int{},
	}
	for i := range c.Timing.Groups {
		g := &c.Timing.Groups[i]
		links, wide, sure := c.linksOf(g)
		into := u.healthy
		switch {
		case g.Suspect && doubt:
			into = u.suspect
			links = wide
		case g.Suspect:
			into = u.suspect
		case doubt:
			links = sure
		}
		for _, l := range links {
			u.total[l] = true
			if g.Basis != peer.ByNone &&
				g.Dimension != falcon.DimWorld &&
				(g.Suspect || !g.Crowded) {
				into[l] = true // one that is slow as most of its kind are clears nothing
			}
		}
	}
	c.countPairs(&u)
	return u
}

func (c pathJudge) countPairs(u *linkUse) {
	worst := c.worstPairs()
	u.pairs = len(worst) > 0
	for _, p := range c.Timing.Pairs {
		l, ok := c.linkBetween(p.From, p.To)
		if !ok {
			continue
		}
		u.total[l] = true
		switch {
		case slices.ContainsFunc(worst, func(q peer.Pair) bool {
			return q.From == p.From && q.To == p.To
		}):
			u.suspect[l] = true
		case !p.Suspect && !p.Crowded && p.Basis != peer.ByNone:
			u.healthy[l] = true
			u.balance[l]++
		}
		if p.Suspect {
			u.balance[l]--
		}
	}
}

// ringLinks are the links that a group uses.
func (c pathJudge) ringLinks(g *peer.Group) []falcon.Link {
	return c.linksOver(c.pathsOf(g).Edges)
}

// linksOver are the links of edges whose ends are on different nodes, each once.
func (c pathJudge) linksOver(edges []nccl.Edge) []falcon.Link {
	var out []falcon.Link
	for _, e := range edges {
		l, ok := c.linkBetween(e.Pair[0], e.Pair[1])
		if ok && !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

func (c *Case) linkBetween(a, b falcon.Rank) (falcon.Link, bool) {
	x := c.deviceOf(a)
	y := c.deviceOf(b)
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
