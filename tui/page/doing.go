package page

import (
	"fmt"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/phrase"
)

// Doing says in one line what is being done about the incident.
func Doing(s *State) string {
	inc := s.Incident()
	if inc == nil {
		return "steady"
	}
	if a := s.Awaited(); Standing(s, a) != "" {
		return fmt.Sprintf("%s (%s) %s", a.Rung, phrase.Rung(a.Rung), Standing(s, a))
	}
	if p := s.Proposal(); p != nil {
		return fmt.Sprintf("%s (%s) waits for a decision: predicted %s → %s (%s)", p.Rung, phrase.Rung(p.Rung),
			phrase.Ms(p.BeforeMs), phrase.Ms(p.PredictedMs), phrase.Change(p.BeforeMs, p.PredictedMs))
	}
	if a := lastAction(s); a != nil {
		return Action(a)
	}
	switch inc.State {
	case "verified":
		return "slowdown verified; a profile looks for the culprit"
	case "located":
		return nothingYet(s)
	case "relieved":
		return "the fault has cleared"
	}
	return "closed; nothing was changed"
}

func nothingYet(s *State) string {
	for _, r := range s.Snap().GetLadder().GetRungs() {
		if r.Rung != "S1" && r.Applicable {
			return "S1 (ignore) for now: acting costs more than has been lost so far"
		}
	}
	return "no action applies"
}

func lastAction(s *State) *falconv1.Action {
	if l := s.Snap().GetLadder().GetActions(); len(l) > 0 {
		return l[len(l)-1]
	}
	return nil
}

// Action says where an action stands, in one line.
func Action(a *falconv1.Action) string {
	name := fmt.Sprintf("%s (%s)", a.Rung, phrase.Rung(a.Rung))
	by := ""
	if a.DecidedBy != "" {
		by = " by " + a.DecidedBy
	}
	switch a.State {
	case "proposed":
		if phrase.Waits(a) {
			return name + " approved by " + phrase.Approvers(a) + "; waits for a second approver"
		}
	case "approved":
		if a.DeadlineUnixNs != 0 {
			return name + " approved by " + phrase.Approvers(a) + "; a veto withdraws it until it acts"
		}
		return name + " approved" + by + "; being ordered"
	case "dispatched":
		return name + " approved by " + phrase.Approvers(a) + "; the ranks are agreeing on an iteration"
	case "applied":
		return fmt.Sprintf("%s in force since iteration %s; the gain is being measured", name, phrase.Iteration(a.AppliedIteration))
	case "kept":
		if a.MeasuredMs <= 0 {
			return name + " kept"
		}
		return fmt.Sprintf("%s kept: %s → %s measured (%s), predicted %s", name, phrase.Ms(a.BeforeMs), phrase.Ms(a.MeasuredMs),
			phrase.Change(a.BeforeMs, a.MeasuredMs), phrase.Ms(a.PredictedMs))
	case "reverting":
		return name + " is being reverted" + phrase.Because(a)
	case "reverted":
		return fmt.Sprintf("%s reverted at iteration %s%s", name, phrase.Iteration(a.RevertedIteration), phrase.Because(a))
	case "vetoed":
		if first := phrase.Approvers(a); first != "" {
			return name + " approved by " + first + ", withdrawn" + by + phrase.Because(a)
		}
		return name + " vetoed" + by + phrase.Because(a)
	case "expired":
		return name + " expired" + phrase.Because(a)
	}
	return name + " " + a.State + phrase.Because(a)
}
