package cause

import (
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// computation explains the ranks that compute slower than their peers, one
// opinion per cause.
func (c *Case) computation() []opinion {
	var out []opinion
	for _, r := range c.Timing.Slow {
		o := c.explain(r)
		if o.cause == falcon.CauseCPU {
			c.neighbours(&o, r)
		}
		i := slices.IndexFunc(out, func(p opinion) bool { return p.cause == o.cause })
		if i < 0 {
			out = append(out, o)
			continue
		}
		out[i].ranks = append(out[i].ranks, o.ranks...)
		out[i].evidence = append(out[i].evidence, o.evidence...)
		if combine(o.proofs...) < combine(out[i].proofs...) {
			out[i].proofs = o.proofs // a chain is as strong as its weakest
		}
	}
	return out
}

// explain says why one rank computes slowly.
func (c *Case) explain(r falcon.Rank) opinion {
	timing := opinion{ranks: []falcon.Rank{r}}
	c.timing(&timing, r)
	gpu, cpu := timing.fork(falcon.CauseGPU), timing.fork(falcon.CauseCPU)
	hardware := c.gpuProofs(&gpu, r)
	counters := c.gpuKnown(r)
	host := c.hostProofs(&cpu, r)
	ahead, behind := c.lead(r)
	rank := c.Timing.Ranks[r]
	tested, fine := c.gemmProofs(&gpu, &cpu, r, behind)
	if ahead {
		gpu.add(falcon.EvidenceTiming, weightAhead, "%s: the host runs %.1f ms ahead of the device (healthy %.1f ms), so the device itself is slow", c.name(r), rank.QueueMs, rank.LeadMs)
	}
	if behind {
		cpu.add(falcon.EvidenceTiming, weightBehind, "%s: the host is only %.1f ms ahead of the device (healthy %.1f ms), so the device waits for launches", c.name(r), rank.QueueMs, rank.LeadMs)
	}
	isGPU := hardware || tested || (!counters && ahead && !host && !fine)
	isCPU := behind && (host || fine || !c.hostKnown(r)) || (host && !ahead && !hardware && !tested) ||
		(fine && !ahead && !c.hostKnown(r))
	switch {
	case isGPU && (!isCPU || c.confidence(&gpu) >= c.confidence(&cpu)):
		if !counters {
			gpu.against(falcon.EvidenceCounter, "%s: no GPU counters since the onset confirm it", c.name(r))
		}
		return gpu
	case isCPU:
		if !host {
			cpu.against(falcon.EvidenceCounter, "%s: no host counters since the onset confirm it", c.device(r).Node())
		}
		return cpu
	}
	return c.unexplained(timing, r)
}

// fork copies an opinion under a cause.
func (o *opinion) fork(cause falcon.Cause) opinion {
	return opinion{
		cause: cause, ranks: slices.Clone(o.ranks),
		proofs: slices.Clone(o.proofs), evidence: slices.Clone(o.evidence),
	}
}

// timing adds what peers say about a slow rank.
func (c *Case) timing(o *opinion, r falcon.Rank) {
	rank := c.Timing.Ranks[r]
	factor := 1.0
	if !c.Timing.Clear {
		factor = thinMargin
	}
	switch rank.Basis {
	case peer.ByPeers:
		o.add(falcon.EvidenceTiming, factor*weightPeers, "%s: self time %.1f ms, %.2f x the median %.1f ms of %d same-stage peers", c.name(r), rank.SelfMs, rank.Ratio, rank.PeerMs, rank.Peers)
	case peer.ByOwn:
		o.add(falcon.EvidenceTiming, factor*weightOwn, "%s: self time %.1f ms, %.2f x its own healthy %.1f ms", c.name(r), rank.SelfMs, rank.OwnRatio, rank.OwnMs)
	default:
		o.add(falcon.EvidenceTiming, factor*weightFew, "%s: self time %.1f ms, %.2f x the median %.1f ms of only %d same-stage peers", c.name(r), rank.SelfMs, rank.Ratio, rank.PeerMs, rank.Peers)
	}
	if rank.Awaited {
		o.add(falcon.EvidenceTiming, weightAwaited, "%s: other members of its groups wait for it more than twice the transfer", c.name(r))
	}
	if !c.Timing.Clear {
		o.against(falcon.EvidenceTiming, "The margin over the next rank is only %.2f", c.Timing.Margin)
	}
}

// lead compares the host's lead over the device with the healthy one.
func (c *Case) lead(r falcon.Rank) (ahead, behind bool) {
	rank := c.Timing.Ranks[r]
	if rank.LeadMs < leadLeast {
		return false, false
	}
	ratio := rank.QueueMs / rank.LeadMs
	return ratio >= aheadRatio, ratio <= behindRatio
}

// neighbours adds ranks of the same node that the starved host slows too,
// though less than the rule: a CPU fault belongs to the node.
func (c *Case) neighbours(o *opinion, r falcon.Rank) {
	for q, d := range c.Placement {
		rank := falcon.Rank(q)
		if rank == r || d.Node() != c.device(r).Node() || q >= len(c.Timing.Ranks) || slices.Contains(c.Timing.Slow, rank) {
			continue
		}
		if _, behind := c.lead(rank); behind && c.Timing.Ranks[q].Ratio > 1.05 {
			o.ranks = append(o.ranks, rank)
		}
	}
}

// unexplained is a slow rank whose cause neither counters nor the host's lead
// tell.
func (c *Case) unexplained(o opinion, r falcon.Rank) opinion {
	o.cause = falcon.CauseUnknown
	if g, ok := c.gemm(c.device(r)); ok {
		o.against(falcon.EvidenceTest, "%s: a matrix multiplication takes %.2f ms, %.2f x the median of all tested GPUs", g.Device, g.Ms, g.Ratio)
	}
	gpu, host := c.Counters.GPUs[c.device(r)], c.Counters.Hosts[c.device(r).Node()]
	if gpu.Known {
		o.against(falcon.EvidenceCounter, "%s: SM clock %.0f %% of its maximum, as its peers", c.device(r), 100*gpu.Clock)
	} else {
		o.against(falcon.EvidenceCounter, "%s: no GPU counters since the onset", c.device(r))
	}
	if c.Timing.Ranks[r].Peers == 0 {
		o.against(falcon.EvidenceTiming, "%s: no other rank has its work, which may have grown by itself", c.name(r))
	}
	if host.Known {
		o.against(falcon.EvidenceCounter, "%s: the host withholds %.0f %% of the CPU, as its peers", c.device(r).Node(), 100*host.StealShare)
	}
	return o
}
