package cause

import (
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// computation explains ranks slower than their peers, one opinion per cause.
func (c *Case) computation() []opinion {
	var out []opinion
	for _, r := range c.Timing.Slow {
		o := c.explainRank(r)
		if o.cause == falcon.CauseCPU {
			c.neighbours(&o, r)
		}
		i := slices.IndexFunc(out, func(p opinion) bool {
			return p.cause == o.cause
		})
		if i < 0 {
			out = append(out, o)
			continue
		}
		out[i].ranks = append(out[i].ranks, o.ranks...)
		out[i].evidence = append(out[i].evidence, o.evidence...)
		if combineProofs(o.proofs...) < combineProofs(out[i].proofs...) {
			out[i].proofs = o.proofs // a chain is as strong as its weakest
		}
	}
	return out
}

// explainRank is why one rank computes slowly.
func (c *Case) explainRank(r falcon.Rank) opinion {
	timing := opinion{ranks: []falcon.Rank{r}}
	c.addTiming(&timing, r)
	gpu, cpu := timing.copyAs(falcon.CauseGPU), timing.copyAs(falcon.CauseCPU)
	hardware := c.gpuProofs(&gpu, r)
	counters := c.gpuKnown(r)
	host := c.hostProofs(&cpu, r)
	ahead, behind := c.compareLead(r)
	rank := c.Timing.Ranks[r]
	tested, fine := c.gemmProofs(&gpu, &cpu, r, behind)
	if ahead {
		gpu.addEvidence(falcon.EvidenceTiming, weightAhead,
			"%s: the host runs %.1f ms ahead of the device (healthy %.1f ms), so the device itself is slow",
			c.nameOf(r), rank.QueueMs, rank.LeadMs)
	}
	if behind {
		cpu.addEvidence(falcon.EvidenceTiming, weightBehind,
			"%s: the host is only %.1f ms ahead of the device (healthy %.1f ms), so the device waits for launches",
			c.nameOf(r), rank.QueueMs, rank.LeadMs)
	}
	isGPU := hardware || tested || (!counters && ahead && !host && !fine)
	isCPU := behind && (host || fine || !c.hostKnown(r)) || (host && !ahead && !hardware && !tested) ||
		(fine && !ahead && !c.hostKnown(r))
	switch {
	case isGPU && (!isCPU || c.confidence(&gpu) >= c.confidence(&cpu)):
		if !counters {
			gpu.addAgainst(falcon.EvidenceCounter, "%s: no GPU counters since the onset confirm it",
				c.nameOf(r))
		}
		return gpu
	case isCPU:
		if !host {
			cpu.addAgainst(falcon.EvidenceCounter, "%s: no host counters since the onset confirm it",
				c.deviceOf(r).Node())
		}
		return cpu
	}
	return c.unexplained(timing, r)
}

// copyAs copies an opinion under a cause.
func (o *opinion) copyAs(cause falcon.Cause) opinion {
	return opinion{
		cause:    cause,
		ranks:    slices.Clone(o.ranks),
		proofs:   slices.Clone(o.proofs),
		evidence: slices.Clone(o.evidence),
	}
}

// addTiming adds what peers say about a slow rank.
func (c *Case) addTiming(o *opinion, r falcon.Rank) {
	rank := c.Timing.Ranks[r]
	factor := 1.0
	if !c.Timing.Clear {
		factor = thinMargin
	}
	if c.Timing.Overlap {
		c.addArrival(o, r, factor)
	} else {
		c.addSelfTime(o, r, factor)
	}
	if rank.Awaited {
		o.addEvidence(falcon.EvidenceTiming, weightAwaited,
			"%s: other members of its groups wait for it more than twice the transfer",
			c.nameOf(r))
	}
	if !c.Timing.Clear {
		o.addAgainst(falcon.EvidenceTiming, "The margin over the next rank is only %.2f", c.Timing.Margin)
	}
}

// addArrival adds how a rank comes to collectives that hide its computation.
func (c *Case) addArrival(o *opinion, r falcon.Rank, factor float64) {
	rank := c.Timing.Ranks[r]
	weight := weightFew
	if rank.Peers >= crowdLeast {
		weight = weightPeers
	}
	o.addEvidence(falcon.EvidenceTiming, factor*weight,
		"%s: it does not wait for others in %s of an iteration, entered last in %d of %d collectives, and is at least %.2f x slower than before and than its %d peers",
		c.nameOf(r), falcon.DurationText(rank.WorkMs), rank.EnteredLast, rank.Entered, rank.Ratio,
		rank.Peers)
}

// addSelfTime adds how long a rank computes between its calls.
func (c *Case) addSelfTime(o *opinion, r falcon.Rank, factor float64) {
	rank := c.Timing.Ranks[r]
	switch rank.Basis {
	case peer.ByPeers:
		o.addEvidence(falcon.EvidenceTiming, factor*weightPeers,
			"%s: self time %s, %.2f x the median %s of %d same-stage peers",
			c.nameOf(r), falcon.DurationText(rank.SelfMs), rank.Ratio,
			falcon.DurationText(rank.PeerMs), rank.Peers)
	case peer.ByOwn:
		o.addEvidence(falcon.EvidenceTiming, factor*weightOwn, "%s: self time %s, %.2f x its own healthy %s",
			c.nameOf(r), falcon.DurationText(rank.SelfMs), rank.OwnRatio,
			falcon.DurationText(rank.OwnMs))
	default:
		o.addEvidence(falcon.EvidenceTiming, factor*weightFew,
			"%s: self time %s, %.2f x the median %s of only %d same-stage peers",
			c.nameOf(r), falcon.DurationText(rank.SelfMs), rank.Ratio,
			falcon.DurationText(rank.PeerMs), rank.Peers)
	}
}

// compareLead compares the host's lead over the device with the healthy one.
func (c *Case) compareLead(r falcon.Rank) (ahead, behind bool) {
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
		if rank == r ||
			d.Node() != c.deviceOf(r).Node() ||
			q >= len(c.Timing.Ranks) ||
			slices.Contains(c.Timing.Slow, rank) {
			continue
		}
		_, behind := c.compareLead(rank)
		if behind && c.Timing.Ranks[q].Ratio > 1.05 {
			o.ranks = append(o.ranks, rank)
		}
	}
}

// unexplained is a slow rank whose cause neither counters nor the host's lead show.
func (c *Case) unexplained(o opinion, r falcon.Rank) opinion {
	o.cause = falcon.CauseUnknown
	if g, ok := c.gemmResult(c.deviceOf(r)); ok {
		o.addAgainst(falcon.EvidenceTest,
			"%s: a matrix multiplication takes %.2f ms, %.2f x the median of all tested GPUs",
			g.Device, g.Ms, g.Ratio)
	}
	gpu, host := c.Counters.GPUs[c.deviceOf(r)], c.Counters.Hosts[c.deviceOf(r).Node()]
	if gpu.Known {
		o.addAgainst(falcon.EvidenceCounter, "%s: SM clock %.0f %% of its maximum, as its peers",
			c.deviceOf(r), 100*gpu.Clock)
	} else {
		o.addAgainst(falcon.EvidenceCounter, "%s: no GPU counters since the onset", c.deviceOf(r))
	}
	if c.Timing.Ranks[r].Peers == 0 {
		o.addAgainst(falcon.EvidenceTiming, "%s: no other rank has its work, which may have grown by itself",
			c.nameOf(r))
	}
	if host.Known {
		o.addAgainst(falcon.EvidenceCounter, "%s: the host withholds %.0f %% of the CPU, as its peers",
			c.deviceOf(r).Node(), 100*host.StealShare)
	}
	return o
}
