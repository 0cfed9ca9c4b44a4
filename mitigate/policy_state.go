package mitigate

import (
	"slices"
	"strings"

	"github.com/failslow/falcon"
)

// policyState is the policy in force.
type policyState struct {
	clock   *clock
	current falcon.Policy
}

// needsAnother reports whether a second approver is wanted and that it can't be this one.
// Names that differ in case only are one person's.
func (y *policyState) needsAnother(a *falcon.Action, by string) bool {
	return y.current.Rungs[a.Rung].Second &&
		slices.ContainsFunc(a.Approvals, func(v falcon.Approval) bool {
			return strings.EqualFold(v.By, by)
		})
}

func (y *policyState) set(p falcon.Policy) {
	y.current = p
}

func (y *policyState) frozen() bool { return y.current.Frozen }

func (y *policyState) observing() bool {
	return y.current.Mode == falcon.ModeObserve
}

func (y *policyState) rungPolicy(r falcon.Rung) falcon.RungPolicy {
	return y.current.Rungs[r]
}

// requires is what policy wants before rung r is taken, whatever the time of the day.
func (y *policyState) requires(r falcon.Rung) string {
	return approval(y.current, r)
}

func (y *policyState) allowedVariants() []falcon.Variant {
	return s4Variants(y.current)
}

// stopReason is why nothing is ordered where policy forbids it.
func (y *policyState) stopReason() string {
	if y.frozen() {
		return "actions are frozen"
	}
	return "the mode is observe"
}

// approvalFor is what policy wants for one incident: after a veto no rung of it is taken without
// a person.
func (y *policyState) approvalFor(s *incidentState, r falcon.Rung) string {
	if a := y.requires(r); a != falcon.ApprovalAuto || len(s.vetoed) == 0 {
		return a
	}
	return falcon.ApprovalPerson
}

// automatic reports whether rung r may act without a person; after a veto no rung of it may.
func (y *policyState) automatic(s *incidentState, r falcon.Rung) bool {
	return y.approvalFor(s, r) == falcon.ApprovalAuto &&
		!y.frozen() &&
		withinHours(y.current.Hours, y.clock.now)
}

// maySplit reports whether policy lets the micro-batches be redistributed.
func (y *policyState) maySplit() bool {
	return y.requires(falcon.RungS2) != falcon.ApprovalNever
}
