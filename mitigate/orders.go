package mitigate

import "github.com/failslow/falcon"

// pendingOrder is the order that is out, and what it does to the job.
type pendingOrder struct {
	incident  *incidentState
	action    int
	order     uint64
	kind      falcon.OrderKind
	reverting bool
	counts    []int32          // OrderMicroBatches
	placement falcon.Placement // OrderPlacement
}

// orderSlot holds the one order that is out.
type orderSlot struct {
	job     *jobState
	out     *output
	pending *pendingOrder
	nextID  uint64
}

func (w *orderSlot) sendOrder(s *incidentState, i int, o falcon.Order, f *pendingOrder) {
	a := &s.actions[i]
	o.Epoch, o.ID = w.job.desc.Epoch, w.nextID
	w.nextID++
	a.OrderID = o.ID
	f.incident, f.action, f.order, f.kind, f.reverting = s, i, o.ID, o.Kind, a.State == falcon.ActionReverting
	w.pending = f
	w.out.addOrder(o)
	w.out.addAction(*a)
}

// orderOf is the order that an action under way waits for, as far as the
// action shows: a split that is being put back comes with its commit.
func (w *orderSlot) orderOf(s *incidentState, i int) *pendingOrder {
	a := &s.actions[i]
	f := &pendingOrder{
		incident:  s,
		action:    i,
		order:     a.OrderID,
		kind:      falcon.OrderMicroBatches,
		reverting: a.State == falcon.ActionReverting,
	}
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

// hasPending reports whether an order is out.
func (w *orderSlot) hasPending() bool { return w.pending != nil }

// takeOrder ends the wait for an order, nil where another one or none is out.
func (w *orderSlot) takeOrder(order uint64) *pendingOrder {
	f := w.pending
	if f == nil || f.order != order {
		return nil
	}
	w.pending = nil
	return f
}

// pendingPlacement is the action whose order to change places is out, if any.
func (w *orderSlot) pendingPlacement() *falcon.Action {
	if f := w.pending; f != nil && f.kind == falcon.OrderPlacement {
		return &f.incident.actions[f.action]
	}
	return nil
}

// resumeOrder waits for the order of an action of before a restart.
func (w *orderSlot) resumeOrder(s *incidentState, i int) {
	w.pending = w.orderOf(s, i)
}

// reserve keeps ids below the next one from being used again.
func (w *orderSlot) reserve(next uint64) {
	w.nextID = max(w.nextID, next)
}

func (w *orderSlot) dropOrder(s *incidentState, i int) {
	if w.pending != nil && w.pending.incident == s && w.pending.action == i {
		w.pending = nil
	}
}
