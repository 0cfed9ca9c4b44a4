package phrase

import (
	"slices"
	"strings"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Approvers names who has approved an action: "maria and li"; who decided where
// no approvals are listed, "" where no one has.
func Approvers(a *falconv1.Action) string {
	var names []string
	for _, v := range a.GetApprovals() {
		if !slices.Contains(names, v.GetBy()) {
			names = append(names, v.GetBy())
		}
	}
	if len(names) == 0 &&
		a.GetState() != string(falcon.ActionProposed) &&
		a.GetState() != string(falcon.ActionVetoed) {
		return a.GetDecidedBy()
	}
	return strings.Join(names, " and ")
}

// Waits reports whether one person has approved what another has to approve, too.
func Waits(a *falconv1.Action) bool {
	return a.GetState() == string(falcon.ActionProposed) && len(a.GetApprovals()) > 0
}

// Has reports whether a person of this name has approved the action.
func Has(a *falconv1.Action, name string) bool {
	return slices.ContainsFunc(a.GetApprovals(), func(v *falconv1.Approval) bool {
		return strings.EqualFold(v.GetBy(), name)
	})
}
