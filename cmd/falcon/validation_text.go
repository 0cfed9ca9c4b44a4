package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/tui/report"
)

// progress is one line on where a validation stands.
func progress(v falcon.Validation) string {
	s := fmt.Sprintf("%s: %s", v.ID, v.State)
	switch v.State {
	case falcon.ValidationWaiting:
		s += ", ranks run up to the boundary"
	case falcon.ValidationTesting:
		if v.Passes > 0 {
			s += fmt.Sprintf(", %d of %d passes", v.PassesDone, v.Passes)
		}
	case falcon.ValidationSurveying:
		if v.Attempts > 1 {
			s += fmt.Sprintf(", attempt %d", v.Attempts)
		}
		if v.Reason != "" { // it waits for its moment
			s += ", " + v.Reason
		}
	}
	return s
}

// writeValidation writes what came of a validation, and its results as tables, what
// was asked for first.
func writeValidation(w io.Writer, v falcon.Validation) error {
	head := ""
	if v.State == falcon.ValidationDone {
		head = report.Headline(v) + "\n"
	}
	if _, err := fmt.Fprintf(w, "%s%s\nasked for by %s: %s\n",
		head, report.Head(v), report.OrNobody(v.Ask.By), v.Ask.Why); err != nil {
		return err
	}
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	if len(v.GEMM) > 0 {
		fmt.Fprintf(tab, "\nmatrix products, side %d\nDEVICE\tRANK\tMS\tx MEDIAN\t\n", v.Ask.GEMMSide)
	}
	for _, g := range v.GEMM {
		fmt.Fprintf(tab, "%s\t%d\t%.3f\t%s\t%s\n",
			g.Device, g.Rank, g.Ms, numberOrDash("%.2f", g.Ratio),
			outcome(v, g.Reference, g.Slow, g.Unjudged, g.Err))
	}
	if len(v.Links) > 0 {
		fmt.Fprintf(tab,
			"\nlinks, messages of %d bytes\nFROM\tTO\tLINK\tCLASS\tPASS\tMS\tRATE\tUSUAL MS\tx USUAL\t\n",
			v.Ask.MessageBytes)
	}
	links := slices.Clone(v.Links)
	slices.SortStableFunc(links, func(a, b falcon.LinkResult) int {
		return referenceLast(a.Reference) - referenceLast(b.Reference)
	})
	for _, l := range links {
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%d\t%.3f\t%s\t%s\t%s\t%s\n",
			l.FromDevice, l.ToDevice, textOrDash(l.Link), l.Class, l.Pass, l.Ms,
			report.Rate(l.MBPerS()),
			numberOrDash("%.3f", l.BaseMs), numberOrDash("%.2f", l.Ratio),
			outcome(v, l.Reference, l.Slow, l.Unjudged, l.Err))
	}
	return tab.Flush()
}

func referenceLast(reference bool) int {
	if reference {
		return 1
	}
	return 0
}

// numberOrDash writes a number, or a dash where there is nothing to compare with.
func numberOrDash(format string, v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

func textOrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// outcome is one result in words; before the end nothing is judged.
func outcome(v falcon.Validation, reference, slow bool, unjudged, fault string) string {
	switch {
	case reference && !slow:
		return "reference"
	case v.State.Over() || fault != "":
		return report.Judgement(slow, unjudged, fault)
	}
	return ""
}
