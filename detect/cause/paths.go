package cause

import (
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/nccl"
	"github.com/failslow/falcon/detect/peer"
)

// Paths are whom a group's members send to.
type Paths struct {
	Choice falcon.Choice // of NCCL, and how it is known
	Edges  []nccl.Edge   // by it; none where its paths do not follow from it
	Else   []nccl.Edge   // by the other algorithm that it may be, where it is only assumed
}

// paths looks at whom groups send to.
func (c *Case) paths() pathJudge { return pathJudge{c} }

// pathsOf are a group's paths.
func (c pathJudge) pathsOf(g *peer.Group) Paths {
	if c.Paths != nil {
		return c.Paths(g)
	}
	alone := func(r falcon.Rank) falcon.Node { return c.deviceOf(r).Node() }
	return Paths{
		Choice: falcon.Choice{Algorithm: falcon.AlgorithmRing},
		Edges:  nccl.NewGraph(g.Ranks, alone).Edges(falcon.AlgorithmRing),
	}
}

// nodesAlike is up to how many nodes all algorithms use the same links.
const nodesAlike = 2

// addChoices says by which choices of NCCL the slow groups' links are known.
func (c pathJudge) addChoices(o *opinion) {
	for i := range c.Timing.Groups {
		g := &c.Timing.Groups[i]
		if !g.Suspect || c.holdsSlow(g.Ranks) || len(g.Nodes) <= nodesAlike {
			continue
		}
		p := falcon.PathChoice{Op: g.Op, Choice: c.pathsOf(g).Choice}
		if !slices.Contains(o.paths, p) {
			o.paths = append(o.paths, p)
			o.evidence = append(o.evidence, falcon.Evidence{
				Kind: falcon.EvidenceTiming,
				Text: p.Text(),
			})
		}
	}
}
