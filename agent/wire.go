package agent

import (
	"encoding/binary"
	"hash/fnv"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/period"
)

// dtypeBytes is the size of one element by ncclDataType_t.
var dtypeBytes = [...]int64{1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}

// payloadBytes is the bytes that a call moves for this rank, 0 when unknown.
func payloadBytes(count uint64, dtype uint8) int64 {
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

func samplesFrame(in []falcon.Sample, age time.Duration) *falconv1.AgentFrame {
	return &falconv1.AgentFrame{
		Body:   &falconv1.AgentFrame_Samples{Samples: convert.SamplesToProto(in)},
		KeptMs: uint64(age.Milliseconds()),
	}
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

// TelemetryFrame is one reading of the node's hardware as it goes to the engine.
func TelemetryFrame(
	gpus []falcon.GPUReading,
	nics []falcon.NICReading,
	host falcon.HostReading,
) *falconv1.AgentFrame {
	return &falconv1.AgentFrame{
		Body: &falconv1.AgentFrame_Telemetry{Telemetry: convert.TelemetryToProto(gpus, nics, host)},
	}
}

// DeviceFrame makes the frame of a device's own report of a fault; device is a GPU
// or a port ("n1.g0", "n1.nic0"), code an XID or 0. It is numbered, and so sent
// until the engine has acknowledged it.
func DeviceFrame(device string, atUnixNs int64, fatal bool, code int, text string) *falconv1.AgentFrame {
	return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Device{Device: &falconv1.DeviceEvent{
		Device:   device,
		AtUnixNs: atUnixNs,
		Fatal:    fatal,
		Code:     int32(code),
		Text:     text,
	}}}
}
