package cause

import (
	"fmt"

	"github.com/failslow/falcon"
)

// linkVolumes are the bytes that an iteration moves between each two nodes, by the calls of the
// window, and all of them together (FALCON, appendix 9.2). Collectives go over the paths that NCCL's
// choice gives; calls without such paths are left out.
func (c workJudge) linkVolumes() (byLink map[falcon.Link]float64, total float64) {
	byLink = map[falcon.Link]float64{}
	for i := range c.Timing.Groups {
		g := &c.Timing.Groups[i]
		paths := c.paths().pathsOf(g)
		sent := float64(g.Bytes) * g.CallsPerIt
		if paths.Choice.Algorithm == falcon.AlgorithmRing {
			sent *= sentShare(g.Op, len(g.Ranks))
		} else {
			sent *= 2 // up and down
		}
		for _, e := range paths.Edges {
			if l, ok := c.linkBetween(e.Pair[0], e.Pair[1]); ok {
				byLink[l] += sent * e.Share
				total += sent * e.Share
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
			o.evidence = append(o.evidence, falcon.Evidence{
				Kind: falcon.EvidenceTiming,
				Text: fmt.Sprintf(
					"%s carries %s of the %s that an iteration moves between nodes",
					l, bytesText(v), bytesText(total)),
			})
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
