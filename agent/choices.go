package agent

import (
	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
)

// choicesOn is what the process shows of NCCL's choices on a communicator: what NCCL's profiler
// interface has said, else what its environment leaves.
func (p *process) choicesOn(c ring.Comm) falcon.Choices {
	out := p.status.NCCL.Choices()
	for op := range out {
		x := falcon.Choice{
			Algorithm: falcon.Algorithm(c.Choices[op]),
			Protocol:  falcon.Protocol(c.Choices[op] >> 8),
			Channels:  uint8(c.Choices[op] >> 16),
			Source:    falcon.ChoiceProfiler,
		}
		if x.Known() {
			out[op] = x
		}
	}
	return out
}
