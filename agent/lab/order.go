package lab

import (
	"slices"

	"github.com/failslow/falcon"
)

// ordersMost bounds what is kept of the orders of one run.
const ordersMost = 1024

// orderLine is what a rank logs of an order that the ranks agreed on.
type orderLine struct {
	Order  uint64           `json:"order"`
	Kind   falcon.OrderKind `json:"kind"`
	From   int64            `json:"from_iteration"`
	Status int32            `json:"status"` // 0 = applied
}

// swapLine is what a rank logs of a placement: the beginning and the end of
// each step, and how it was over.
type swapLine struct {
	Swap       uint64             `json:"swap"` // order
	Step       string             `json:"step"` // falcon.SwapSteps
	State      string             `json:"state"`
	Committed  bool               `json:"committed"`
	StepMs     map[string]float64 `json:"step_ms"`
	EmulatedMs float64            `json:"emulated_ms"` // of all steps, copying and sending state
	Reason     string             `json:"reason"`      // why it was undone
}

// States of a placement's lines.
const (
	stepBegins = "begin"
	swapOver   = "over"
)

// beginsStep is the step that begins by this line.
func (l line) beginsStep() (string, bool) {
	return l.Step, l.Swap != 0 && l.State == stepBegins
}

// SwapReport is one placement order as the ranks log it, for the report.
type SwapReport struct {
	Order uint64 `json:"order"`
	// first that it holds for, or that the ranks went on with
	Iteration int64              `json:"iteration"`
	StepMs    map[string]float64 `json:"step_ms"`  // slowest rank
	TotalMs   float64            `json:"total_ms"` // slowest rank
	// of which copying and sending the emulated state took, on the rank that moved most
	EmulatedMs float64 `json:"emulated_ms"`
	ControlMs  float64 `json:"control_ms"` // the rest
	MovedMB    float64 `json:"moved_mb"`   // over all ranks, 10^6 bytes
	// ranks, as before the swap, that took the new placement
	Applied  []int32 `json:"applied"`
	Refused  []int32 `json:"refused"`   // ranks that it ended for unswapped
	LastStep string  `json:"last_step"` // that any rank began
	Reason   string  `json:"reason,omitempty"`
}

// orders gathers what ranks log of placements. Owned by the lab's loop.
type orders struct{ swaps []*SwapReport }

func (o *orders) addOrder(l line) {
	switch {
	case l.Swap == 0:
	case l.State == swapOver:
		o.swapReport(l.Swap).addRankResult(l)
	default:
		s := o.swapReport(l.Swap)
		if slices.Index(falcon.SwapSteps[:], l.Step) > slices.Index(falcon.SwapSteps[:], s.LastStep) {
			s.LastStep = l.Step
		}
	}
}

// swapReports are the placements with their ranks in order.
func (o *orders) swapReports() []SwapReport {
	out := []SwapReport{}
	for _, s := range o.swaps {
		slices.Sort(s.Applied)
		slices.Sort(s.Refused)
		out = append(out, *s)
	}
	return out
}

func (o *orders) swapReport(id uint64) *SwapReport {
	i := slices.IndexFunc(o.swaps, func(s *SwapReport) bool { return s.Order == id })
	if i >= 0 {
		return o.swaps[i]
	}
	s := &SwapReport{
		Order:     id,
		Iteration: falcon.NoIteration,
		StepMs:    map[string]float64{},
		Applied:   []int32{},
		Refused:   []int32{},
	}
	if len(o.swaps) < ordersMost {
		o.swaps = append(o.swaps, s)
	}
	return s
}

