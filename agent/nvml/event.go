package nvml

import (
	"fmt"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/failslow/falcon"
)

// Bounds of events.
const (
	sameXidRest = 10 * time.Second // the same code of one GPU is reported again after this long, however often it comes
	codesMax    = 64               // codes of one GPU that are remembered for it
)

// Event is a GPU's own report of a fault. Fatal is set where it does not go on by
// itself: it needs a reset, a reboot or a replacement.
type Event struct {
	Device falcon.Device
	AtNs   int64 // Unix ns
	Fatal  bool
	Code   int // XID, 0 = another report
	Text   string
}

// xidMeaning is the meaning of a driver's code.
type xidMeaning struct {
	fatal bool
	text  string
}

// xidMeanings are the codes that say something of a fail-stop fault, by NVIDIA's
// "XID Errors" (GPU Deployment and Management documentation). Fatal are those
// whose advice is a reset, a reboot or a replacement before the GPU is used again.
// 94 is not: the error was contained, the process that it hit ends, and a new one
// may use the GPU at once.
var xidMeanings = map[uint32]xidMeaning{
	13:  {false, "graphics engine exception: most often the program's own fault"},
	31:  {false, "memory access outside of what was mapped: most often the program's own fault"},
	43:  {false, "the GPU stopped processing for one program"},
	45:  {false, "channels were torn down: follows another error, or an end by force"},
	46:  {true, "the GPU stopped processing"},
	48:  {true, "uncorrectable ECC error"},
	62:  {true, "internal micro-controller halt"},
	63:  {false, "a memory row was remapped: reset the GPU when it is convenient"},
	64:  {true, "a memory row could not be remapped"},
	74:  {true, "NVLink error"},
	79:  {true, "the GPU has fallen off the bus"},
	92:  {false, "high rate of corrected ECC errors"},
	94:  {false, "contained memory error: the process that it hit must start anew"},
	95:  {true, "uncontained memory error"},
	109: {false, "context switch timeout"},
	110: {true, "security fault"},
	119: {true, "the GPU's system processor does not answer"},
	120: {true, "the GPU's system processor failed"},
	140: {true, "unrecovered ECC error"},
	143: {true, "the GPU could not be initialised"},
}

func describeXid(code uint32) xidMeaning {
	if m, known := xidMeanings[code]; known {
		return m
	}
	return xidMeaning{text: "not known to Falcon: see NVIDIA's list of XID errors"}
}

// actions are what the driver itself asks for (field 230, recent drivers).
var actions = map[uint64]xidMeaning{
	uint64(gonvml.GPU_RECOVERY_ACTION_GPU_RESET):           {true, "the driver asks for a reset of the GPU"},
	uint64(gonvml.GPU_RECOVERY_ACTION_NODE_REBOOT):         {true, "the driver asks for a reboot of the node"},
	uint64(gonvml.GPU_RECOVERY_ACTION_DRAIN_P2P):           {false, "the driver asks to end peer-to-peer traffic of the GPU"},
	uint64(gonvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET):     {true, "the driver asks to drain and reset the GPU"},
	uint64(gonvml.GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN): {true, "the driver asks to recover the IMEX domain"},
}

// watched is what was seen of one GPU, so that each event is reported once.
type watched struct {
	looked bool
	fatal  uint64               // uncorrectable ECC errors
	action uint64               // that the driver asked for
	told   map[uint32]time.Time // by XID
}

// reportXid reports one XID, unless it was reported a moment ago.
func (p *Prober) reportXid(i int, code uint32, now time.Time) {
	p.mu.Lock()
	w := &p.watch[i]
	if w.told == nil || len(w.told) >= codesMax {
		w.told = map[uint32]time.Time{}
	}
	last, before := w.told[code]
	again := before && now.Sub(last) < sameXidRest
	if !again {
		w.told[code] = now
	}
	p.mu.Unlock()
	if m := describeXid(code); !again {
		p.reportFault(Event{Device: p.gpus[i].name, AtNs: now.UnixNano(), Fatal: m.fatal, Code: int(code), Text: m.text})
	}
}

// reportChanges reports what a reading shows that the one before did not: more uncorrectable
// errors, or an action that the driver asks for. The first reading of an agent reports
// the action alone, as the errors may be years old.
func (p *Prober) reportChanges(i int, r *reading) {
	w := &p.watch[i]
	if w.looked && r.EccFatal > w.fatal {
		p.reportFault(Event{Device: r.Device, AtNs: r.AtNs, Fatal: true, Text: fmt.Sprintf("%d more uncorrectable ECC errors", r.EccFatal-w.fatal)})
	}
	if m, asked := actions[r.action]; asked && r.action != w.action {
		p.reportFault(Event{Device: r.Device, AtNs: r.AtNs, Fatal: m.fatal, Text: m.text})
	}
	w.looked, w.fatal, w.action = true, max(w.fatal, r.EccFatal), r.action
}

func (p *Prober) reportFault(e Event) {
	if p.event != nil {
		p.event(e)
	}
}
