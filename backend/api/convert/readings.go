package convert

import (
	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// SampleToProto is one iteration of one rank.
func SampleToProto(s falcon.Sample) *falconv1.Sample {
	return &falconv1.Sample{
		Rank:      clamped(s.Rank),
		Iteration: s.Iteration,
		EndUnixNs: s.EndNs,
		Ms:        s.Ms,
		PausedMs:  s.PausedMs,
		Exact:     s.Exact,
		Work:      workToProto(s.Work),
	}
}

// SampleFromProto is one iteration of one rank.
func SampleFromProto(p *falconv1.Sample) falcon.Sample {
	return falcon.Sample{
		Rank:      falcon.Rank(p.GetRank()),
		Iteration: p.GetIteration(),
		EndNs:     p.GetEndUnixNs(),
		Ms:        p.GetMs(),
		PausedMs:  p.GetPausedMs(),
		Exact:     p.GetExact(),
		Work:      workFromProto(p.GetWork()),
	}
}

// SamplesToProto is the samples of one frame.
func SamplesToProto(in []falcon.Sample) *falconv1.Samples {
	return &falconv1.Samples{Samples: mapped(in, SampleToProto)}
}

// ProfileToProto lacks the window, which the frame around it names.
func ProfileToProto(p falcon.RankProfile) *falconv1.RankProfile {
	out := profileHead(p)
	out.Calls = mapped(p.Calls, callToProto)
	return out
}

// PackedProfileToProto is the same with the calls in columns. Times keep whole nanoseconds.
func PackedProfileToProto(p falcon.RankProfile) *falconv1.RankProfile {
	out := profileHead(p)
	out.Columns = callsToColumns(p.Calls)
	return out
}

func profileHead(p falcon.RankProfile) *falconv1.RankProfile {
	return &falconv1.RankProfile{
		Rank:         clamped(p.Rank),
		Iterations:   clamped(p.Iterations),
		MicroBatches: clamped(p.MicroBatches),
		SelfMs:       p.SelfMs,
		QueueMs:      p.QueueMs,
		Dropped:      p.Dropped,
	}
}

// ProfileFromProto is what one rank measured in a window. Columns that do not fit together,
// which ValidColumns finds, are no calls.
func ProfileFromProto(window uint64, p *falconv1.RankProfile) falcon.RankProfile {
	out := falcon.RankProfile{
		Rank:         falcon.Rank(p.GetRank()),
		Window:       window,
		Iterations:   int(p.GetIterations()),
		MicroBatches: int(p.GetMicroBatches()),
		SelfMs:       p.GetSelfMs(),
		QueueMs:      p.GetQueueMs(),
		Dropped:      p.GetDropped(),
	}
	if p.GetColumns() != nil {
		out.Calls = callsFromColumns(p.Columns)
	} else {
		out.Calls = mapped(p.GetCalls(), callFromProto)
	}
	return out
}

func callToProto(c falcon.CallTiming) *falconv1.CallTiming {
	return &falconv1.CallTiming{
		Comm:       c.Comm,
		Ordinal:    c.Ordinal,
		Op:         uint32(c.Op),
		Peer:       clamped(c.Peer),
		Bytes:      c.Bytes,
		StartMs:    c.StartMs,
		DurationMs: c.DurationMs,
		QueueMs:    c.QueueMs,
	}
}

func callFromProto(p *falconv1.CallTiming) falcon.CallTiming {
	return falcon.CallTiming{
		Comm:       p.GetComm(),
		Ordinal:    p.GetOrdinal(),
		Op:         falcon.Op(p.GetOp()),
		Peer:       int(p.GetPeer()),
		Bytes:      p.GetBytes(),
		StartMs:    p.GetStartMs(),
		DurationMs: p.GetDurationMs(),
		QueueMs:    p.GetQueueMs(),
	}
}

// CommFromProto lacks the dimension, which no process knows by itself.
func CommFromProto(p *falconv1.Comm) falcon.Comm {
	return falcon.Comm{
		ID:         p.GetId(),
		Name:       p.GetName(),
		Size:       int(p.GetSize()),
		RankInComm: int(p.GetRank()),
		Generation: p.GetGeneration(),
		Choices:    choicesFromProto(p.GetChoices()),
	}
}

// TrafficToProto is what one communicator carries for one rank.
func TrafficToProto(t falcon.Traffic) *falconv1.Traffic {
	return &falconv1.Traffic{
		Comm:   t.Comm,
		Op:     uint32(t.Op),
		Calls:  clamped(t.Calls),
		Bytes:  t.Bytes,
		Alike:  clamped(t.Alike),
		Single: clamped(t.Single),
		Peers:  mapped(t.Peers, clamped[int]),
	}
}

// TrafficFromProto is what one communicator carries for one rank.
func TrafficFromProto(p *falconv1.Traffic) falcon.Traffic {
	return falcon.Traffic{
		Comm:   p.GetComm(),
		Op:     falcon.Op(p.GetOp()),
		Calls:  int(p.GetCalls()),
		Bytes:  p.GetBytes(),
		Alike:  int(p.GetAlike()),
		Single: int(p.GetSingle()),
		Peers:  mapped(p.GetPeers(), func(r int32) int { return int(r) }),
	}
}

// CommToProto is a communicator as one rank sees it.
func CommToProto(c falcon.Comm) *falconv1.Comm {
	return &falconv1.Comm{
		Id:         c.ID,
		Name:       c.Name,
		Size:       clamped(c.Size),
		Rank:       clamped(c.RankInComm),
		Generation: c.Generation,
		Choices:    choicesToProto(c.Choices),
	}
}

// TelemetryToProto is one look at a node's hardware.
func TelemetryToProto(
	gpus []falcon.GPUReading,
	nics []falcon.NICReading,
	host falcon.HostReading,
) *falconv1.Telemetry {
	return &falconv1.Telemetry{
		Gpus: mapped(gpus, GPUToProto),
		Nics: mapped(nics, NICToProto),
		Host: HostToProto(host),
	}
}

// GPUToProto is one look at a GPU.
func GPUToProto(g falcon.GPUReading) *falconv1.Gpu {
	return &falconv1.Gpu{
		Device:        string(g.Device),
		AtUnixNs:      g.AtNs,
		SmClockMhz:    g.SMClockMHz,
		MaxSmClockMhz: g.MaxSMClockMHz,
		TemperatureC:  g.TemperatureC,
		PowerMw:       g.PowerMw,
		PowerLimitMw:  g.PowerLimitMw,
		Reasons:       g.Reasons,
		ThermalNs:     g.ThermalNs,
		PowerBrakeNs:  g.PowerBrakeNs,
		PowerCapNs:    g.PowerCapNs,
		EccCorrected:  g.EccCorrected,
		EccFatal:      g.EccFatal,
		XidCount:      g.XidCount,
		LastXid:       g.LastXid,
		ProbeUs:       g.ProbeUs,
		Err:           g.Err,
		Model:         g.Model,
		Busy:          uint32(g.Busy),
		SmBusy:        uint32(g.SMBusy),
		Gauges:        g.Gauges,
	}
}

// GPUFromProto takes the device's name as it is given.
func GPUFromProto(p *falconv1.Gpu) falcon.GPUReading {
	return falcon.GPUReading{
		Device:        falcon.Device(p.GetDevice()),
		AtNs:          p.GetAtUnixNs(),
		SMClockMHz:    p.GetSmClockMhz(),
		MaxSMClockMHz: p.GetMaxSmClockMhz(),
		TemperatureC:  p.GetTemperatureC(),
		PowerMw:       p.GetPowerMw(),
		PowerLimitMw:  p.GetPowerLimitMw(),
		Reasons:       p.GetReasons(),
		ThermalNs:     p.GetThermalNs(),
		PowerBrakeNs:  p.GetPowerBrakeNs(),
		PowerCapNs:    p.GetPowerCapNs(),
		EccCorrected:  p.GetEccCorrected(),
		EccFatal:      p.GetEccFatal(),
		XidCount:      p.GetXidCount(),
		LastXid:       p.GetLastXid(),
		ProbeUs:       p.GetProbeUs(),
		Err:           p.GetErr(),
		Model:         p.GetModel(),
		Busy:          falcon.Percent(p.GetBusy()),
		SMBusy:        falcon.Percent(p.GetSmBusy()),
		Gauges:        p.GetGauges(),
	}
}

// HostToProto lacks the node, which is the sender.
func HostToProto(h falcon.HostReading) *falconv1.Host {
	out := &falconv1.Host{
		AtUnixNs:    h.AtNs,
		PressureUs:  h.PressureUs,
		ThrottledUs: h.ThrottledUs,
		LoadPerCpu:  h.LoadPerCPU,
		StealShare:  h.StealShare,
		Emulated:    h.Emulated,
		Err:         h.Err,
		RunDelayNs:  make(map[int32]uint64, len(h.RunDelayNs)),
	}
	for r, ns := range h.RunDelayNs {
		out.RunDelayNs[clamped(r)] = ns
	}
	return out
}

// HostFromProto is one look at the CPU side of a node.
func HostFromProto(node falcon.Node, p *falconv1.Host) falcon.HostReading {
	out := falcon.HostReading{
		Node:        node,
		AtNs:        p.GetAtUnixNs(),
		PressureUs:  p.GetPressureUs(),
		ThrottledUs: p.GetThrottledUs(),
		LoadPerCPU:  p.GetLoadPerCpu(),
		StealShare:  p.GetStealShare(),
		Emulated:    p.GetEmulated(),
		Err:         p.GetErr(),
		RunDelayNs:  make(map[falcon.Rank]uint64, len(p.GetRunDelayNs())),
	}
	for r, ns := range p.GetRunDelayNs() {
		out.RunDelayNs[falcon.Rank(r)] = ns
	}
	return out
}

// NICToProto is one look at a port.
func NICToProto(n falcon.NICReading) *falconv1.Nic {
	return &falconv1.Nic{
		Name:          string(n.NIC),
		AtUnixNs:      n.AtNs,
		RateMbps:      n.RateMbps,
		Active:        n.Active,
		XmitWait:      n.XmitWait,
		CnpSent:       n.CNPSent,
		CnpHandled:    n.CNPHandled,
		EcnMarked:     n.ECNMarked,
		Retransmits:   n.Retransmits,
		OutOfSequence: n.OutOfSequence,
		LinkDowned:    n.LinkDowned,
		SymbolErrors:  n.SymbolErrors,
		XmitBytes:     n.XmitBytes,
		RcvBytes:      n.RcvBytes,
		Emulated:      n.Emulated,
		Err:           n.Err,
	}
}

// NICFromProto takes the port's name as it is given.
func NICFromProto(p *falconv1.Nic) falcon.NICReading {
	return falcon.NICReading{
		NIC:           falcon.NIC(p.GetName()),
		AtNs:          p.GetAtUnixNs(),
		RateMbps:      p.GetRateMbps(),
		Active:        p.GetActive(),
		XmitWait:      p.GetXmitWait(),
		CNPSent:       p.GetCnpSent(),
		CNPHandled:    p.GetCnpHandled(),
		ECNMarked:     p.GetEcnMarked(),
		Retransmits:   p.GetRetransmits(),
		OutOfSequence: p.GetOutOfSequence(),
		LinkDowned:    p.GetLinkDowned(),
		SymbolErrors:  p.GetSymbolErrors(),
		XmitBytes:     p.GetXmitBytes(),
		RcvBytes:      p.GetRcvBytes(),
		Emulated:      p.GetEmulated(),
		Err:           p.GetErr(),
	}
}
