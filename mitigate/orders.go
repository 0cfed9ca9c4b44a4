package mitigate

import "github.com/failslow/falcon"

// flight is the order that is out, and what it does to the job.
type flight struct {
	story     *story
	action    int
	order     uint64
	kind      string
	reverting bool
	counts    []int32          // OrderMicroBatches
	placement falcon.Placement // OrderPlacement
}

// orderSlot holds the one order that is out.
type orderSlot struct {
	job     *jobState
	out     *output
	pending *flight
	nextID  uint64
}

func (w *orderSlot) send(s *story, i int, o falcon.Order, f *flight) {
	a := &s.actions[i]
	o.Epoch, o.ID = w.job.desc.Epoch, w.nextID
	w.nextID++
	a.OrderID = o.ID
	f.story, f.action, f.order, f.kind, f.reverting = s, i, o.ID, o.Kind, a.State == falcon.ActionReverting
	w.pending = f
	w.out.ready.Orders = append(w.out.ready.Orders, o)
	w.out.update(*a)
}

// flightOf is the order that an action under way waits for, as far as the
// action tells: a split that is being put back is told with its commit.
func (w *orderSlot) orderOf(s *story, i int) *flight {
	a := &s.actions[i]
	f := &flight{story: s, action: i, order: a.OrderID, kind: falcon.OrderMicroBatches, reverting: a.State == falcon.ActionReverting}
	switch {
	case a.Phase == falcon.PhasePlacement:
		f.kind, f.placement = falcon.OrderPlacement, a.Placement
		if f.reverting {
			f.placement = a.Home
		}
	case a.Phase == falcon.PhaseCheckpoint:
		f.kind = falcon.OrderCheckpoint
	case f.reverting:
		f.counts = a.Previous
	default:
		f.counts = a.MicroBatches
	}
	return f
}

func (w *orderSlot) drop(s *story, i int) {
	if w.pending != nil && w.pending.story == s && w.pending.action == i {
		w.pending = nil
	}
}
