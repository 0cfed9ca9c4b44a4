package tui

import (
	"slices"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
)

// undoQuestionLines say what is taken back, and what that costs.
func undoQuestionLines(q *decision.TakeBack, live *page.State, w int) []page.Line {
	a := q.Action
	out := wrapLines(
		themes.Title,
		a.Rung+" for "+a.Incident+", plan "+a.PlanHash+": "+phrase.Does(a.Rung, a.Variant),
		w,
	)
	out = append(out, wrapLines(themes.Text, phrase.Taken(a), w)...)
	if back := phrase.Plan(a.MicroBatches, a.Previous, w-34); back != "" {
		out = append(out, wrapLines(themes.Text, "Undone: micro-batches a replica "+back, w)...)
	}
	if a.Rung == string(falcon.RungS3) {
		out = append(out, wrapLines(themes.Text, "Undone: the nodes change places back.", w)...)
		out = append(out, wrapLines(themes.Warn, impacts[falcon.RungS3], w)...)
	}
	return append(out, wrapLines(themes.Warn, undoCost(a, live), w)...)
}

func lasts(live *page.State, incident string) bool {
	return slices.ContainsFunc(live.Snap().GetIncidents(), func(i *falconv1.Incident) bool {
		return i.GetId() == incident && page.Open(i)
	})
}

func undoCost(a *falconv1.Action, live *page.State) string {
	t := "The rung is not proposed again for this incident, and every other one waits for a person."
	if a.MeasuredMs > 0 && lasts(live, a.Incident) {
		return "The fault lasts: expect about " +
			phrase.Ms(a.BeforeMs) +
			" an iteration again, " +
			phrase.Ms(a.MeasuredMs) +
			" with it. " +
			t
	}
	return t
}
