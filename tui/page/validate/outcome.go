package validate

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/report"
	"github.com/failslow/falcon/tui/widget"
)

// drawOutcome draws what came of a validation, who asked for it and what to do next,
// above the results, and returns what is left.
func (p *Page) drawOutcome(
	c *widget.Canvas,
	r widget.Rect,
	s *page.State,
	v *falconv1.Validation,
) widget.Rect {
	paragraph := func(text string, role themes.Role) {
		head, rest := r.Rows(min(2, r.H))
		if used := c.Paragraph(head, text, c.Pal.Style(role)); used < head.H {
			rest = widget.Rect{
				X: r.X,
				Y: r.Y + used,
				W: r.W,
				H: r.H - used,
			}
		}
		r = rest
	}
	if falcon.ValidationState(v.State) != falcon.ValidationDone {
		paragraph(Outcome(v), stateRole(v))
		return r
	}
	tests := report.ValidationOf(v)
	paragraph(report.Headline(tests), outcomeRole(tests.Outcome()))
	if text := nextStep(s, tests); text != "" {
		paragraph(text, themes.Text)
	}
	if r.H > 6 {
		paragraph(Outcome(v), themes.Dim)
	}
	return r
}

func outcomeRole(o falcon.TestOutcome) themes.Role {
	switch o {
	case falcon.TestsSlow:
		return themes.Bad
	case falcon.TestsNotJudged, falcon.TestsFailed:
		return themes.Warn
	case falcon.TestsFine:
	}
	return themes.Good
}

// nextStep is what an operator can do about the outcome, empty where there is nothing.
func nextStep(s *page.State, v falcon.Validation) string {
	switch v.Outcome() {
	case falcon.TestsSlow:
		if a := s.Proposal(); a != nil {
			return fmt.Sprintf("Next: %s approves %s (%s).",
				s.Key(key.Global, key.Approve), a.GetRung(), a.GetIncident())
		}
		return fmt.Sprintf("Next: %s shows what Falcon has against it, and what can be done.",
			s.Key(key.Global, key.ShowLadder))
	case falcon.TestsNotJudged:
		return "Next: " + report.Remedy(v) + "."
	case falcon.TestsFine, falcon.TestsFailed:
	}
	return ""
}

// Summary is what a validation has cost so far.
func Summary(v *falconv1.Validation) string {
	var parts []string
	if v.Passes > 0 {
		t := fmt.Sprintf("pass %d of %d", v.PassesDone, v.Passes)
		if v.PassesDone >= v.Passes {
			t = fmt.Sprintf("%d passes", v.Passes)
		}
		if v.ExtraPasses > 0 {
			t += fmt.Sprintf(" (%d extra: shared NICs)", v.ExtraPasses)
		}
		parts = append(parts, t)
	}
	if v.PausedMs > 0 {
		parts = append(parts, "job held "+phrase.Ms(v.PausedMs))
	}
	if v.Emulated {
		parts = append(parts, "emulated")
	}
	return strings.Join(parts, "  ·  ")
}

// Outcome returns in a sentence or two who asked, why, and what came of it.
func Outcome(v *falconv1.Validation) string {
	t := "Asked by " + cmp.Or(v.By, "the engine")
	why := strings.TrimRight(v.Why, ".?! ")
	switch {
	case why != "" && strings.Contains(why, v.Incident):
		t += ": " + why
	case why != "":
		t += " for " + v.Incident + ": " + why
	case v.Incident != "":
		t += " for " + v.Incident
	}
	switch falcon.ValidationState(v.State) {
	case falcon.ValidationSurveying:
		if v.Reason != "" { // it waits for its moment
			return t + ". It " + v.Reason + "; X calls it off."
		}
		return t + ". Seeking a boundary at which all ranks have made equal calls."
	case falcon.ValidationArming, falcon.ValidationWaiting:
		return t +
			fmt.Sprintf(". The ranks run up to iteration %s and stop there; X calls it off.",
				phrase.Iteration(v.Iteration))
	case falcon.ValidationTesting:
		return t +
			fmt.Sprintf(". The job is held at iteration %s; X lets it go.", phrase.Iteration(v.Iteration))
	case falcon.ValidationResuming:
		return t + ". The job is being let go."
	case falcon.ValidationRefused:
		return t + ". Refused, nothing was held: " + v.Reason
	case falcon.ValidationFailed:
		return t + ". The job goes on; the test did not end: " + v.Reason
	}
	return t + "."
}
