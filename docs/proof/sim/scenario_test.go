package sim

import "github.com/failslow/falcon"

// Scenario is a published run at scale, as far as it is published.
type Scenario struct {
	Shape Shape
	Mix   Mix
	Costs Costs
	// Published: iterations a minute healthy, slow and mitigated; 0 = not given.
	Healthy, Slow, Mitigated float64
}

// The paper's figures of table 7.
const (
	paperHealthy   = 17.1 // iterations a minute
	paperSlow      = 14.8
	paperMitigated = 16.2
)

// Figure20 is the run of FALCON §7.5: GPT2-13B on 64 GPUs, 16DP × 4PP, with two
// communication and eight computation fail-slows. The healthy iteration and the
// unmitigated throughput are the paper's (table 7). The rest is chosen: 32
// micro-batches of one 2,048-token sequence per replica, ports of 400 Gbit/s,
// gradients in bf16; how long faults last is in Lasting and Brief.
func Figure20(m Mix) Scenario {
	const params = 13e9
	s := Shape{
		Name:         "FALCON fig. 20, 64 GPUs, 16DP x 4PP, " + m.Name,
		Layout:       falcon.Layout{TP: 1, DP: 16, PP: 4},
		GPUsPerNode:  8,
		Micro:        32,
		EndsExtra:    0.04,
		GradientMB:   2 * params / 4 / 1e6,
		ActivationMB: 2 * 2048 * 5120 / 1e6,
		NICMBs:       45_000,
		NVLinkMBs:    150_000,
		LatencyMs:    0.02,
		StepMs:       60,
		OpCoV:        0.02,
		RankCoV:      0.01,
		JobCoV:       0.01,
	}
	return Scenario{
		Shape:     s.ScaledTo(60_000 / paperHealthy),
		Mix:       m,
		Costs:     costs(params / 4),
		Healthy:   paperHealthy,
		Slow:      paperSlow,
		Mitigated: paperMitigated,
	}
}

// Figure20Flows is Figure20 on package flow: 8 ports of a node, gradients in 8
// buckets on 2 rings beside the backward pass, two leaves under a spine that
// carries all that their ports do.
func Figure20Flows(m Mix) Scenario {
	sc := Figure20(m)
	sc.Shape.Flows = &flows{
		Buckets:   8,
		Channels:  2,
		LeafNodes: 4,
		Oversub:   1,
	}
	sc.Shape = sc.Shape.ScaledTo(60_000 / paperHealthy)
	return sc
}

// Greyhound256 is the 256-GPU run of the Greyhound slides: GPT2-40B, 8TP × 16DP
// × 2PP, two communication and eight computation stragglers. They give no
// figures; pace and unmitigated throughput are taken from table 7.
func Greyhound256(m Mix) Scenario {
	const params = 40e9
	s := Shape{
		Name:         "Greyhound, 256 GPUs, 8TP x 16DP x 2PP, " + m.Name,
		Layout:       falcon.Layout{TP: 8, DP: 16, PP: 2},
		GPUsPerNode:  8,
		Micro:        32,
		EndsExtra:    0.04,
		GradientMB:   2 * params / 16 / 1e6,
		ActivationMB: 2 * 2048 * 8192 / 8 / 1e6,
		NICMBs:       45_000,
		NVLinkMBs:    150_000,
		LatencyMs:    0.02,
		StepMs:       60,
		OpCoV:        0.02,
		RankCoV:      0.01,
		JobCoV:       0.01,
	}
	return Scenario{
		Shape: s.ScaledTo(60_000 / paperHealthy),
		Mix:   m,
		Costs: costs(params / 16),
	}
}

// Lasting is two slow links and eight slow GPUs in four hours, which last as
// long as those that the paper met: 10 minutes for slow computation, 24 for
// communication on average (FALCON §3.2, §3.3).
func Lasting() Mix {
	return Mix{
		Name:          "faults of 5 to 40 minutes in 4 h",
		RunS:          14_400,
		Links:         []float64{2400, 8400},
		LinksApartS:   240,
		LinkForS:      [2]float64{900, 2400},
		LinkTimes:     [2]float64{4, 12},
		Devices:       8,
		DeviceForS:    [2]float64{300, 1200},
		DeviceTimes:   [2]float64{1.3, 2.2},
		ThroughputNow: paperSlow / paperHealthy,
	}
}

// Brief is as many in one hour, the slow links about when fig. 20 shows them.
func Brief() Mix {
	return Mix{
		Name:          "faults of 2 to 10 minutes in 1 h",
		RunS:          3600,
		Links:         []float64{600, 2100},
		LinksApartS:   60,
		LinkForS:      [2]float64{300, 600},
		LinkTimes:     [2]float64{4, 12},
		Devices:       8,
		DeviceForS:    [2]float64{120, 420},
		DeviceTimes:   [2]float64{1.3, 2.2},
		ThroughputNow: paperSlow / paperHealthy,
	}
}

// costs of a job with so many parameters on one GPU: 14 bytes of each move
// (bf16 weights, fp32 master copy and two Adam moments).
func costs(params float64) Costs {
	return Costs{
		CommitAfter: 2,
		SplitMs:     200,
		HoldMs:      1500,
		ControlMs:   1000,
		StateMB:     14 * params / 1e6,
		CopyMBs:     20_000,
	}
}
