package ring

import (
	"fmt"
	"time"
)

// The sizes, offsets and codes of native/include/falcon_shm.h are in abi_gen.go.

const uniqueBytes = 128 // of an ncclUniqueId

// CommNone is the communicator slot of records that have none (group marks).
const CommNone = commNone

// DrainMax is how long after the end of a profile window its timings may come:
// so long the hook waits for calls that are still on the device.
const DrainMax = drainMs * time.Millisecond

// Flags of a Record or a Timing.
const (
	FlagGrouped   = recGrouped   // inside ncclGroupStart/End
	FlagCapturing = recCapturing // the stream was capturing a graph (known only while profiling)
	FlagFailed    = recFailed    // the real call returned an error
	FlagTimed     = recTimed     // events were recorded around it
)

// Coverage bits: what the hook saw of NCCL.
const (
	CoverInit     = covInit
	CoverColl     = covColl
	CoverP2P      = covP2p
	CoverGroup    = covGroup
	CoverAdapter  = covAdapter
	CoverStays    = covStays    // the adapter takes no part in recoveries, as far as is known
	CoverUnhooked = covUnhooked // NCCL is loaded and at least part of it passes by the hook
	CoverUnknown  = covUnknown  // this NCCL has entry points that the hook does not know
	CoverWaiting  = covWaiting  // the hook measures whether the process waits
	CoverProfiler = covProfiler // calls come from NCCL's profiler interface, which shows fewer of them
)

// Binding is the NCCL of a process, and how its calls reach the hook.
type Binding struct {
	How  Bound
	NCCL int // as ncclGetVersion gives it (22809), 0 = not known
}

func (b Binding) String() string {
	if b.NCCL <= 0 {
		return b.How.String()
	}
	return fmt.Sprintf("%s, version %d.%d.%d", b.How, b.NCCL/10000, b.NCCL/100%100, b.NCCL%100)
}

// Bound is how the calls that the hook sees reach it.
type Bound uint32

// Values of Bound.
const (
	BoundNone     Bound = boundNone // no call so far, or an older hook
	BoundNeeded   Bound = boundNeeded
	BoundStatic   Bound = boundStatic
	BoundDlsym    Bound = boundDlsym
	BoundBypassed Bound = boundBypassed // NCCL is in the process, and what calls it passes by the hook
	// NCCL has loaded the profiler plug-in: calls are seen, none can be held
	BoundProfiler Bound = boundProfiler
)

func (b Bound) String() string {
	switch b {
	case BoundNone:
		return "no NCCL call so far"
	case BoundNeeded:
		return "linked to NCCL"
	case BoundStatic:
		return "NCCL within its framework"
	case BoundDlsym:
		return "NCCL by dlsym"
	case BoundBypassed:
		return "NCCL passes by the hook"
	case BoundProfiler:
		return "NCCL's profiler plug-in, without the hook"
	}
	return "unknown"
}

// Traffic is what of a communicator its records do not show, or not whole.
type Traffic uint32

// Bits of Traffic.
const (
	TrafficDevice   Traffic = trafficDevice   // kernels of the program communicate by themselves
	TrafficWindows  Traffic = trafficWindows  // memory is registered that peers reach directly
	TrafficOneSided Traffic = trafficOnesided // puts and signals: the peer makes no call for them
)

// Unseen reports whether there is traffic without a call of every rank that takes part.
func (t Traffic) Unseen() bool {
	return t&(TrafficDevice|TrafficOneSided) != 0
}
