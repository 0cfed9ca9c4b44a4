package page

import (
	"fmt"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/phrase"
)

// Doing returns in one line what is being done about the incident.
func Doing(s *State) string {
	inc := s.Incident()
	if inc == nil {
		return "steady"
	}
	if a := s.Awaited(); Standing(s, a) != "" {
		return fmt.Sprintf("%s (%s) %s", a.Rung, phrase.Does(a.Rung, a.Variant), Standing(s, a))
	}
	if p := s.Proposal(); p != nil {
		return fmt.Sprintf("%s (%s) waits for a decision: predicted %s",
			p.Rung, phrase.Does(p.Rung, p.Variant), phrase.Predicted(p))
	}
	if a := lastAction(s); a != nil {
		return phrase.Action(a)
	}
	if inc.State == string(falcon.IncidentLocated) {
		return nothingYet(s)
	}
	return phrase.Incident(inc)
}

// nextRung is which rung comes next, and when at the present loss; "" where that is not known.
func nextRung(s *State) string {
	for _, r := range s.Snap().GetLadder().GetRungs() {
		if r.GetNext() && r.GetDueInMs() > 0 {
			return "; " +
				r.GetRung() +
				" (" +
				phrase.Does(r.GetRung(), r.GetVariant()) +
				") is due in about " +
				phrase.Span(r.GetDueInMs())
		}
	}
	return ""
}

func nothingYet(s *State) string {
	why := "no action applies"
	for _, r := range s.Snap().GetLadder().GetRungs() {
		switch {
		case r.Rung == string(falcon.RungS1):
		case r.Applicable:
			return "S1 (ignore) for now: acting costs more than has been lost so far" + nextRung(s)
		case r.Rung == string(falcon.RungS2) && r.Reason != "":
			why += "; S2: " + r.Reason // the free one
		}
	}
	return why
}

// lastAction is the one of which something was decided or came last: what a person has just undone
// comes before a proposal that lapsed by it.
func lastAction(s *State) *falconv1.Action {
	var last *falconv1.Action
	for _, a := range s.Snap().GetLadder().GetActions() {
		if last == nil || changed(a) >= changed(last) {
			last = a
		}
	}
	return last
}

// changed is the last moment that is known of an action.
func changed(a *falconv1.Action) int64 {
	return max(
		a.GetProposedUnixNs(),
		a.GetDecidedUnixNs(),
		a.GetAppliedUnixNs(),
		a.GetRevertedUnixNs(),
	)
}
