package cause

import (
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// A CPU quota holds ranks for the rest of a period once it is used up. An iteration here and
// there is several times as long then, on one rank of the node or the other, which
// the median of a window does not show.
const (
	starvedShare = 0.25 // of the time: over the other hosts, and over its own before the onset
	starvedStep  = 1.5  // of the peers' in the same iteration: a step that was held
)

// starvedHost is the host whose quota holds its ranks now and then: the kernel counts
// it, and ranks of that host alone have had iterations that were held.
func (c *Case) starvedHost() (opinion, bool) {
	var held []falcon.Rank
	for r := range c.Timing.Ranks {
		if len(heldSteps(&c.Timing.Ranks[r])) > 0 {
			held = append(held, falcon.Rank(r))
		}
	}
	if len(held) == 0 {
		return opinion{}, false
	}
	n := c.deviceOf(held[0]).Node()
	if n == "" ||
		slices.ContainsFunc(held, func(r falcon.Rank) bool {
			return c.deviceOf(r).Node() != n
		}) ||
		!c.throttledAlone(n) {
		return opinion{}, false
	}
	o := opinion{cause: falcon.CauseCPU}
	for q, d := range c.Placement {
		if d.Node() == n {
			o.ranks = append(o.ranks, falcon.Rank(q))
		}
	}
	for i, r := range held {
		steps := heldSteps(&c.Timing.Ranks[r])
		weight := weightFew
		if i > 0 {
			weight = 0 // the same fault's
		}
		o.addEvidence(falcon.EvidenceTiming, weight,
			"%s: self time up to %.2f x its peers' in %d of %d iterations, and theirs in the others",
			c.nameOf(r), slices.Max(steps), len(steps), len(c.Timing.Ranks[r].StepRatio))
	}
	c.hostProofs(&o, held[0])
	return o, true
}

// heldSteps are the ratios of a rank's iterations in which it was held.
func heldSteps(r *peer.Rank) []float64 {
	var out []float64
	for _, ratio := range r.StepRatio {
		if ratio >= starvedStep {
			out = append(out, ratio)
		}
	}
	return out
}

// throttledAlone reports whether the quota of a host's ranks holds them, and no other host's.
func (c *Case) throttledAlone(n falcon.Node) bool {
	h := c.Counters.Hosts[n]
	usual, known := c.peerHost(n, func(h Host) float64 { return h.ThrottledShare })
	if h.Before != nil {
		usual = max(usual, h.Before.ThrottledShare)
		known = true
	}
	return h.Known && !h.Emulated && known && h.ThrottledShare > usual+starvedShare
}
