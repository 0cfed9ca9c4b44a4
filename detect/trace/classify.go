package trace

import (
	"strings"

	"github.com/failslow/falcon"
)

// kindOf an event.
type eventKind uint8

const (
	isOther      eventKind = iota
	isKernel               // a computing kernel on a device
	isCompute              // a forward or backward span
	isComm                 // a communication kernel or span
	isAnnotation           // a span around a communication kernel
)

// hostCats are Kineto's categories of what the host does: the device's own
// events have the same work's real time.
var hostCats = map[string]bool{
	"cpu_op":              true,
	"cuda_runtime":        true,
	"cuda_driver":         true,
	"python_function":     true,
	"user_annotation":     true,
	"ac2g":                true,
	"fwdbwd":              true,
	"overhead":            true,
	"trace":               true,
	"cpu_instant_event":   true,
	"gpu_memcpy":          true,
	"gpu_memset":          true,
	"hip_runtime":         true,
	"privateuse1_runtime": true,
	"operator":            true,
}

// replicaCalls are calls among the replicas of a stage, by Megatron's names.
var replicaCalls = []string{
	"grads-reduce-scatter",
	"separate-grads-all-reduce",
	"params-all-gather",
	"grads-all-reduce",
}

// notReplicas are calls of other groups whose names hold one of replicaCalls.
var notReplicas = []string{"embedding", "layernorm"}

// classify says what an event is by its name and category, both lower case.
func classify(name, cat string) (eventKind, direction) {
	switch {
	case cat == "kernel":
		if strings.HasPrefix(name, "nccl") ||
			strings.HasPrefix(name, "rccl") ||
			strings.Contains(name, "nccldevkernel") {
			return isComm, dirNone
		}
		return isKernel, dirNone
	case cat == "gpu_user_annotation":
		if strings.HasPrefix(name, "nccl:") {
			return isAnnotation, dirNone
		}
		return isOther, dirNone
	case hostCats[cat]:
		return isOther, dirNone
	}
	return classifySpan(name)
}

// classifySpan is for traces of spans, one lane a worker.
func classifySpan(name string) (eventKind, direction) {
	switch {
	case strings.Contains(name, "optimizer"):
		return isOther, dirNone // waits for others in it
	case strings.Contains(name, "send") && strings.Contains(name, "recv"):
		return isComm, dirNone
	case strings.Contains(name, "forward-recv") ||
		strings.Contains(name, "forward_recv") ||
		strings.Contains(name, "recv_forward"):
		return isComm, dirFromPrev
	case strings.Contains(name, "backward-recv") ||
		strings.Contains(name, "backward_recv") ||
		strings.Contains(name, "recv_backward"):
		return isComm, dirFromNext
	case findOperation(name) != falcon.OpNone:
		return isComm, replicas(name)
	case strings.HasPrefix(name, "nccl"):
		return isComm, dirNone
	}
	for _, mark := range []string{"compute", "forward", "backward", "fwd", "bwd", "wgrad", "dgrad"} {
		if strings.Contains(name, mark) {
			return isCompute, dirNone
		}
	}
	return isOther, dirNone
}

func replicas(name string) direction {
	for _, n := range notReplicas {
		if strings.Contains(name, n) {
			return dirNone
		}
	}
	for _, n := range replicaCalls {
		if strings.Contains(name, n) {
			return dirReplicas
		}
	}
	return dirNone
}

// marksOfOps are parts of names, the longer ones first where one holds another.
var marksOfOps = []struct {
	mark string
	op   falcon.Op
}{
	{"sendrecv", falcon.OpRecv},
	{"reducescatter", falcon.OpReduceScatter},
	{"allreduce", falcon.OpAllReduce},
	{"allgather", falcon.OpAllGather},
	{"alltoall", falcon.OpAlltoAll},
	{"broadcast", falcon.OpBroadcast},
	{"recv", falcon.OpRecv},
	{"send", falcon.OpSend},
	{"scatter", falcon.OpScatter},
	{"gather", falcon.OpGather},
	{"reduce", falcon.OpReduce},
}

// findOperation finds the call in a name such as ncclDevKernel_AllReduce_Sum_f32_RING_LL
// or grads-reduce-scatter; lower case.
func findOperation(name string) falcon.Op {
	flat := strings.NewReplacer("-", "", "_", "", " ", "").Replace(name)
	for _, m := range marksOfOps {
		if strings.Contains(flat, m.mark) {
			return m.op
		}
	}
	return falcon.OpNone
}
