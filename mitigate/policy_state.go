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

// repeats says that a second approver is wanted and that it can't be this one.
// Names that differ in case only are one person's.
func (y *policyState) needsAnother(a *falcon.Action, by string) bool {
	return y.current.Rungs[a.Rung].Second && slices.ContainsFunc(a.Approvals, func(v falcon.Approval) bool { return strings.EqualFold(v.By, by) })
}

func (y *policyState) stopReason() string {
	if y.current.Frozen {
		return "actions are frozen"
	}
	return "the mode is observe"
}

// automatic says that rung r may act now without a person. After a veto every
// rung of the incident waits for one.
func (y *policyState) automatic(s *story, r falcon.Rung) bool {
	return approval(y.current, r) == falcon.ApprovalAuto && !y.current.Frozen && len(s.vetoed) == 0 && within(y.current.Hours, y.clock.now)
}

// maySplit says that policy lets the micro-batches be spread anew.
func (y *policyState) maySplit() bool {
	return approval(y.current, falcon.RungS2) != falcon.ApprovalNever
}
