package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/report"
)

func incidentCommand() *cobra.Command {
	var target engineTarget
	c := &cobra.Command{
		Use:     "incident",
		Short:   "List, show, export and look after incidents",
		Example: "  falcon incident show INC-0001\n  falcon incident snooze INC-0001 --for 2h --note \"a spare comes at 4\"\n  falcon incident handover lee --note \"watch n1\"",
	}
	target.declareFlags(c)
	c.AddCommand(incidentListCommand(&target), incidentShowCommand(&target), incidentExportCommand(&target))
	c.AddCommand(triageCommands(&target)...)
	completeIDsBelow(c, &target, incidentIDs)
	return c
}

func incidentListCommand(t *engineTarget) *cobra.Command {
	return documentCommand(&cobra.Command{
		Use:     "list",
		Short:   "List incidents, open ones first",
		Example: "  falcon incident list --json",
		Args:    takesNothing,
	}, func(c *cobra.Command, _ []string) (incidentList, error) {
		r, err := fetchIncidents(c, t, "")
		return incidentList{report.Of(r)}, err
	}, listIncidents)
}

type incidentList struct {
	Incidents []report.Incident `json:"incidents"`
}

func incidentShowCommand(t *engineTarget) *cobra.Command {
	return documentCommand(&cobra.Command{
		Use:     "show ID",
		Short:   "Show one incident with its evidence and ladder",
		Example: "  falcon incident show INC-0001",
		Args:    exactlyOneID("incident", "INC-0001"),
	}, func(c *cobra.Command, args []string) (report.Incident, error) {
		return fetchIncident(c, t, args[0])
	}, writeText)
}

func incidentExportCommand(t *engineTarget) *cobra.Command {
	format := "md"
	c := &cobra.Command{
		Use:     "export ID",
		Short:   "Write one incident as Markdown, JSON or a page",
		Example: "  falcon incident export INC-0001 --format md > INC-0001.md\n  falcon incident export INC-0001 --format html > INC-0001.html",
		Args:    exactlyOneID("incident", "INC-0001"),
		RunE: func(c *cobra.Command, args []string) error {
			if format != "md" && format != "json" && format != "html" {
				return fmt.Errorf("%w: --format %q is neither md, json nor html", errUsage, format)
			}
			s, err := fetchIncident(c, t, args[0])
			if err != nil {
				return err
			}
			switch format {
			case "json":
				return writeJSON(c.OutOrStdout(), s)
			case "html":
				return renderAutopsy(c.OutOrStdout(), incidentAnswer(s), incidentFacts(s))
			}
			return writeString(c.OutOrStdout(), s.Markdown())
		},
	}
	c.Flags().StringVar(&format, "format", format, "md, json or html: the page of falcon detect --html")
	return c
}

func fetchIncidents(c *cobra.Command, t *engineTarget, id string) (*falconv1.IncidentsReply, error) {
	return ask(c, t, func(ctx context.Context, cl falconv1.ConsoleClient) (*falconv1.IncidentsReply, error) {
		return cl.Incidents(ctx, &falconv1.IncidentsRequest{Id: id})
	})
}

func fetchIncident(c *cobra.Command, t *engineTarget, id string) (report.Incident, error) {
	r, err := fetchIncidents(c, t, id)
	if err != nil {
		return report.Incident{}, err
	}
	incidents := report.Of(r)
	if len(incidents) == 0 {
		return report.Incident{}, fmt.Errorf("no incident %s; list them with: falcon incident list",
			clean.String(id))
	}
	return incidents[0], nil
}

func listIncidents(w io.Writer, list incidentList) error {
	if len(list.Incidents) == 0 {
		return writeString(w, "no incidents\n")
	}
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tab, "ID\tSTATE\tONSET\tSINCE\tSLOWDOWN\tCAUSE\tWHERE\tNEWEST ACTION\tLOOKED AFTER")
	for _, s := range list.Incidents {
		fmt.Fprintf(tab, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n",
			s.ID, s.State, s.OnsetIteration, s.Since(), s.Slowdown(), s.Verdict.Cause, s.Where(),
			s.Newest(), s.Triage.Text())
	}
	return tab.Flush()
}

func writeText(w io.Writer, s report.Incident) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s\n", s.ID, s.State, s.Headline())
	fmt.Fprintf(&b, "onset %s, detected at %d, relieved %s\n",
		s.Onset(), s.DetectedIteration, report.IterationText(s.RelievedIteration))
	fmt.Fprintf(&b, "healthy %.1f ms, slow %.1f ms (%s)\n", s.HealthyMs, s.SlowMs, s.Slowdown())
	writeTriage(&b, s.Triage)
	b.WriteString("\nevidence\n")
	for _, e := range s.Verdict.Evidence {
		fmt.Fprintf(&b, "  %s %-7s %s\n", report.ForOrAgainst(e.Against), e.Kind, e.Text)
	}
	b.WriteString("\ntests\n")
	if len(s.Validations) == 0 {
		b.WriteString("  none\n")
	}
	for _, v := range s.Validations {
		fmt.Fprintf(&b, "  %s%s\n", report.Head(v), report.Slow(v))
	}
	b.WriteString("\nladder\n")
	for _, r := range s.Ladder.Rungs {
		fmt.Fprintf(&b, "  %-12s overhead %.0f ms, gain %.1f ms per iteration: %s\n",
			strings.TrimSpace(string(r.Rung)+" "+string(r.Variant)), r.OverheadMs, r.GainMs,
			r.Reason)
	}
	b.WriteString("\nactions\n")
	for _, a := range s.Actions {
		fmt.Fprintf(&b, "  %s  %s  plan %s, %s, decided by %s, predicted %.1f ms, %s: %s%s\n",
			a.ID, a.State, a.PlanHash, a.Change(), report.OrNobody(a.DecidedBy), a.PredictedMs,
			a.Measured(), a.Why, report.Undone(a.Action))
		for _, line := range a.Details() {
			fmt.Fprintf(&b, "      %s\n", line)
		}
	}
	return writeString(w, b.String())
}
