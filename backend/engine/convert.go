package engine

import (
	"strings"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Conversions between the wire and the vocabulary. What comes in is checked
// for range only where an index is made of it; strings are cleaned of control
// characters before they can reach a terminal or the journal.

// textBytesMax bounds any text that another machine sends.
const textBytesMax = 512

// clean strips control characters and bounds the length.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	if len(s) > textBytesMax {
		s = strings.ToValidUTF8(s[:textBytesMax], "")
	}
	return s
}

func sampleFrom(s *falconv1.Sample) falcon.Sample {
	return falcon.Sample{
		Rank: falcon.Rank(s.GetRank()), Iteration: s.GetIteration(), EndNs: s.GetEndUnixNs(),
		Ms: s.GetMs(), PausedMs: s.GetPausedMs(), Exact: s.GetExact(),
	}
}

// Bounds of numbers from other machines: beyond them one is a fault of the
// sender, and would spoil every sum that it enters.
const (
	msMost        = 1e9     // 11 days
	countMost     = 1 << 20 // micro-batches, iterations of a window
	iterationMost = 1 << 40
	gpusMax       = 64 // per node
)

// finite is v where it is a number within [0, most], else 0.
func finite(v, most float64) float64 {
	if v >= 0 && v <= most {
		return v
	}
	return 0 // also for NaN
}

// plausibleProfile refuses what no profile can hold.
func plausibleProfile(p *falconv1.RankProfile) bool {
	counts := p.GetIterations() >= 0 && p.GetIterations() <= countMost && p.GetMicroBatches() >= 0 && p.GetMicroBatches() <= countMost
	return counts && p.GetSelfMs() >= 0 && p.GetSelfMs() < msMost
}

func profileFrom(window uint64, p *falconv1.RankProfile) falcon.RankProfile {
	out := falcon.RankProfile{
		Rank: falcon.Rank(p.GetRank()), Window: window, Iterations: int(p.GetIterations()),
		MicroBatches: int(p.GetMicroBatches()), SelfMs: p.GetSelfMs(), QueueMs: finite(p.GetQueueMs(), msMost),
		Dropped: p.GetDropped(), Calls: make([]falcon.CallTiming, len(p.GetCalls())),
	}
	for i, c := range p.GetCalls() {
		out.Calls[i] = falcon.CallTiming{
			Comm: c.GetComm(), Ordinal: c.GetOrdinal(), Op: falcon.Op(c.GetOp()), Peer: int(c.GetPeer()),
			Bytes: max(c.GetBytes(), 0), StartMs: finite(c.GetStartMs(), msMost), DurationMs: finite(c.GetDurationMs(), msMost), QueueMs: finite(c.GetQueueMs(), msMost),
		}
	}
	return out
}

func gpuFrom(node falcon.Node, g *falconv1.Gpu) falcon.GPUReading {
	return falcon.GPUReading{
		Device: deviceOn(node, g.GetDevice()), AtNs: g.GetAtUnixNs(),
		SMClockMHz: g.GetSmClockMhz(), MaxSMClockMHz: g.GetMaxSmClockMhz(), TemperatureC: g.GetTemperatureC(),
		PowerMw: g.GetPowerMw(), PowerLimitMw: g.GetPowerLimitMw(), Reasons: g.GetReasons(),
		ThermalNs: g.GetThermalNs(), PowerBrakeNs: g.GetPowerBrakeNs(), PowerCapNs: g.GetPowerCapNs(),
		EccCorrected: g.GetEccCorrected(), EccFatal: g.GetEccFatal(), XidCount: g.GetXidCount(),
		LastXid: g.GetLastXid(), ProbeUs: g.GetProbeUs(), Err: clean(g.GetErr()),
	}
}

func hostFrom(node falcon.Node, h *falconv1.Host) falcon.HostReading {
	delay := make(map[falcon.Rank]uint64, len(h.GetRunDelayNs()))
	for r, ns := range h.GetRunDelayNs() {
		delay[falcon.Rank(r)] = ns
	}
	return falcon.HostReading{
		Node: node, AtNs: h.GetAtUnixNs(), PressureUs: h.GetPressureUs(), ThrottledUs: h.GetThrottledUs(),
		LoadPerCPU: finite(h.GetLoadPerCpu(), 1e6), RunDelayNs: delay, Emulated: h.GetEmulated(),
		StealShare: min(finite(h.GetStealShare(), msMost), 1), Err: clean(h.GetErr()),
	}
}

// deviceOn ties a device's name to the node that its agent's certificate
// proves: an agent can't speak for another node's hardware.
func deviceOn(node falcon.Node, name string) falcon.Device {
	d, err := falcon.ParseDevice(clean(name))
	if err != nil || d.Node() != node {
		return falcon.NewDevice(node, max(falcon.Device(clean(name)).Index(), 0))
	}
	return d
}

func protoIncident(v falcon.Incident) *falconv1.Incident {
	return &falconv1.Incident{
		Id: v.ID, State: string(v.State), FromStart: v.FromStart, OnsetIteration: v.OnsetIteration,
		DetectedIteration: v.DetectedIteration, RelievedIteration: v.RelievedIteration,
		HealthyMs: v.HealthyMs, SlowMs: v.SlowMs, Probability: v.Probability, Verdict: protoVerdict(v.Verdict),
	}
}

func protoVerdict(v falcon.Verdict) *falconv1.Verdict {
	out := &falconv1.Verdict{
		Cause: string(v.Cause), Also: texts(v.Also), Devices: texts(v.Devices),
		Severity: int32(v.Severity), Confidence: v.Confidence,
	}
	for _, r := range v.Ranks {
		out.Ranks = append(out.Ranks, int32(r))
	}
	for _, l := range v.Links {
		out.Links = append(out.Links, l.String())
	}
	for _, e := range v.Evidence {
		out.Evidence = append(out.Evidence, &falconv1.Evidence{Kind: string(e.Kind), Text: e.Text, Against: e.Against})
	}
	return out
}

func texts[T ~string](in []T) []string {
	var out []string
	for _, v := range in {
		out = append(out, string(v))
	}
	return out
}
