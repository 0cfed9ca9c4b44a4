package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/tui/phrase"
)

// JSON is the report as one document; field names are a promise.
func (s Incident) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(s, "", "  ")
	return append(b, '\n'), err
}

// Markdown is the report for people.
func (s Incident) Markdown() string {
	var b strings.Builder
	s.writeHead(&b)
	s.writeTriage(&b)
	s.writeEvidence(&b)
	s.writeTests(&b)
	s.writeDecisions(&b)
	s.writeActions(&b)
	s.writeRecoveries(&b)
	s.writeCurve(&b)
	s.writeTimeline(&b)
	return b.String()
}

func (s Incident) writeHead(b *strings.Builder) {
	fmt.Fprintf(b, "# %s: %s\n\n", s.ID, s.Headline())
	if len(s.Emulated) > 0 {
		fmt.Fprintf(b, "**Emulated:** %s. The training, the detection and the decisions are real.\n\n",
			markdown(strings.Join(s.Emulated, "; ")))
	}
	b.WriteString("| | |\n|---|---|\n")
	if j := s.Job; j != nil {
		layout := fmt.Sprintf("TP %d × DP %d × PP %d", j.TP, j.DP, j.PP)
		if j.Mesh != "" {
			layout += "; " + markdown(j.Mesh)
		}
		fmt.Fprintf(b, "| Job | %s, %d ranks (%s), epoch %d |\n",
			markdown(j.Name), j.Ranks, layout, j.Epoch)
	}
	fmt.Fprintf(b, "| State | %s |\n| Onset | %s |\n| Detected | iteration %d |\n| Relieved | %s |\n",
		s.State, s.Onset(), s.DetectedIteration, IterationText(s.RelievedIteration))
	if s.Before() != s.HealthyMs {
		fmt.Fprintf(b, "| Before the onset | %.1f ms |\n", s.Before())
	}
	fmt.Fprintf(b,
		"| Healthy | %.1f ms |\n| Slow | %.1f ms (%s) |\n| Lost | %.4f GPU hours |\n| Confidence | %.2f |\n",
		s.HealthyMs, s.SlowMs, s.Slowdown(), s.Cost.LostGPUHours, s.Verdict.Confidence)
	if s.ExportedAt != "" {
		fmt.Fprintf(b, "| Exported | %s |\n", s.ExportedAt)
	}
	if s.Recording != "" {
		fmt.Fprintf(b, "| Recording | %s |\n", markdown(s.Recording))
	}
}

// writeEvidence lists what speaks for the verdict, then what speaks against it.
func (s Incident) writeEvidence(b *strings.Builder) {
	b.WriteString("\n## Evidence\n\n")
	for _, against := range []bool{false, true} {
		for _, e := range s.Verdict.Evidence {
			if e.Against == against {
				fmt.Fprintf(b, "- %s %s: %s\n", ForOrAgainst(against), e.Kind, markdown(e.Text))
			}
		}
	}
}

func (s Incident) writeTests(b *strings.Builder) {
	b.WriteString("\n## Tests\n\n")
	if len(s.Validations) == 0 {
		b.WriteString("None.\n")
	}
	for _, v := range s.Validations {
		fmt.Fprintf(b, "- %s%s\n", markdown(Head(v)), markdown(Slow(v)))
	}
}

func (s Incident) writeDecisions(b *strings.Builder) {
	if len(s.Decisions) == 0 {
		return
	}
	b.WriteString(
		"\n## Decisions\n\n| When | What | Who | From | Plan | Reason | Predicted | Measured |\n|---|---|---|---|---|---|---|---|\n",
	)
	for _, d := range s.Decisions {
		who := d.By
		if d.Role != "" {
			who += " (" + d.Role + ")"
		}
		measured := "—"
		if d.MeasuredMs > 0 {
			measured = fmt.Sprintf("%.1f ms", d.MeasuredMs)
		}
		fmt.Fprintf(b, "| %s | %s %s | %s | %s | `%s` | %s | %.1f ms | %s |\n",
			d.At, markdown(d.Verb), d.Rung, markdown(who), markdown(d.From), d.PlanHash,
			markdown(d.Reason), d.PredictedMs, measured)
	}
}