// addRankResult takes one rank's account of the whole.
func (s *SwapReport) addRankResult(l line) {
	s.Iteration = max(s.Iteration, l.From)
	total := 0.0
	for _, step := range falcon.SwapSteps {
		total += l.StepMs[step]
		if ms, ok := l.StepMs[step]; ok {
			s.StepMs[step] = max(s.StepMs[step], ms)
		}
	}
	// The ranks step together: one that moves nothing waits for those that do.
	s.TotalMs = max(s.TotalMs, total)
	s.EmulatedMs = max(s.EmulatedMs, l.EmulatedMs)
	s.ControlMs = max(0, s.TotalMs-s.EmulatedMs)
	s.MovedMB += float64(l.Bytes) / 1e6
	list := &s.Refused
	if l.Committed {
		list = &s.Applied
	}
	*list = append(*list, int32(l.Rank))
	if l.Reason != "" {
		s.Reason = l.Reason
	}
}

// Restart is the job started again from a checkpoint, for the report. Its parts
// are each the slowest rank's.
type Restart struct {
	Generation     uint64  `json:"generation"`
	FirstIteration int64   `json:"first_iteration"` // that it ran
	Redone         int64   `json:"redone"`          // iterations begun before it and run again
	DumpMs         float64 `json:"dump_ms"`         // copying the state to the host's memory
	StoreMs        float64 `json:"store_ms"`        // writing it to storage, until all had
	// the rest: ending and starting processes, making communicators
	LaunchMs  float64 `json:"launch_ms"`
	LoadMs    float64 `json:"load_ms"`    // reading from storage
	RestoreMs float64 `json:"restore_ms"` // to the device, until all had
	// from the end of the last iteration before to the start of the first after
	DownMs float64 `json:"down_ms"`
}

// storageLine is what a rank logs of a checkpoint that it wrote or read.
type storageLine struct {
	Checkpoint *int64  `json:"checkpoint"` // the iteration that it was written behind
	Resume     *int64  `json:"resume"`     // the first iteration to run after one was read
	DumpMs     float64 `json:"dump_ms"`
	StoreMs    float64 `json:"store_ms"`
	LoadMs     float64 `json:"load_ms"`
	RestoreMs  float64 `json:"restore_ms"`
}

// noteStorage follows the checkpoints, and the reading of them.
func (r *records) noteStorage(generation uint64, l line) {
	switch {
	case l.Checkpoint != nil:
		if *l.Checkpoint != r.stored.behind {
			r.stored = stored{behind: *l.Checkpoint}
		}
		r.stored.dumpMs = max(r.stored.dumpMs, l.DumpMs)
		r.stored.storeMs = max(r.stored.storeMs, l.StoreMs)
	case l.Resume != nil && generation > 0:
		s := r.addRestart(generation)
		s.LoadMs = max(s.LoadMs, l.LoadMs)
		s.RestoreMs = max(s.RestoreMs, l.RestoreMs)
	}
}

// stored is the newest checkpoint's time on the slowest rank.
type stored struct {
	behind          int64
	dumpMs, storeMs float64
}

func (r *records) addRestart(generation uint64) *Restart {
	i := slices.IndexFunc(r.restarts, func(s Restart) bool { return s.Generation == generation })
	if i < 0 {
		i = len(r.restarts)
		r.restarts = append(r.restarts, Restart{
			Generation:     generation,
			FirstIteration: falcon.NoIteration,
			DumpMs:         r.stored.dumpMs,
			StoreMs:        r.stored.storeMs,
		})
	}
	return &r.restarts[i]
}

// dateRestart dates the first iteration of a later generation, once all have run it.
func (r *records) dateRestart() {
	i := r.done - 1
	if i < 1 || r.rows[i].Generation == r.rows[i-1].Generation {
		return
	}
	down := 0.0
	// of an iteration that was cut off no rank tells the end
	if before := slices.Max(r.endNs[:i]); before > 0 {
		down = float64(r.endNs[i]-before)/1e6 - r.rows[i].Ms
	}
	if j := r.rejoinOfGeneration(r.rows[i].Generation); j != nil {
		j.downMs = down
		return
	}
	s := r.addRestart(r.rows[i].Generation)
	s.FirstIteration = i
	s.DownMs = down
	s.LaunchMs = max(0, s.DownMs-s.DumpMs-s.StoreMs-s.LoadMs-s.RestoreMs)
}
