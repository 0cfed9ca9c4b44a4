package main

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// validationOf is a validation as commands write it: every string cleaned, and
// no number that JSON can't hold. What was asked for is told as far as the
// contract carries it.
func validationOf(v *falconv1.Validation) falcon.Validation {
	out := falcon.Validation{
		ID: clean(v.GetId()), State: falcon.ValidationState(clean(v.GetState())), Reason: clean(v.GetReason()),
		Ask: falcon.ValidationAsk{
			Incident: clean(v.GetIncident()), By: clean(v.GetBy()), Why: clean(v.GetWhy()),
			GEMMSide: int(v.GetGemmN()), MessageBytes: v.GetMessageBytes(),
		},
		Iteration: v.GetIteration(), Passes: int(v.GetPasses()), ExtraPasses: int(v.GetExtraPasses()), PassesDone: int(v.GetPassesDone()),
		PausedMs: held(v.GetPausedMs()), QuietMs: held(v.GetQuietMs()), Attempts: int(v.GetAttempts()), Emulated: v.GetEmulated(), AtNs: v.GetAtUnixNs(),
	}
	for _, g := range v.GetGemm() {
		out.GEMM = append(out.GEMM, falcon.GEMMResult{
			Rank: falcon.Rank(g.GetRank()), Device: falcon.Device(clean(g.GetDevice())), Ms: held(g.GetMs()),
			MedianMs: held(g.GetMedianMs()), Ratio: held(g.GetRatio()), Slow: g.GetSlow(), Err: clean(g.GetErr()),
		})
	}
	for _, l := range v.GetLinks() {
		out.Links = append(out.Links, falcon.LinkResult{
			From: falcon.Rank(l.GetFrom()), To: falcon.Rank(l.GetTo()), FromDevice: falcon.Device(clean(l.GetFromDevice())),
			ToDevice: falcon.Device(clean(l.GetToDevice())), Link: clean(l.GetLink()), Class: falcon.LinkClass(clean(l.GetClass())),
			Pass: int(l.GetPass()), Bytes: l.GetBytes(), Ms: held(l.GetMs()), BaseMs: held(l.GetBaseMs()), Basis: clean(l.GetBasis()),
			Ratio: held(l.GetRatio()), Slow: l.GetSlow(), Err: clean(l.GetErr()),
		})
	}
	return out
}

// held is a number that a document can hold; 0 for what is none.
func held(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

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

// headOf is one sentence on a validation.
func headOf(v falcon.Validation) string {
	s := fmt.Sprintf("%s %s", v.ID, v.State)
	if v.Reason != "" {
		s += ": " + v.Reason
	}
	if v.PausedMs > 0 {
		s += fmt.Sprintf("; held at iteration %d for %.0f ms, quiet %.0f ms after the order", v.Iteration, v.PausedMs, v.QuietMs)
	}
	if v.Passes > 0 {
		s += fmt.Sprintf("; %d of %d passes", v.PassesDone, v.Passes)
	}
	if v.ExtraPasses > 0 {
		s += fmt.Sprintf(" (%d because pairs would share a NIC)", v.ExtraPasses)
	}
	if v.Emulated {
		s += "; the silicon is emulated"
	}
	return s
}

// writeValidation writes a validation's results as tables.
func writeValidation(w io.Writer, v falcon.Validation) error {
	if _, err := fmt.Fprintf(w, "%s\nasked for by %s: %s\n", headOf(v), orNobody(v.Ask.By), v.Ask.Why); err != nil {
		return err
	}
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	if len(v.GEMM) > 0 {
		fmt.Fprintf(tab, "\nmatrix products, side %d\nDEVICE\tRANK\tMS\tx MEDIAN\t\n", v.Ask.GEMMSide)
	}
	for _, g := range v.GEMM {
		fmt.Fprintf(tab, "%s\t%d\t%.3f\t%s\t%s\n", g.Device, g.Rank, g.Ms, known("%.2f", g.Ratio), outcome(g.Slow, g.Err))
	}
	if len(v.Links) > 0 {
		fmt.Fprintf(tab, "\nlinks, %d bytes\nFROM\tTO\tLINK\tCLASS\tPASS\tMS\tUSUAL MS\tx USUAL\t\n", v.Ask.MessageBytes)
	}
	for _, l := range v.Links {
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%d\t%.3f\t%s\t%s\t%s\n", l.FromDevice, l.ToDevice, orDash(l.Link), l.Class, l.Pass, l.Ms,
			known("%.3f", l.BaseMs), known("%.2f", l.Ratio), outcome(l.Slow, l.Err))
	}
	return tab.Flush()
}

// known writes a number, or a dash where there is nothing to compare with.
func known(format string, v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

func orDash(s string) string {
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

// slowOf sums up what a validation found slow.
func slowOf(v falcon.Validation) string {
	s := ""
	for _, g := range v.GEMM {
		if g.Slow {
			s += fmt.Sprintf("; %s (rank %d) %.2f x the median", g.Device, g.Rank, g.Ratio)
		}
	}
	for _, l := range v.Links {
		if l.Slow {
			s += fmt.Sprintf("; %s to %s %.2f x the usual", l.FromDevice, l.ToDevice, l.Ratio)
		}
	}
	if s == "" && v.State == falcon.ValidationDone {
		return fmt.Sprintf("; %d GPUs and %d directions of links, none slow", len(v.GEMM), len(v.Links))
	}
	return s
}
