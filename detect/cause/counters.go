package cause

import (
	"github.com/failslow/falcon"
)

func (c *Case) gpuKnown(r falcon.Rank) bool {
	return c.Counters.GPUs[c.deviceOf(r)].Known
}

func (c *Case) hostKnown(r falcon.Rank) bool {
	return c.Counters.Hosts[c.deviceOf(r).Node()].Known
}

// Confirmed reports whether counters or a failed test accuse rank r's GPU or node, so that
// one window of timing is enough.
func (c *Case) Confirmed(r falcon.Rank) bool {
	var scratch opinion
	g, tested := c.gemmResult(c.deviceOf(r))
	return tested && g.Slow || c.gpuProofs(&scratch, r) || c.hostProofs(&scratch, r)
}

// gpuProofs adds what a rank's GPU counters prove, and reports whether they prove anything.
func (c *Case) gpuProofs(o *opinion, r falcon.Rank) bool {
	d := c.deviceOf(r)
	g := c.Counters.GPUs[d]
	if !g.Known {
		return false
	}
	before := len(o.proofs)
	clock := c.peerClock(d)
	slow := g.Clock < clockGap*clock
	switch {
	case slow && g.ThrottleShare >= throttleShare:
		o.addEvidence(falcon.EvidenceCounter, weightThrottle,
			"%s: SM clock %.0f %% of its maximum against %.0f %% at its peers, slowed for heat or by the power brake %.0f %% of the time since the onset",
			d, 100*g.Clock, 100*clock, 100*g.ThrottleShare)
	case slow && g.Before > 0 && g.Clock > clockGap*g.Before:
		o.addAgainst(falcon.EvidenceCounter,
			"%s: SM clock %.0f %% of its maximum against %.0f %% at its peers, but it was so before",
			d, 100*g.Clock, 100*clock)
	case !slow && c.isCrowded(r) && g.Before > 0 && g.Clock < clockGap*g.Before:
		weight := weightClock
		if g.ThrottleShare >= throttleShare {
			weight = weightThrottle
		}
		o.addEvidence(falcon.EvidenceCounter, weight,
			"%s: SM clock %.0f %% of its maximum against %.0f %% before, as at most of its peers, slowed for heat or by the power brake %.0f %% of the time since the onset",
			d, 100*g.Clock, 100*g.Before, 100*g.ThrottleShare)
	case slow:
		o.addEvidence(falcon.EvidenceCounter, weightClock,
			"%s: SM clock %.0f %% of its maximum against %.0f %% at its peers, no throttle time counted (power cap %.0f %% of the time)",
			d, 100*g.Clock, 100*clock, 100*g.CapShare)
	}
	if g.Fatal > 0 || g.Xids > 0 {
		o.addEvidence(falcon.EvidenceCounter, weightXid,
			"%s: %d XID events (last %d) and %d uncorrectable ECC errors since the onset",
			d, g.Xids, g.LastXid, g.Fatal)
	}
	usual := c.peerGPU(d, func(g GPU) float64 { return g.ProbeUs })
	if g.ProbeUs > stalledUs && g.ProbeUs > stalledRatio*usual {
		o.addEvidence(falcon.EvidenceCounter, weightProbe,
			"%s: its probe takes %.1f ms, %.1f ms at its peers",
			d, g.ProbeUs/1e3, usual/1e3)
	}
	return len(o.proofs) > before
}

// isCrowded reports whether a rank was compared with its own past: its peers clear it of nothing.
func (c *Case) isCrowded(r falcon.Rank) bool {
	return int(r) < len(c.Timing.Ranks) && c.Timing.Ranks[r].Crowded(crowdLeast)
}

// hostProofs adds what the counters of a rank's node prove, and reports whether any do.
func (c *Case) hostProofs(o *opinion, r falcon.Rank) bool {
	n := c.deviceOf(r).Node()
	h := c.Counters.Hosts[n]
	if !h.Known {
		return false
	}
	// over says by how much a share is above that of the other hosts and above
	// its own before the onset; without either there is nothing to compare with.
	over := func(value func(Host) float64, gap float64) (usual float64, ok bool) {
		usual, known := c.peerHost(n, value)
		if h.Before != nil {
			usual = max(usual, value(*h.Before))
			known = true
		}
		return usual, known && value(h) > usual+gap
	}
	if steal, ok := over(func(h Host) float64 { return h.StealShare }, stealGap); ok {
		how := ""
		if h.Emulated {
			how = " (emulated)"
		}
		o.addEvidence(falcon.EvidenceCounter, weightSteal,
			"%s: the host withholds %.0f %% of the CPU that the ranks want, usual is %.0f %%%s",
			n, 100*h.StealShare, 100*steal, how)
		return true
	}
	if h.Emulated {
		return false
	}
	for _, kind := range []struct {
		text string
		of   func(Host) float64
		gap  float64
	}{
		{
			"the ranks' CPU quota throttles them",
			func(h Host) float64 { return h.ThrottledShare },
			throttledGap,
		},
		{"ranks wait for a CPU", func(h Host) float64 { return h.PressureShare }, pressureGap},
		{"a rank is runnable without a CPU", func(h Host) float64 { return h.RunDelayShare }, pressureGap},
	} {
		if usual, ok := over(kind.of, kind.gap); ok {
			o.addEvidence(falcon.EvidenceCounter, weightPressure,
				"%s: %s %.0f %% of the time, usual is %.0f %%",
				n, kind.text, 100*kind.of(h), 100*usual)
			return true
		}
	}
	return false
}

// peerClock is the median share of the maximum clock over the other devices
// of the job; 1 where there are none to compare with.
func (c *Case) peerClock(d falcon.Device) float64 {
	if v := c.peerGPU(d, func(g GPU) float64 { return g.Clock }); v > 0 {
		return v
	}
	return 1
}

func (c *Case) peerGPU(d falcon.Device, value func(GPU) float64) float64 {
	var out []float64
	for _, q := range c.Placement {
		if g := c.Counters.GPUs[q]; q != d && g.Known {
			out = append(out, value(g))
		}
	}
	return falcon.Median(out)
}

// peerHost is the median over the other hosts; ok false where none is known.
func (c *Case) peerHost(n falcon.Node, value func(Host) float64) (usual float64, ok bool) {
	var out []float64
	for q, h := range c.Counters.Hosts {
		if q != n && h.Known {
			out = append(out, value(h))
		}
	}
	return falcon.Median(out), len(out) > 0
}

// reducedClocks counts the devices whose counters are known, and those among them
// whose clock fell since the onset or was throttled.
func (c *Case) reducedClocks(ranks []falcon.Rank) (known int, reduced []falcon.Rank) {
	for _, r := range ranks {
		g := c.Counters.GPUs[c.deviceOf(r)]
		if !g.Known {
			continue
		}
		known++
		fell := g.Before > 0 && g.Clock < clockGap*g.Before
		if fell || (g.Clock < clockGap && g.ThrottleShare >= throttleShare) {
			reduced = append(reduced, r)
		}
	}
	return known, reduced
}
