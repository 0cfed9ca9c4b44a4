package cause

import (
	"fmt"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/passes"
	"github.com/failslow/falcon/detect/peer"
)

// linkVolumes are the bytes that an iteration moves between each two nodes, by the calls of the
// window, and all of them together (FALCON, appendix 9.2). Collectives are taken as rings over their
// members in the order of the communicator, or where the job runs them so as trees; calls that are
// neither are left out.
func (c workJudge) linkVolumes() (byLink map[falcon.Link]float64, total float64) {
	byLink = map[falcon.Link]float64{}
	for i := range c.Timing.Groups {
		g := &c.Timing.Groups[i]
		edges, n := edgesOf(c.Case, g), len(g.Ranks)
		sent := float64(g.Bytes) * g.CallsPerIt * sentShare(g.Op, n)
		if n == 2 {
			sent *= 2 // both ways on one pair
		}
		if n > 2 && len(edges) > n { // two trees with half of it each, up and down
			sent = float64(g.Bytes) * g.CallsPerIt
		}
		for _, e := range edges {
			if l, ok := c.linkBetween(e[0], e[1]); ok {
				byLink[l] += sent
				total += sent
			}
		}
	}
	for _, p := range c.Timing.Pairs {
		if l, ok := c.linkBetween(p.From, p.To); ok {
			byLink[l] += float64(p.Bytes) * p.CallsPerIt
			total += float64(p.Bytes) * p.CallsPerIt
		}
	}
	return byLink, total
}

// edgesOf are the pairs of a group's members that send to each other.
func edgesOf(c *Case, g *peer.Group) []passes.Pair {
	if c.Edges != nil {
		return c.Edges(g)
	}
	return passes.RingEdges(g.Ranks)
}

// sentShare is what each of n members of a ring sends to the next, as a multiple of its payload.
func sentShare(op falcon.Op, n int) float64 {
	if n < 2 {
		return 0
	}
	switch op {
	case falcon.OpAllReduce:
		return 2 * float64(n-1) / float64(n)
	case falcon.OpAllGather, falcon.OpReduceScatter: // the payload is one member's part
		return float64(n - 1)
	case falcon.OpBroadcast, falcon.OpReduce:
		return 1
	}
	return 0
}

// volumesShown is how many links have a line about what they carry.
const volumesShown = 4

// addVolumes says what the named links carry.
func (c workJudge) addVolumes(o *opinion) {
	byLink, total := c.linkVolumes()
	if total <= 0 {
		return
	}
	for _, l := range o.links[:min(len(o.links), volumesShown)] {
		if v := byLink[l]; v > 0 {
			o.evidence = append(o.evidence, falcon.Evidence{Kind: falcon.EvidenceTiming, Text: fmt.Sprintf(
				"%s carries %s of the %s that an iteration moves between nodes", l, bytesText(v), bytesText(total))})
		}
	}
}

// bytesText is an amount in the unit that fits.
func bytesText(v float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if v >= u.size {
			return fmt.Sprintf("%.3g %s", v/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.0f bytes", v)
}
