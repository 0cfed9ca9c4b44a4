package ladder

import (
	"strings"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/phrase"
)

// A rung that has been taken needs no decision: what is shown is its present
// state, not what would be if it were taken.

// actionInHand is the action by which a rung has been taken and not ended, or nil.
func actionInHand(l *falconv1.Ladder, g *falconv1.RungView) *falconv1.Action {
	for i := len(l.GetActions()) - 1; i >= 0; i-- {
		a := l.Actions[i]
		if a.Rung != g.Rung || a.Variant != g.Variant {
			continue
		}
		switch falcon.ActionState(a.State) {
		case falcon.ActionApproved, falcon.ActionDispatched, falcon.ActionApplied, falcon.ActionReverting:
			return a
		case falcon.ActionKept:
			if g.Current {
				return a
			}
		case falcon.ActionProposed, falcon.ActionVetoed, falcon.ActionReverted,
			falcon.ActionRetained, falcon.ActionFailed, falcon.ActionExpired:
		}
		return nil
	}
	return nil
}

// afterTheFault is what becomes of an action in force when its fault clears.
func afterTheFault(a *falconv1.Action) string {
	if a.Rung == string(falcon.RungS3) && len(a.MicroBatches) == 0 {
		return "Once the fault has cleared the ranks stay if the job trains as fast as before it, else they go back"
	}
	return "It is undone when the fault clears"
}

// takenText is the state of a rung that was taken; ok is false for one that was not.
func takenText(l *falconv1.Ladder, g *falconv1.RungView) (text string, ok bool) {
	if g.Rung == string(falcon.RungS1) {
		if !g.Current {
			return g.Rung + phrase.Prefixed(": ", g.Reason), true
		}
		return g.Rung + phrase.Prefixed(": ", g.Reason) +
			". In force: nothing has been changed in the job", true
	}
	a := actionInHand(l, g)
	if a == nil {
		return "", false
	}
	parts := []string{
		phrase.RungName(g) + phrase.Prefixed(": ", strings.TrimSuffix(g.Reason, ": "+a.State)),
		phrase.Taken(a),
	}
	switch {
	case a.State == string(falcon.ActionApplied) && g.IfWrong != "":
		parts = append(parts, "If wrong: "+g.IfWrong)
	case a.State == string(falcon.ActionKept) && a.Rung != string(falcon.RungS4):
		parts = append(parts, afterTheFault(a))
	}
	return strings.Join(parts, ". "), true
}
