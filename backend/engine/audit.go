package engine

import (
	"fmt"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// kindAudit is the kind of lines about who did what.
const kindAudit = "audit"

// auditEntry is what a person did, for the audit lines that consoles show. The
// records of decision and policy hold the same; a line is what all of
// them have in common, in their order.
type auditEntry struct {
	Actor    string `json:"actor"`
	Role     string `json:"role"`
	From     string `json:"from"`
	Verb     string `json:"verb"`
	About    string `json:"about,omitempty"`
	PlanHash string `json:"plan_hash,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

func (d *auditEntry) proto() *falconv1.Audit {
	if d == nil {
		return nil
	}
	return &falconv1.Audit{
		Actor:    d.Actor,
		Role:     d.Role,
		From:     d.From,
		Verb:     d.Verb,
		About:    d.About,
		PlanHash: d.PlanHash,
		Reason:   d.Reason,
	}
}

// sentence is the entry in one sentence.
func (d *auditEntry) sentence() string {
	t := fmt.Sprintf("%s (%s, %s): %s", d.Actor, d.Role, d.From, d.Verb)
	if d.About != "" {
		t += " " + d.About
	}
	if d.PlanHash != "" {
		t += ", plan " + d.PlanHash
	}
	if d.Reason != "" {
		t += ": " + d.Reason
	}
	return t
}

// verbFor names what a decision did to an action: of two approvals
// which one it was, and whether a veto took an approval back.
func verbFor(was, is falcon.Action, approve bool) string {
	switch {
	case !approve && was.State == falcon.ActionApproved:
		return "withdraw"
	case approve && is.Waits():
		return "approve (1 of 2)"
	case approve && was.Waits():
		return "approve (2 of 2)"
	}
	return verbOf(approve)
}

// verbOf is the verb of a decision on an action.
func verbOf(approve bool) string {
	if approve {
		return "approve"
	}
	return "veto"
}
