package recovery

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// history is the newest recoveries, with the one in progress.
type history struct {
	recs   []*falcon.Recovery // oldest first
	nextID int
}

func newHistory() history { return history{nextID: 1} }

// takeNextID is the id of a new recovery.
func (h *history) takeNextID() string {
	id := fmt.Sprintf("REC-%04d", h.nextID)
	h.nextID++
	return id
}

func (h *history) append(c *falcon.Recovery) {
	h.recs = append(h.recs, c)
	if len(h.recs) > recoveriesMost {
		h.recs = slices.Delete(h.recs, 0, len(h.recs)-recoveriesMost)
	}
}

// restore takes copies of what the journal kept. They are sorted by id: the first sign
// of a fault may be older than the recovery before.
func (h *history) restore(all []falcon.Recovery, nextID int) {
	h.recs = nil
	h.nextID = max(h.nextID, nextID)
	for _, c := range all {
		c = cloneRecovery(&c)
		h.recs = append(h.recs, &c)
	}
	slices.SortStableFunc(h.recs, func(a, b *falcon.Recovery) int {
		return cmp.Or(cmp.Compare(len(a.ID), len(b.ID)), cmp.Compare(a.ID, b.ID))
	})
}

func (h *history) oldestFirst() []*falcon.Recovery { return h.recs }

func (h *history) newestFirst() iter.Seq2[int, *falcon.Recovery] {
	return slices.Backward(h.recs)
}

// newest is the newest recovery, nil where there was none.
func (h *history) newest() *falcon.Recovery {
	if len(h.recs) == 0 {
		return nil
	}
	return h.recs[len(h.recs)-1]
}

func (h *history) findByID(id string) *falcon.Recovery {
	i := slices.IndexFunc(h.recs, func(c *falcon.Recovery) bool { return c.ID == id })
	if i >= 0 {
		return h.recs[i]
	}
	return nil
}

// exitsWithinHour counts how often processes of a node ended by themselves.
func (h *history) exitsWithinHour(now time.Time, n falcon.Node) int {
	times := 0
	for _, c := range h.recs {
		if c.State == falcon.RecoveryDenied {
			continue
		}
		for _, f := range c.Faults {
			if f.Kind == falcon.FaultExit &&
				f.AskedBy == "" &&
				f.Node == n &&
				now.UnixNano()-f.DetectedNs < int64(hour) {
				times++
			}
		}
	}
	return times
}

// automaticWithinHour counts the recoveries that policy approved, but for one.
func (h *history) automaticWithinHour(now time.Time, but *falcon.Recovery) int {
	n := 0
	for _, c := range h.recs {
		if c != but &&
			c.DecidedBy == byPolicyName &&
			now.UnixNano()-c.StartedNs < int64(hour) {
			n++
		}
	}
	return n
}

// rejoinedGeneration is the newest generation that the epoch's job has rejoined; 0 for none.
func (h *history) rejoinedGeneration(jobEpoch uint64) uint64 {
	for _, c := range slices.Backward(h.recs) {
		if c.State == falcon.RecoveryResumed && !c.Whole && c.JobEpoch >= jobEpoch-1 {
			return c.Generation
		}
	}
	return 0
}

// Phases before any recovery was measured, in ms: a container with its imports, and one shard over
// one link.
var phaseDefaults = map[string]float64{
	falcon.PhaseSuspend: 500,
	falcon.PhaseReplace: 60e3,
	falcon.PhaseTable:   500,
	falcon.PhaseCollect: 10,
	falcon.PhaseGroups:  5e3,
	falcon.PhaseRestore: 5e3,
	falcon.PhaseResume:  500,
}

// copyMBsDefault is the rate at which a shard is taken to move, 10⁶ B/s.
const copyMBsDefault = 5e3

// predictPhases is each phase's median over the newest successful recoveries, else a default.
func (h *history) predictPhases(stateMB float64) map[string]float64 {
	out := map[string]float64{}
	for phase, def := range phaseDefaults {
		if phase == falcon.PhaseRestore && stateMB > 0 {
			def = stateMB / copyMBsDefault * 1e3
		}
		out[phase] = def
		if times := h.phaseTimes(phase); len(times) > 0 {
			out[phase] = times[len(times)/2]
		}
	}
	return out
}

// PredictMs is how long a recovery is predicted to keep the job from training.
func (m *Machine) PredictMs() float64 {
	sum := 0.0
	for _, ms := range m.hist.predictPhases(m.job.StateMB) {
		sum += ms
	}
	return sum
}

// ForAction is the newest recovery that an action has asked for.
func (m *Machine) ForAction(id string) (falcon.Recovery, bool) {
	for _, c := range m.hist.newestFirst() {
		if slices.ContainsFunc(c.Faults, func(f falcon.Fault) bool { return f.Action == id }) {
			return cloneRecovery(c), true
		}
	}
	return falcon.Recovery{}, false
}

// phaseTimes are the newest times of a phase, ascending.
func (h *history) phaseTimes(phase string) []float64 {
	var out []float64
	for _, c := range slices.Backward(h.recs) {
		v, ok := c.PhaseMs[phase]
		if ok && c.State == falcon.RecoveryResumed && !c.Whole && len(out) < predictFrom {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}

func cloneRecovery(c *falcon.Recovery) falcon.Recovery {
	out := *c
	out.Faults = slices.Clone(c.Faults)
	for i, f := range out.Faults {
		out.Faults[i].Ranks, out.Faults[i].Evidence = slices.Clone(f.Ranks), slices.Clone(f.Evidence)
	}
	out.Replaced = maps.Clone(c.Replaced)
	out.Launched = maps.Clone(c.Launched)
	out.PhaseMs = maps.Clone(c.PhaseMs)
	out.PredictMs = maps.Clone(c.PredictMs)
	out.Survivors = slices.Clone(c.Survivors)
	out.Fenced = slices.Clone(c.Fenced)
	out.Pending = slices.Clone(c.Pending)
	out.Placement = slices.Clone(c.Placement)
	out.Moves = slices.Clone(c.Moves)
	out.Splits = slices.Clone(c.Splits)
	if w := c.Wait; w != nil {
		wait := *w
		wait.Nodes = slices.Clone(w.Nodes)
		out.Wait = &wait
	}
	if s := c.Shrink; s != nil {
		out.Shrink = &falcon.Shrink{
			Layout:    s.Layout,
			Of:        s.Of,
			Kept:      slices.Clone(s.Kept),
			Placement: slices.Clone(s.Placement),
			Splits:    slices.Clone(s.Splits),
		}
	}
	return out
}
