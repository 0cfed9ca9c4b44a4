package mitigate

import (
	"cmp"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// incidentState is what the planner keeps of one incident.
type incidentState struct {
	incident    falcon.Incident
	cost        Impact
	persisted   Impact // what was last handed out to be persisted
	charged     bool   // cost has begun
	resumedCost bool   // iterations may have gone by unseen since cost.Counted
	measured    bool   // the job was measured since the incident is known, in this epoch
	unmeasured  bool   // a fence has waited for a measurement, and none has come since
	actions     []falcon.Action
	// a person said no: these are not proposed again, the others wait for a person
	vetoed     map[falcon.Rung]bool
	skipped    map[string]string // by plan: last reason why it was not proposed, to say it once
	reverts    int               // orders sent to undo the newest action that goes
	revertAt   int64             // newest iteration when the last of them was sent
	failedAt   int64             // newest iteration when an order last failed
	holdReason string            // last reason why a revert waits, to say it once
	// since when its newest action is measured without nodes that it names; zero = it is not
	silentSince time.Time
}

// actionRef is one action in force.
type actionRef struct {
	incident *incidentState
	index    int
}

func (h actionRef) action() *falcon.Action {
	return &h.incident.actions[h.index]
}

// incidentSet is the incidents known, oldest first.
type incidentSet struct{ list []*incidentState }

// chargedAt reports whether the incident lasted in iteration i.
func (s *incidentState) chargedAt(i int64) bool {
	relieved := s.incident.RelievedIteration
	return s.incident.HealthyMs > 0 &&
		(s.incident.Open() || (relieved != falcon.NoIteration && i < relieved))
}

// proposal is the action that waits for a decision, if any.
func (s *incidentState) proposal() *falcon.Action {
	n := len(s.actions)
	if n > 0 && s.actions[n-1].State == falcon.ActionProposed {
		return &s.actions[n-1]
	}
	return nil
}

// underWayIndex is the index of the action that is decided, ordered, being measured
// or undone, −1 for none. There is at most one in the whole job.
func (s *incidentState) underWayIndex() int {
	return slices.IndexFunc(s.actions, func(a falcon.Action) bool {
		return isUnderWay(a.State)
	})
}

// newestOf is the newest action of a rung, if any.
func (s *incidentState) newestOf(r falcon.Rung) *falcon.Action {
	return s.newestAction(func(a *falcon.Action) bool { return a.Rung == r })
}

// newestAction is the newest action that f takes, if any.
func (s *incidentState) newestAction(f func(*falcon.Action) bool) *falcon.Action {
	for i := range slices.Backward(s.actions) {
		if f(&s.actions[i]) {
			return &s.actions[i]
		}
	}
	return nil
}

// hasInForce reports whether an action of the rung is in force for the incident.
func (s *incidentState) hasInForce(r falcon.Rung) bool {
	return slices.ContainsFunc(s.actions, func(a falcon.Action) bool {
		return a.Rung == r && isInForce(&a)
	})
}

func (s *incidentState) hasAnyInForce() bool {
	return slices.ContainsFunc(s.actions, func(a falcon.Action) bool { return isInForce(&a) })
}

// isOver reports whether the fault has cleared. One whose incident has not come yet
// (its action is back from the journal first) is not over.
func (s *incidentState) isOver() bool {
	return s.incident.State != "" && !s.incident.Open()
}

// isLocated reports whether the fault lasts and its culprit is known.
func (s *incidentState) isLocated() bool {
	return s.incident.State == falcon.IncidentLocated
}

// shownAction is the action that a rung's line is about: one that has not ended, a
// verified one only while no better plan is known.
func (s *incidentState) shownAction(c candidate) *falcon.Action {
	a := s.newestOf(c.rung)
	if a == nil ||
		isEnded(a.State) ||
		a.Variant != c.variant ||
		(a.State == falcon.ActionKept && c.err == nil && errorExceedsGain(c.plan) == nil) {
		return nil
	}
	return a
}

// restartUnderWay is the S4 whose processes are ending or being started, if any.
func (n *incidentSet) restartUnderWay() *falcon.Action {
	_, a := n.findAction(func(a *falcon.Action) bool {
		return a.State == falcon.ActionDispatched &&
			slices.Contains(
				[]falcon.ActionPhase{falcon.PhaseLeaving, falcon.PhaseLaunching, falcon.PhaseRelaunch},
				a.Phase,
			)
	})
	return a
}

// findAction is the newest action that f takes.
func (n *incidentSet) findAction(f func(*falcon.Action) bool) (*incidentState, *falcon.Action) {
	for _, s := range slices.Backward(n.list) {
		if a := s.newestAction(f); a != nil {
			return s, a
		}
	}
	return nil, nil
}

func (n *incidentSet) byID(id string) *incidentState {
	i := slices.IndexFunc(n.list, func(s *incidentState) bool {
		return s.incident.ID == id
	})
	if i >= 0 {
		return n.list[i]
	}
	return nil
}

func (n *incidentSet) getOrAdd(id string) *incidentState {
	if s := n.byID(id); s != nil {
		return s
	}
	if len(n.list) >= incidentsMost {
		n.dropOldest()
	}
	s := &incidentState{
		incident: falcon.Incident{ID: id, RelievedIteration: falcon.NoIteration},
		cost:     Impact{Incident: id},
		vetoed:   map[falcon.Rung]bool{},
		skipped:  map[string]string{},
	}
	n.list = append(n.list, s)
	return s
}

// dropOldest forgets the oldest incident that is over and done with.
func (n *incidentSet) dropOldest() {
	done := func(a falcon.Action) bool {
		return isEnded(a.State) || (a.Rung == falcon.RungS4 && a.State == falcon.ActionKept)
	}
	for i, s := range n.list {
		if s.isOver() &&
			!slices.ContainsFunc(s.actions, func(a falcon.Action) bool { return !done(a) }) {
			n.list = slices.Delete(n.list, i, i+1)
			return
		}
	}
}

// actionUnderWay is the action that keeps others waiting, if any: one plan per job.
func (n *incidentSet) actionUnderWay() *falcon.Action {
	_, a := n.findAction(func(a *falcon.Action) bool {
		return isUnderWay(a.State)
	})
	return a
}

// namedLinks are the links that located incidents name, in their order.
func (n *incidentSet) namedLinks() []falcon.Link {
	var out []falcon.Link
	for _, s := range n.list {
		if s.isLocated() {
			out = append(out, s.incident.Verdict.Links...)
		}
	}
	return out
}

// actionsInForce lists the splits and placements in force, newest first.
func (n *incidentSet) actionsInForce() []actionRef {
	var out []actionRef
	for _, s := range n.list {
		for i := range s.actions {
			if a := &s.actions[i]; isInForce(a) && a.Rung != falcon.RungS4 {
				out = append(out, actionRef{s, i})
			}
		}
	}
	slices.SortFunc(out, func(x, y actionRef) int {
		a := x.action()
		b := y.action()
		return cmp.Or(cmp.Compare(b.AppliedIteration, a.AppliedIteration), cmp.Compare(b.OrderID, a.OrderID))
	})
	return out
}

// healthyMs is the iteration time without the open faults: that of the earliest.
func (n *incidentSet) healthyMs(s *incidentState) float64 {
	first := s
	for _, o := range n.list {
		if o.isLocated() && o.incident.HealthyMs > 0 && startedBefore(o, first) {
			first = o
		}
	}
	return first.incident.HealthyMs
}

// mustLeave reports whether a device has to go: it is named, or at the end of a slow link.
func (n *incidentSet) mustLeave(d falcon.Device, bad []falcon.Node) bool {
	if !slices.Contains(bad, d.Node()) {
		return false
	}
	named := false
	for _, s := range n.list {
		if causeHelped(s, falcon.RungS4) != nil {
			continue
		}
		if slices.Contains(s.incident.Verdict.Devices, d) {
			return true
		}
		named = named ||
			slices.ContainsFunc(s.incident.Verdict.Devices, func(o falcon.Device) bool {
				return o.Node() == d.Node()
			})
	}
	return !named
}

func isEnded(s falcon.ActionState) bool {
	switch s {
	case falcon.ActionVetoed, falcon.ActionReverted, falcon.ActionRetained, falcon.ActionFailed,
		falcon.ActionExpired:
		return true
	}
	return false
}

func isUnderWay(s falcon.ActionState) bool {
	switch s {
	case falcon.ActionApproved, falcon.ActionDispatched, falcon.ActionApplied, falcon.ActionReverting:
		return true
	}
	return false
}

// isInForce reports whether the job runs with what the action changed.
func isInForce(a *falcon.Action) bool {
	switch a.State {
	case falcon.ActionApplied, falcon.ActionKept, falcon.ActionReverting:
		return true
	case falcon.ActionDispatched:
		return a.Phase == falcon.PhaseSplit
	}
	return false
}

func startedBefore(a, b *incidentState) bool {
	return compareOnsets(a, b) < 0
}

func compareOnsets(a, b *incidentState) int {
	return cmp.Or(
		cmp.Compare(a.incident.OnsetIteration, b.incident.OnsetIteration),
		cmp.Compare(a.incident.ID, b.incident.ID),
	)
}

func sameCulprit(a, b *incidentState) bool {
	return a == b || shareCulprit(a.incident.Verdict, b.incident.Verdict)
}

func shareCulprit(v, w falcon.Verdict) bool {
	return slices.ContainsFunc(v.Devices, func(d falcon.Device) bool {
		return slices.Contains(w.Devices, d)
	}) ||
		slices.ContainsFunc(v.Links, func(l falcon.Link) bool {
			return slices.Contains(w.Links, l)
		})
}

// causeHelped is why rung r can't help the incident's cause, nil if it can (FALCON table 3).
func causeHelped(s *incidentState, r falcon.Rung) error {
	switch {
	case s.incident.State != "" && !s.incident.Open():
		return errOver
	case !s.isLocated():
		return errNotLocated
	}
	v := s.incident.Verdict
	compute := v.HasCause(falcon.CauseGPU) || v.HasCause(falcon.CauseCPU)
	network := v.HasCause(falcon.CauseNetwork)
	switch {
	case v.Cause == falcon.CauseNotHardware && v.Reason != "":
		return errOwnWork
	case (v.Cause == falcon.CauseNotHardware || v.Cause == falcon.CauseFacility) && r == falcon.RungS2:
		return errNotHW
	case v.Cause == falcon.CauseNotHardware:
		return errAllSlow
	case v.Cause == falcon.CauseFacility:
		return errFacility
	case compute, network && r != falcon.RungS2:
		return nil
	case network:
		return errNetwork
	}
	return errUnknown
}
