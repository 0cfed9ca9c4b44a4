package main

import (
	"fmt"
	"io"
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

// writeValidation writes a validation's results as tables.
func writeValidation(w io.Writer, v falcon.Validation) error {
	if _, err := fmt.Fprintf(w, "%s\nasked for by %s: %s\n", report.Head(v), report.OrNobody(v.Ask.By), v.Ask.Why); err != nil {
		return err
	}
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	if len(v.GEMM) > 0 {
		fmt.Fprintf(tab, "\nmatrix products, side %d\nDEVICE\tRANK\tMS\tx MEDIAN\t\n", v.Ask.GEMMSide)
	}
	for _, g := range v.GEMM {
		fmt.Fprintf(tab, "%s\t%d\t%.3f\t%s\t%s\n", g.Device, g.Rank, g.Ms, numberOrDash("%.2f", g.Ratio), outcome(g.Slow, g.Err))
	}
	if len(v.Links) > 0 {
		fmt.Fprintf(tab, "\nlinks, %d bytes\nFROM\tTO\tLINK\tCLASS\tPASS\tMS\tUSUAL MS\tx USUAL\t\n", v.Ask.MessageBytes)
	}
	for _, l := range v.Links {
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%d\t%.3f\t%s\t%s\t%s\n", l.FromDevice, l.ToDevice, textOrDash(l.Link), l.Class, l.Pass, l.Ms,
			numberOrDash("%.3f", l.BaseMs), numberOrDash("%.2f", l.Ratio), outcome(l.Slow, l.Err))
	}
	return tab.Flush()
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

func outcome(slow bool, fault string) string {
	switch {
	case fault != "":
		return "failed: " + fault
	case slow:
		return "slow"
	}
	return ""
}
