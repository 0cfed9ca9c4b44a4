package nvml

import (
	"fmt"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/xidcode"
)

// Bounds of events.
const (
	// the same code of one GPU is reported again after this long, however often it comes
	sameXidRest = 10 * time.Second
	codesMax    = 64 // codes of one GPU that are remembered for it
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

func describeXid(code uint32) xidMeaning {
	m := xidcode.Of(int(code))
	return xidMeaning{fatal: m.Fatal, text: m.Text}
}

// actions are what the driver itself asks for (field 230, recent drivers).
var actions = map[uint64]xidMeaning{
	uint64(gonvml.GPU_RECOVERY_ACTION_GPU_RESET): {true, "the driver asks for a reset of the GPU"},
	uint64(gonvml.GPU_RECOVERY_ACTION_NODE_REBOOT): {
		true,
		"the driver asks for a reboot of the node",
	},
	uint64(gonvml.GPU_RECOVERY_ACTION_DRAIN_P2P): {
		false,
		"the driver asks to end peer-to-peer traffic of the GPU",
	},
	uint64(gonvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET): {
		true,
		"the driver asks to drain and reset the GPU",
	},
	uint64(gonvml.GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN): {
		true,
		"the driver asks to recover the IMEX domain",
	},
}

// watched is what was seen of one GPU, so that each event is reported once.
type watched struct {
	looked    bool
	fatal     uint64               // uncorrectable ECC errors
	action    uint64               // that the driver asked for
	announced map[uint32]time.Time // by XID
}

// reportXid reports one XID, unless it was reported a moment ago.
func (p *Prober) reportXid(i int, code uint32, now time.Time) {
	p.mu.Lock()
	w := &p.watch[i]
	if w.announced == nil || len(w.announced) >= codesMax {
		w.announced = map[uint32]time.Time{}
	}
	last, before := w.announced[code]
	again := before && now.Sub(last) < sameXidRest
	if !again {
		w.announced[code] = now
	}
	p.mu.Unlock()
	if m := describeXid(code); !again {
		p.reportFault(Event{
			Device: p.gpus[i].name,
			AtNs:   now.UnixNano(),
			Fatal:  m.fatal,
			Code:   int(code),
			Text:   m.text,
		})
	}
}

// reportChanges reports what a reading shows that the one before did not: more uncorrectable
// errors, or an action that the driver asks for. The first reading of an agent reports
// the action alone, as the errors may be years old.
func (p *Prober) reportChanges(i int, r *reading) {
	w := &p.watch[i]
	if w.looked && r.EccFatal > w.fatal {
		p.reportFault(Event{
			Device: r.Device,
			AtNs:   r.AtNs,
			Fatal:  true,
			Text:   fmt.Sprintf("%d more uncorrectable ECC errors", r.EccFatal-w.fatal),
		})
	}
	if m, asked := actions[r.action]; asked && r.action != w.action {
		p.reportFault(Event{
			Device: r.Device,
			AtNs:   r.AtNs,
			Fatal:  m.fatal,
			Text:   m.text,
		})
	}
	w.looked, w.fatal, w.action = true, max(w.fatal, r.EccFatal), r.action
}

func (p *Prober) reportFault(e Event) {
	if p.event != nil {
		p.event(e)
	}
}
