package ring

import (
	"testing"

	falcon "github.com/failslow/falcon"
)

// The vocabulary numbers operations as the hook does.
func TestOpCodes(t *testing.T) {
	codes := [...]falcon.Op{
		opNone:          falcon.OpNone,
		opAllreduce:     falcon.OpAllReduce,
		opReduce:        falcon.OpReduce,
		opReducescatter: falcon.OpReduceScatter,
		opAllgather:     falcon.OpAllGather,
		opBroadcast:     falcon.OpBroadcast,
		opAlltoall:      falcon.OpAlltoAll,
		opGather:        falcon.OpGather,
		opScatter:       falcon.OpScatter,
		opSend:          falcon.OpSend,
		opRecv:          falcon.OpRecv,
		opGroupstart:    falcon.OpGroupStart,
		opGroupend:      falcon.OpGroupEnd,
		opPutsignal:     falcon.OpPutSignal,
		opSignal:        falcon.OpSignal,
		opWaitsignal:    falcon.OpWaitSignal,
	}
	for code, op := range codes {
		if int(op) != code {
			t.Errorf("%v is %d here, %d in the hook", op, op, code)
		}
	}
}
