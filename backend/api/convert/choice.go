package convert

import (
	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// choicesToProto are the choices of one communicator, up to the last operation that has one.
func choicesToProto(c falcon.Choices) []uint32 {
	var out []uint32
	for op, x := range c {
		if x != (falcon.Choice{}) {
			out = append(out, make([]uint32, op-len(out))...)
			out = append(out,
				uint32(x.Algorithm)|uint32(x.Protocol)<<8|uint32(x.Channels)<<16|uint32(x.Source)<<24,
			)
		}
	}
	return out
}

// choicesFromProto leaves out operations that have no choice here.
func choicesFromProto(p []uint32) (out falcon.Choices) {
	for op, x := range p[:min(len(p), len(out))] {
		out[op] = falcon.Choice{
			Algorithm: falcon.Algorithm(x),
			Protocol:  falcon.Protocol(x >> 8),
			Channels:  uint8(x >> 16),
			Source:    falcon.ChoiceSource(x >> 24),
		}
	}
	return out
}

func pathToProto(c falcon.PathChoice) *falconv1.PathChoice {
	return &falconv1.PathChoice{
		Op:        uint32(c.Op),
		Algorithm: uint32(c.Algorithm),
		Protocol:  uint32(c.Protocol),
		Channels:  uint32(c.Channels),
		Source:    uint32(c.Source),
	}
}

func pathFromProto(p *falconv1.PathChoice) falcon.PathChoice {
	return falcon.PathChoice{
		Op: falcon.Op(p.GetOp()),
		Choice: falcon.Choice{
			Algorithm: falcon.Algorithm(p.GetAlgorithm()),
			Protocol:  falcon.Protocol(p.GetProtocol()),
			Channels:  uint8(p.GetChannels()),
			Source:    falcon.ChoiceSource(p.GetSource()),
		},
	}
}
