package page

import (
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/phrase"
)

// Pending is the action that is approved and not ordered yet, or nil.
func (s *State) Pending() *falconv1.Action {
	return pendingIn(s.Snap().GetLadder())
}

// PendingFor is the incident whose action is Pending, the present one first, or "".
func (s *State) PendingFor() string {
	for _, l := range append([]*falconv1.Ladder{s.Snap().GetLadder()}, s.Snap().GetOthers()...) {
		if pendingIn(l) != nil {
			return l.GetIncident()
		}
	}
	return ""
}

func pendingIn(l *falconv1.Ladder) *falconv1.Action {
	list := l.GetActions()
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].GetState() == string(falcon.ActionApproved) {
			return list[i]
		}
	}
	return nil
}

// Awaited is what a veto can be given on: what is proposed, else what is
// approved and not ordered; nil where there is neither.
func (s *State) Awaited() *falconv1.Action {
	return awaitedIn(s.Snap().GetLadder())
}

// AwaitedOf is the same of any open incident.
func (s *State) AwaitedOf(incident string) *falconv1.Action {
	return awaitedIn(s.LadderOf(incident))
}

func awaitedIn(l *falconv1.Ladder) *falconv1.Action {
	if p := proposalOn(l); p != nil {
		return p
	}
	return pendingIn(l)
}

// GoesOut is the time until an approved action is ordered; ok is false without a countdown.
func GoesOut(s *State, a *falconv1.Action) (left time.Duration, ok bool) {
	if a.GetState() != string(falcon.ActionApproved) ||
		a.GetDeadlineUnixNs() == 0 ||
		heldBecause(s) != "" {
		return 0, false
	}
	return max(0, time.Unix(0, a.GetDeadlineUnixNs()).Sub(s.EngineNow())), true
}

// heldBecause is what keeps an approved action from going out, or "".
func heldBecause(s *State) string {
	switch p := s.Snap().GetPolicy(); {
	case p.GetFrozen():
		return "held while frozen"
	case p.GetMode() == string(falcon.ModeObserve):
		return "held in mode observe"
	}
	return ""
}

// Standing returns what an approval waits for: "approved by maria, acts in 8 s";
// "" of an action that no one has approved or that is ordered.
func Standing(s *State, a *falconv1.Action) string {
	by := "approved by " + phrase.Approvers(a)
	switch {
	case phrase.Waits(a):
		return by + ", waits for a second approver"
	case a.GetState() != string(falcon.ActionApproved):
		return ""
	case heldBecause(s) != "":
		return by + ", " + heldBecause(s)
	}
	if left, ok := GoesOut(s, a); ok {
		return by + ", acts in " + phrase.Seconds(left)
	}
	if falcon.ActionPhase(a.GetPhase()) == falcon.PhaseMeasuring {
		return by + ", the ranks are measured once more first"
	}
	return by + ", being ordered"
}
