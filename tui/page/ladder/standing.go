package ladder

import (
	"fmt"
	"strings"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
)

// A rung that has been taken waits for nobody: what is told of it is how it
// stands, not what would be if it were taken.

// inHand is the action by which a rung has been taken and not ended, or nil.
func inHand(l *falconv1.Ladder, g *falconv1.RungView) *falconv1.Action {
	for i := len(l.GetActions()) - 1; i >= 0; i-- {
		a := l.Actions[i]
		if a.Rung != g.Rung || a.Variant != g.Variant {
			continue
		}
		switch a.State {
		case "approved", "dispatched", "applied", "reverting":
			return a
		case "kept":
			if g.Current {
				return a
			}
		}
		return nil
	}
	return nil
}

// standing says how a rung that has been taken stands; ok is false for one that
// has not.
func standing(l *falconv1.Ladder, g *falconv1.RungView) (text string, ok bool) {
	if g.Rung == "S1" {
		if !g.Current {
			return sentence(g.Rung, g.Reason), true
		}
		return sentence(g.Rung, g.Reason) + ". In force: nothing has been changed in the job", true
	}
	a := inHand(l, g)
	if a == nil {
		return "", false
	}
	parts := []string{sentence(phrase.RungName(g), strings.TrimSuffix(g.Reason, ": "+a.State)), stands(a)}
	switch {
	case a.State == "applied" && g.IfWrong != "":
		parts = append(parts, "If wrong: "+g.IfWrong)
	case a.State == "kept" && a.Rung != "S4":
		parts = append(parts, "It is undone when the fault clears")
	}
	return strings.Join(parts, ". "), true
}

func stands(a *falconv1.Action) string {
	by := ""
	if who := phrase.Approvers(a); who != "" {
		by = ", approved by " + who
	}
	since := "In force since iteration " + phrase.Iteration(a.AppliedIteration) + by
	switch {
	case a.State == "applied":
		return since + "; its gain is being measured"
	case a.State == "kept" && a.MeasuredMs > 0:
		return since + fmt.Sprintf(", and kept: %s → %s measured (%s), predicted %s", phrase.Ms(a.BeforeMs), phrase.Ms(a.MeasuredMs), phrase.Change(a.BeforeMs, a.MeasuredMs), phrase.Ms(a.PredictedMs))
	case a.State == "kept":
		return since + ", and kept"
	}
	return page.Action(a)
}