func (s Incident) writeActions(b *strings.Builder) {
	b.WriteString("\n## Actions\n\n")
	for _, a := range s.Actions {
		fmt.Fprintf(b, "- **%s** %s; plan `%s`, %s, decided by %s%s; predicted %.1f ms, %s. %s%s\n",
			a.ID, a.State, a.PlanHash, markdown(a.Change()), OrNobody(a.DecidedBy),
			markdown(reasonText(a.Reason)), a.PredictedMs, a.Measured(), markdown(a.Why),
			markdown(Undone(a.Action)))
		for _, line := range a.Details() {
			fmt.Fprintf(b, "  - %s\n", markdown(line))
		}
	}
}

func (s Incident) writeCurve(b *strings.Builder) {
	b.WriteString("\n## Iteration time\n\n")
	if s.Chart == nil {
		b.WriteString(
			"The engine no longer holds the iterations around this incident: of those before the newest ones the journal keeps means, as far back as the chart goes.\n",
		)
		return
	}
	b.WriteString(s.notShown())
	fmt.Fprintf(b, "Rank %d. Medians between the marks:\n\n| Iterations | After | Median |\n|---|---|---|\n",
		s.Chart.Rank)
	for _, x := range s.Chart.Stretches() {
		fmt.Fprintf(b, "| %d to %d | %s | %.1f ms |\n", x.From, x.To, x.After, x.MedianMs)
	}
	b.WriteString("\n```\n" + s.Chart.Text() + "```\n")
	s.Chart.writeAlarms(b)
}

// notShown says where the chart begins when it does not reach back to the
// onset, and what the journal still knows of the time before.
func (s Incident) notShown() string {
	c := s.Chart
	if c.CutFrom == nil {
		return ""
	}
	text := fmt.Sprintf("**The incident is longer than this chart.** It began at iteration %d; the engine holds the newest iterations only, as far as they follow one another, so the chart begins at iteration %d. "+
		"The journal holds of the %d iterations before: healthy %.1f ms, slow %.1f ms from iteration %d",
		s.OnsetIteration, c.FirstIteration, c.FirstIteration-s.OnsetIteration, s.HealthyMs,
		s.SlowMs, s.OnsetIteration)
	for _, a := range s.Actions {
		if a.AppliedIteration >= s.OnsetIteration &&
			a.AppliedIteration < c.FirstIteration &&
			a.MeasuredMs > 0 {
			text += fmt.Sprintf("; %s in force from iteration %d, %.1f ms measured",
				a.Rung, a.AppliedIteration, a.MeasuredMs)
		}
	}
	return text + ".\n\n"
}

func (s Incident) writeTimeline(b *strings.Builder) {
	b.WriteString("\n## Timeline\n\n")
	if len(s.Timeline) == 0 {
		b.WriteString(
			"The engine no longer holds lines about this incident; the journal does: `falcon journal show`.\n",
		)
		return
	}
	b.WriteString(
		"Each line is a record of the journal; `falcon journal verify` checks the chain.\n\n| When | Iteration | Kind | What | Record | Hash |\n|---|---|---|---|---|---|\n",
	)
	for _, l := range s.Timeline {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %d | `%s` |\n",
			l.At, phrase.Iteration(l.Iteration), markdown(l.Kind), markdown(l.Text), l.Record,
			shortHash(l.Hash))
	}
}

// shortHash is the beginning of a hash; the JSON holds it whole.
func shortHash(hash string) string {
	return hash[:min(len(hash), 16)]
}

func reasonText(reason string) string {
	if reason == "" {
		return ""
	}
	return fmt.Sprintf(" (%q)", reason)
}

// Undone is why an action was reverted, or why the job keeps it with its fault gone, or "".
func Undone(a falcon.Action) string {
	what := "; reverted: "
	if a.State == falcon.ActionRetained {
		what = "; retained: "
	}
	return phrase.Prefixed(what, a.RevertReason)
}

// ForOrAgainst is the word for a piece of evidence.
func ForOrAgainst(against bool) string {
	if against {
		return "against"
	}
	return "for"
}

// OrNobody names who decided.
func OrNobody(name string) string {
	return cmp.Or(name, "nobody")
}

// markdown keeps remote text from becoming markup.
func markdown(s string) string {
	return strings.NewReplacer(
		"<",
		"&lt;",
		"|",
		"\\|",
		"*",
		"\\*",
		"`",
		"'",
		"[",
		"\\[",
		"_",
		"\\_",
	).Replace(s)
}
