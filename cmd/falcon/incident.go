package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func incidentCommand() *cobra.Command {
	var target engineTarget
	c := &cobra.Command{
		Use:     "incident",
		Short:   "List, show and export incidents",
		Example: "  falcon incident show INC-0001",
	}
	target.flags(c)
	c.AddCommand(incidentListCommand(&target), incidentShowCommand(&target), incidentExportCommand(&target))
	return c
}

func incidentListCommand(t *engineTarget) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "list",
		Short:   "List incidents, open ones first",
		Example: "  falcon incident list --json",
		Args:    takesNothing,
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := fetchIncidents(c, t, "")
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), map[string]any{"incidents": storiesOf(r)})
			}
			return listIncidents(c.OutOrStdout(), storiesOf(r))
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write one JSON document")
	return c
}

func incidentShowCommand(t *engineTarget) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one incident with its evidence and ladder",
		Example: "  falcon incident show INC-0001",
		Args:    oneID("incident", "INC-0001"),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := fetchStory(c, t, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), s)
			}
			return writeText(c.OutOrStdout(), s)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write one JSON document")
	return c
}

func incidentExportCommand(t *engineTarget) *cobra.Command {
	format := "md"
	c := &cobra.Command{
		Use:     "export ID",
		Short:   "Write one incident as Markdown or JSON",
		Example: "  falcon incident export INC-0001 --format md > INC-0001.md",
		Args:    oneID("incident", "INC-0001"),
		RunE: func(c *cobra.Command, args []string) error {
			if format != "md" && format != "json" {
				return fmt.Errorf("%w: --format %q is neither md nor json", errUsage, format)
			}
			s, err := fetchStory(c, t, args[0])
			if err != nil {
				return err
			}
			if format == "json" {
				return writeJSON(c.OutOrStdout(), s)
			}
			return writeMarkdown(c.OutOrStdout(), s)
		},
	}
	c.Flags().StringVar(&format, "format", format, "md or json")
	return c
}

// oneID takes one argument, the id of a thing such as the example.
func oneID(thing, example string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%w: give one %s, such as %s (see %s --help)", errUsage, thing, example, c.CommandPath())
		}
		return nil
	}
}

func fetchIncidents(c *cobra.Command, t *engineTarget, id string) (*falconv1.IncidentsReply, error) {
	return ask(c, t, func(ctx context.Context, cl falconv1.ConsoleClient) (*falconv1.IncidentsReply, error) {
		return cl.Incidents(ctx, &falconv1.IncidentsRequest{Id: id})
	})
}

func fetchStory(c *cobra.Command, t *engineTarget, id string) (incidentStory, error) {
	r, err := fetchIncidents(c, t, id)
	if err != nil {
		return incidentStory{}, err
	}
	stories := storiesOf(r)
	if len(stories) == 0 {
		return incidentStory{}, fmt.Errorf("no incident %s; list them with: falcon incident list", clean(id))
	}
	return stories[0], nil
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func listIncidents(w io.Writer, stories []incidentStory) error {
	if len(stories) == 0 {
		_, err := fmt.Fprintln(w, "no incidents")
		return err
	}
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tab, "ID\tSTATE\tONSET\tSLOWDOWN\tCAUSE\tWHERE\tNEWEST ACTION")
	for _, s := range stories {
		fmt.Fprintf(tab, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", s.ID, s.State, s.OnsetIteration, s.slowdown(), s.Verdict.Cause, s.where(), s.newest())
	}
	return tab.Flush()
}

func writeText(w io.Writer, s incidentStory) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s\n", s.ID, s.State, s.headline())
	fmt.Fprintf(&b, "onset iteration %d, detected at %d, relieved %s\n", s.OnsetIteration, s.DetectedIteration, iterationText(s.RelievedIteration))
	fmt.Fprintf(&b, "healthy %.1f ms, slow %.1f ms (%s)\n\nevidence\n", s.HealthyMs, s.SlowMs, s.slowdown())
	for _, e := range s.Verdict.Evidence {
		fmt.Fprintf(&b, "  %s %-7s %s\n", forOrAgainst(e.Against), e.Kind, e.Text)
	}
	b.WriteString("\ntests\n")
	for _, v := range s.Validations {
		fmt.Fprintf(&b, "  %s%s\n", headOf(v), slowOf(v))
	}
	b.WriteString("\nladder\n")
	for _, r := range s.Ladder.Rungs {
		fmt.Fprintf(&b, "  %s  overhead %.0f ms, gain %.1f ms per iteration: %s\n", r.Rung, r.OverheadMs, r.GainMs, r.Reason)
	}
	b.WriteString("\nactions\n")
	for _, a := range s.Actions {
		fmt.Fprintf(&b, "  %s  %s  plan %s, %s, decided by %s, predicted %.1f ms, measured %.1f ms: %s%s\n", a.ID, a.State, a.PlanHash, a.change(), orNobody(a.DecidedBy), a.PredictedMs, a.MeasuredMs, a.Why, undone(a.RevertReason))
		for _, line := range a.details() {
			fmt.Fprintf(&b, "      %s\n", line)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeMarkdown(w io.Writer, s incidentStory) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: %s\n\n", s.ID, s.headline())
	fmt.Fprintf(&b, "| | |\n|---|---|\n| State | %s |\n| Onset | iteration %d |\n| Detected | iteration %d |\n| Relieved | %s |\n", s.State, s.OnsetIteration, s.DetectedIteration, iterationText(s.RelievedIteration))
	fmt.Fprintf(&b, "| Healthy | %.1f ms |\n| Slow | %.1f ms (%s) |\n| Lost | %.4f GPU hours |\n| Confidence | %.2f |\n\n## Evidence\n\n", s.HealthyMs, s.SlowMs, s.slowdown(), s.Cost.LostGPUHours, s.Verdict.Confidence)
	for _, e := range s.Verdict.Evidence {
		fmt.Fprintf(&b, "- %s %s: %s\n", forOrAgainst(e.Against), e.Kind, markdown(e.Text))
	}
	b.WriteString("\n## Tests\n\n")
	for _, v := range s.Validations {
		fmt.Fprintf(&b, "- %s%s\n", markdown(headOf(v)), markdown(slowOf(v)))
	}
	b.WriteString("\n## Actions\n\n")
	for _, a := range s.Actions {
		fmt.Fprintf(&b, "- **%s** %s; plan `%s`, %s, decided by %s%s; predicted %.1f ms, measured %.1f ms. %s%s\n",
			a.ID, a.State, a.PlanHash, markdown(a.change()), orNobody(a.DecidedBy), markdown(because(a.Reason)), a.PredictedMs, a.MeasuredMs, markdown(a.Why), markdown(undone(a.RevertReason)))
		for _, line := range a.details() {
			fmt.Fprintf(&b, "  - %s\n", markdown(line))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func forOrAgainst(against bool) string {
	if against {
		return "against"
	}
	return "for"
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return fmt.Sprintf(" (%q)", reason)
}

func undone(why string) string {
	if why == "" {
		return ""
	}
	return "; reverted: " + why
}

func orNobody(name string) string {
	if name == "" {
		return "nobody"
	}
	return name
}

// markdown keeps remote text from becoming markup.
func markdown(s string) string {
	return strings.NewReplacer("<", "&lt;", "|", "\\|", "*", "\\*", "`", "'", "[", "\\[", "_", "\\_").Replace(s)
}
