package trace

import (
	"bytes"
	"strings"

	"github.com/failslow/falcon"
)

// ops maps the names that frameworks give to calls, lower case and letters
// only, to calls. "Base" and "tensor" variants move the same data.
var ops = map[string]falcon.Op{
	"allreduce":                    falcon.OpAllReduce,
	"allreducecoalesced":           falcon.OpAllReduce,
	"allreducebarrier":             falcon.OpAllReduce,
	"barrier":                      falcon.OpAllReduce,
	"reduce":                       falcon.OpReduce,
	"reduceoop":                    falcon.OpReduce,
	"reducescatter":                falcon.OpReduceScatter,
	"reducescatterbase":            falcon.OpReduceScatter,
	"reducescattertensor":          falcon.OpReduceScatter,
	"reducescattertensorcoalesced": falcon.OpReduceScatter,
	"reducescattercoalesced":       falcon.OpReduceScatter,
	"reducescattersingle":          falcon.OpReduceScatter,
	"reducescatterv":               falcon.OpReduceScatter,
	"allgather":                    falcon.OpAllGather,
	"allgatherbase":                falcon.OpAllGather,
	"allgatherintotensor":          falcon.OpAllGather,
	"allgatherintotensorcoalesced": falcon.OpAllGather,
	"allgathercoalesced":           falcon.OpAllGather,
	"allgathersingle":              falcon.OpAllGather,
	"allgatherv":                   falcon.OpAllGather,
	"broadcast":                    falcon.OpBroadcast,
	"broadcastoop":                 falcon.OpBroadcast,
	"bcast":                        falcon.OpBroadcast,
	"alltoall":                     falcon.OpAlltoAll,
	"alltoallbase":                 falcon.OpAlltoAll,
	"alltoallsingle":               falcon.OpAlltoAll,
	"alltoallv":                    falcon.OpAlltoAll,
	"alltoallvsingle":              falcon.OpAlltoAll,
	"gather":                       falcon.OpGather,
	"scatter":                      falcon.OpScatter,
	"send":                         falcon.OpSend,
	"recv":                         falcon.OpRecv,
	"receive":                      falcon.OpRecv,
	"sendrecv":                     falcon.OpRecv,
}

// OpOf reads the name of a communication call as frameworks write it:
// "all_reduce", "nccl:_all_gather_base", "AllReduce", "nccl:send 1->2".
func OpOf(name string) (falcon.Op, bool) {
	name = strings.ToLower(name)
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		name = name[i+1:]
	}
	name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
	name = strings.Map(func(r rune) rune {
		if r < 'a' || r > 'z' {
			return -1
		}
		return r
	}, name)
	op, known := ops[strings.TrimPrefix(name, "nccl")]
	return op, known
}

// refusePickle recognises a pickle by its first bytes: reading one can run code.
func refusePickle(head []byte) error {
	if len(head) >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5 {
		return malformed(
			0,
			"this is a Python pickle, which can run code when it is read; where you trust it, write it as JSON: "+
				`python3 -c "import pickle,json,sys; json.dump(pickle.load(open(sys.argv[1],'rb')),open(sys.argv[1]+'.json','w'))" FILE`,
		)
	}
	if bytes.HasPrefix(head, []byte("PAR1")) {
		return malformed(0, "this is a Parquet table; give its timeline as Chrome JSON")
	}
	return nil
}
