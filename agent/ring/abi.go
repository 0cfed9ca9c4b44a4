package ring

import "time"

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
	CoverUnhooked = covUnhooked // NCCL is loaded and at least part of it passes by the hook
	CoverUnknown  = covUnknown  // this NCCL has entry points that the hook does not know
	CoverWaiting  = covWaiting  // the hook measures whether the process waits
)
