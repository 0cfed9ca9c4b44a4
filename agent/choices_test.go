package agent

import (
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
	"github.com/failslow/falcon/detect/nccl"
)

// What NCCL's profiler interface says of a communicator counts before what the environment leaves.
func TestChoicesOnACommunicator(t *testing.T) {
	p := &process{}
	if got := p.choicesOn(ring.Comm{}); got != (falcon.Choices{}) {
		t.Errorf("nothing shows %+v", got)
	}
	p.status.NCCL = nccl.Environment{Algo: "tree", Channels: 4}
	var c ring.Comm
	c.Choices[falcon.OpAllGather] = 7 | 3<<8 | 16<<16
	got := p.choicesOn(c)
	for op, want := range map[falcon.Op]falcon.Choice{
		falcon.OpAllReduce: {Algorithm: falcon.AlgorithmTree, Channels: 4, Source: falcon.ChoiceEnvironment},
		falcon.OpAllGather: {
			Algorithm: falcon.AlgorithmPAT,
			Protocol:  falcon.ProtocolSimple,
			Channels:  16,
			Source:    falcon.ChoiceProfiler,
		},
	} {
		if got.Of(op) != want {
			t.Errorf("%s: %+v, want %+v", op, got.Of(op), want)
		}
	}
}
