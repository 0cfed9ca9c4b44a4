package nccl

import (
	"slices"
	"strings"

	"github.com/failslow/falcon"
)

// Environment is what bounds NCCL's choice: the texts of NCCL_ALGO and NCCL_PROTO, and the number of
// channels where NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS say the same, else 0.
type Environment struct {
	Algo, Proto string
	Channels    uint8
}

// envMost bounds the texts that are read.
const envMost = 256

var algorithmNames = map[string]falcon.Algorithm{
	"tree":          falcon.AlgorithmTree,
	"ring":          falcon.AlgorithmRing,
	"collnetdirect": falcon.AlgorithmCollnetDirect,
	"collnetchain":  falcon.AlgorithmCollnetChain,
	"nvls":          falcon.AlgorithmNVLS,
	"nvlstree":      falcon.AlgorithmNVLSTree,
	"pat":           falcon.AlgorithmPAT,
}

var protocolNames = map[string]falcon.Protocol{
	"ll":     falcon.ProtocolLL,
	"ll128":  falcon.ProtocolLL128,
	"simple": falcon.ProtocolSimple,
}

var opNames = map[string]falcon.Op{
	"allreduce":     falcon.OpAllReduce,
	"reduce":        falcon.OpReduce,
	"reducescatter": falcon.OpReduceScatter,
	"allgather":     falcon.OpAllGather,
	"broadcast":     falcon.OpBroadcast,
}

// served are the algorithms that an operation can have.
var served = map[falcon.Op][]falcon.Algorithm{
	falcon.OpAllReduce: {
		falcon.AlgorithmTree, falcon.AlgorithmRing, falcon.AlgorithmCollnetDirect,
		falcon.AlgorithmCollnetChain, falcon.AlgorithmNVLS, falcon.AlgorithmNVLSTree,
	},
	falcon.OpAllGather: {
		falcon.AlgorithmRing,
		falcon.AlgorithmCollnetDirect,
		falcon.AlgorithmNVLS,
		falcon.AlgorithmPAT,
	},
	falcon.OpReduceScatter: {
		falcon.AlgorithmRing,
		falcon.AlgorithmCollnetDirect,
		falcon.AlgorithmNVLS,
		falcon.AlgorithmPAT,
	},
	falcon.OpReduce:    {falcon.AlgorithmRing},
	falcon.OpBroadcast: {falcon.AlgorithmRing},
}

// Choices are those that an environment leaves no other for. NCCL never takes rings from
// operations other than all-reduce, so that jobs run whatever NCCL_ALGO says.
func (e Environment) Choices() (out falcon.Choices) {
	if e.Algo == "" || len(e.Algo) > envMost || len(e.Proto) > envMost {
		return out
	}
	for op, all := range served {
		left, ok := allowedBy(e.Algo, op, algorithmNames)
		if !ok {
			continue
		}
		can := slices.DeleteFunc(slices.Clone(all), func(a falcon.Algorithm) bool {
			return !left[a] && (op == falcon.OpAllReduce || a != falcon.AlgorithmRing)
		})
		if len(can) != 1 {
			continue
		}
		c := falcon.Choice{
			Algorithm: can[0],
			Channels:  e.Channels,
			Source:    falcon.ChoiceEnvironment,
		}
		if protocols, ok := allowedBy(e.Proto, op, protocolNames); ok && len(protocols) == 1 {
			for p := range protocols {
				c.Protocol = p
			}
		}
		out[op] = c
	}
	return out
}

// allowedBy are the values that a list allows an operation: "ring,tree", "^tree", and by operation
// "allreduce:tree;broadcast:ring", where the last that concerns it counts. Not ok where none does, or a
// name is not known.
func allowedBy[V comparable](text string, op falcon.Op, known map[string]V) (map[V]bool, bool) {
	out := map[V]bool{}
	some := false
	for part := range strings.SplitSeq(strings.ToLower(text), ";") {
		list := part
		if name, rest, of := strings.Cut(part, ":"); of {
			if o, is := opNames[strings.TrimSpace(name)]; !is || o != op {
				continue
			}
			list = rest
		}
		list, without := strings.CutPrefix(strings.TrimSpace(list), "^")
		if list == "" {
			continue
		}
		clear(out)
		some = true
		for _, v := range known {
			if without {
				out[v] = true
			}
		}
		for name := range strings.SplitSeq(list, ",") {
			v, is := known[strings.TrimSpace(name)]
			if !is {
				return nil, false
			}
			if without {
				delete(out, v)
			} else {
				out[v] = true
			}
		}
	}
	return out, some
}
