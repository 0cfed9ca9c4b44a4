package falcon

import "math"

// Op is the kind of a communication call. The values are those of the
// shared-memory ABI (native/include/falcon_shm.h, enum falcon_op).
type Op uint8

// Communication calls that the hook records.
const (
	OpNone          Op = 0
	OpAllReduce     Op = 1
	OpReduce        Op = 2
	OpReduceScatter Op = 3
	OpAllGather     Op = 4
	OpBroadcast     Op = 5
	OpAlltoAll      Op = 6
	OpGather        Op = 7
	OpScatter       Op = 8
	OpSend          Op = 9
	OpRecv          Op = 10
	OpGroupStart    Op = 11
	OpGroupEnd      Op = 12
	OpPutSignal     Op = 13
	OpSignal        Op = 14
	OpWaitSignal    Op = 15
)

var opNames = [...]string{
	"none", "allreduce", "reduce", "reducescatter", "allgather", "broadcast",
	"alltoall", "gather", "scatter", "send", "recv", "groupstart", "groupend",
	"putsignal", "signal", "waitsignal",
}

func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return "unknown"
}

// Sample is one iteration of one rank.
type Sample struct {
	Rank      Rank
	Iteration int64   // counted from 0 over the job epoch
	EndNs     int64   // the node's clock at the iteration's end, Unix ns; display only
	Ms        float64 // wall time of the iteration, paused time included
	PausedMs  float64 // of which the job was held by Falcon
	Exact     bool    // from the framework's step marks, not inferred from calls
	Work      *Work   // how it differs from the rank's usual iterations; nil = not at all, or not known
}

// RunMs is the iteration's time without the pauses that Falcon caused.
func (s Sample) RunMs() float64 { return s.Ms - s.PausedMs }

// CallTiming is one communication call timed on the device in a profile
// window. Calls are joined across ranks by (Comm, Ordinal), never by clock.
type CallTiming struct {
	Comm       uint64  // communicator id (hash of the unique id, or of the split's inputs)
	Ordinal    uint64  // the call's number on its communicator, counted from 0
	Op         Op      // a group is reported as its members
	Peer       int     // rank in the communicator for send/recv and rooted calls, else -1
	Bytes      int64   // payload of this rank
	StartMs    float64 // device start since the window's first event of this rank
	DurationMs float64 // device end − device start
	QueueMs    float64 // device start − the host's enter: how far the host runs ahead
}

// RankProfile is what one rank measured in one profile window.
type RankProfile struct {
	Rank         Rank
	Window       uint64 // id of the request
	Iterations   int    // whole iterations covered
	MicroBatches int    // per iteration on this rank; 0 when the job does not say
	// device time outside communication, per micro-batch (per iteration when MicroBatches is 0)
	SelfMs  float64
	QueueMs float64 // median host lead over the device
	Calls   []CallTiming
	Dropped uint64 // timings lost to a full buffer; lowers confidence
}

// Comm is one communicator as one rank sees it.
type Comm struct {
	ID         uint64
	Name       string // config.commName where the framework gives one
	Dimension  Dimension
	Size       int
	RankInComm int
	Generation uint32
	Choices    Choices // NCCL's, as far as this rank shows them
}

// Traffic is the calls of one operation on one communicator in a steady iteration of
// one rank.
type Traffic struct {
	Comm  uint64
	Op    Op
	Calls int
	Bytes int64 // of all calls
	// Alike is the calls of the most frequent size, 0 where sizes change from iteration
	// to iteration.
	Alike  int
	Single int   // sizes that one call alone has
	Peers  []int // of sends and receives: ranks in the communicator, ascending
}

// GPUReading is one look at a GPU. Counters only grow; readers take deltas.
type GPUReading struct {
	Device        Device
	AtNs          int64 // Unix ns
	SMClockMHz    uint32
	MaxSMClockMHz uint32
	TemperatureC  uint32
	PowerMw       uint32
	PowerLimitMw  uint32
	Reasons       uint64 // NVML clocks-event reasons, as a bit mask
	ThermalNs     uint64 // time slowed for heat, software and hardware
	PowerBrakeNs  uint64 // time slowed by the hardware power brake
	PowerCapNs    uint64 // time at the software power cap: normal under load, never a cause alone
	EccCorrected  uint64
	EccFatal      uint64
	XidCount      uint64
	LastXid       uint32
	ProbeUs       uint64 // how long the probe took; a stalled probe is evidence
	Err           string // why fields are missing, empty when none are
	Model         string // the driver's name of it, empty = not known
	// of the time, something was on the GPU: a collective that waits for its peers counts
	Busy   Percent
	SMBusy Percent // of the multiprocessors at work between two looks, by GPM (Hopper and newer)
	Gauges Gauges
}

// Percent is a share in whole per cent plus 1, so that 0 is "not known".
type Percent uint32

// PercentOf is a share in per cent; what is no share from 0 to 100 is not known.
func PercentOf(x float64) Percent {
	if !(x >= 0 && x <= 100) {
		return 0
	}
	return Percent(math.Round(x)) + 1
}

// Value is the share in per cent; ok is false where it is not known.
func (p Percent) Value() (percent int, ok bool) {
	return int(p) - 1, p > 0 && p <= 101
}

// NVML clocks-event reasons used in verdicts (nvml.h, nvmlClocksEventReason*).
const (
	ReasonSwPowerCap     uint64 = 0x4
	ReasonHwSlowdown     uint64 = 0x8
	ReasonSwThermal      uint64 = 0x20
	ReasonHwThermal      uint64 = 0x40
	ReasonHwPowerBrake   uint64 = 0x80
	ReasonThermalOrBrake        = ReasonHwSlowdown | ReasonSwThermal | ReasonHwThermal | ReasonHwPowerBrake
)

// HostReading is one look at a node's CPU side.
type HostReading struct {
	Node        Node
	AtNs        int64   // Unix ns
	PressureUs  uint64  // PSI cpu "some" total of the ranks' cgroup
	ThrottledUs uint64  // cgroup cpu.stat throttled_usec
	LoadPerCPU  float64 // run-queue length per CPU
	RunDelayNs  map[Rank]uint64
	Emulated    bool    // the lab's own knob answered, not the kernel
	StealShare  float64 // share of CPU time that the ranks wanted and did not get, 0..1
	Err         string
}

// NICReading is one look at one network port. Counters only grow and are the
// sum over the driver's counters of that meaning; readers take deltas.
type NICReading struct {
	NIC           NIC
	AtNs          int64  // Unix ns
	RateMbps      uint64 // link rate now, 0 = down or unknown
	Active        bool
	XmitWait      uint64 // port_xmit_wait: ticks with data to send and no credit
	CNPSent       uint64 // np_cnp_sent: it saw marked packets and notified the sender
	CNPHandled    uint64 // rp_cnp_handled: it was asked to slow down
	ECNMarked     uint64 // np_ecn_marked_roce_packets
	Retransmits   uint64 // timeouts and NAKs that made it send again
	OutOfSequence uint64
	LinkDowned    uint64
	SymbolErrors  uint64
	XmitBytes     uint64
	RcvBytes      uint64
	Emulated      bool
	Err           string // why fields are missing, empty when none are
}
