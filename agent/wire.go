package agent

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/period"
)

// dtypeBytes is the size of one element by ncclDataType_t.
var dtypeBytes = [...]int64{1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}

// payload is the bytes that a call moves for this rank, 0 when unknown.
func payload(count uint64, dtype uint8) int64 {
	const countMax = 1 << 48 // beyond any memory: a hostile count must not overflow
	if int(dtype) >= len(dtypeBytes) || count > countMax {
		return 0
	}
	return int64(count) * dtypeBytes[dtype]
}

// anchorHash is the FNV-1a 32 of the anchor call's class.
func anchorHash(c period.Class) uint32 {
	var b [13]byte
	binary.LittleEndian.PutUint32(b[0:], c.Op)
	binary.LittleEndian.PutUint64(b[4:], c.Comm)
	b[12] = c.Size
	h := fnv.New32a()
	h.Write(b[:])
	return h.Sum32()
}

func samplesFrame(in []falcon.Sample) *falconv1.AgentFrame {
	out := &falconv1.Samples{Samples: make([]*falconv1.Sample, len(in))}
	for i, s := range in {
		out.Samples[i] = &falconv1.Sample{
			Rank: int32(s.Rank), Iteration: s.Iteration, EndUnixNs: s.EndNs,
			Ms: s.Ms, PausedMs: s.PausedMs, Exact: s.Exact,
		}
	}
	return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Samples{Samples: out}}
}

func rankFrame(st *falconv1.RankState) *falconv1.AgentFrame {
	return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Rank{Rank: st}}
}

func resultFrame(r *falconv1.CommandResult) *falconv1.AgentFrame {
	return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Result{Result: r}}
}

func profileFrame(p *falconv1.Profile) *falconv1.AgentFrame {
	return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Profile{Profile: p}}
}

func rankProfile(p falcon.RankProfile) *falconv1.RankProfile {
	out := &falconv1.RankProfile{
		Rank: int32(p.Rank), Iterations: int32(p.Iterations), MicroBatches: int32(p.MicroBatches),
		SelfMs: p.SelfMs, QueueMs: p.QueueMs, Dropped: p.Dropped,
		Calls: make([]*falconv1.CallTiming, len(p.Calls)),
	}
	for i, c := range p.Calls {
		out.Calls[i] = &falconv1.CallTiming{
			Comm: c.Comm, Ordinal: c.Ordinal, Op: uint32(c.Op), Peer: int32(c.Peer), Bytes: c.Bytes,
			StartMs: c.StartMs, DurationMs: c.DurationMs, QueueMs: c.QueueMs,
		}
	}
	return out
}

// TelemetryFrame is one look at the node's hardware as it goes to the engine.
func TelemetryFrame(gpus []falcon.GPUReading, nics []falcon.NICReading, host falcon.HostReading) *falconv1.AgentFrame {
	out := &falconv1.Telemetry{Host: hostReading(host)}
	for _, n := range nics {
		out.Nics = append(out.Nics, &falconv1.Nic{
			Name: string(n.NIC), AtUnixNs: n.AtNs, RateMbps: n.RateMbps, Active: n.Active, XmitWait: n.XmitWait,
			CnpSent: n.CNPSent, CnpHandled: n.CNPHandled, EcnMarked: n.ECNMarked, Retransmits: n.Retransmits, OutOfSequence: n.OutOfSequence,
			LinkDowned: n.LinkDowned, SymbolErrors: n.SymbolErrors, XmitBytes: n.XmitBytes, RcvBytes: n.RcvBytes, Emulated: n.Emulated, Err: n.Err,
		})
	}
	for _, g := range gpus {
		out.Gpus = append(out.Gpus, &falconv1.Gpu{
			Device: string(g.Device), AtUnixNs: g.AtNs, SmClockMhz: g.SMClockMHz, MaxSmClockMhz: g.MaxSMClockMHz,
			TemperatureC: g.TemperatureC, PowerMw: g.PowerMw, PowerLimitMw: g.PowerLimitMw, Reasons: g.Reasons,
			ThermalNs: g.ThermalNs, PowerBrakeNs: g.PowerBrakeNs, PowerCapNs: g.PowerCapNs,
			EccCorrected: g.EccCorrected, EccFatal: g.EccFatal, XidCount: g.XidCount, LastXid: g.LastXid,
			ProbeUs: g.ProbeUs, Err: g.Err,
		})
	}
	return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Telemetry{Telemetry: out}}
}

// DeviceFrame makes the frame of a device's own report of a fault; device is a GPU
// or a port ("n1.g0", "n1.nic0"), code an XID or 0. It is numbered, and so told
// until the engine has acknowledged it.
func DeviceFrame(device string, atUnixNs int64, fatal bool, code int, text string) *falconv1.AgentFrame {
	return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Device{Device: &falconv1.DeviceEvent{
		Device: device, AtUnixNs: atUnixNs, Fatal: fatal, Code: int32(code), Text: text,
	}}}
}

func hostReading(h falcon.HostReading) *falconv1.Host {
	out := &falconv1.Host{
		AtUnixNs: h.AtNs, PressureUs: h.PressureUs, ThrottledUs: h.ThrottledUs, LoadPerCpu: h.LoadPerCPU,
		StealShare: h.StealShare, Emulated: h.Emulated, Err: h.Err, RunDelayNs: map[int32]uint64{},
	}
	for r, ns := range h.RunDelayNs {
		out.RunDelayNs[int32(r)] = ns
	}
	return out
}
