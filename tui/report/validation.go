package report

import (
	"fmt"
	"math"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
)

// ValidationOf is a validation as commands write it: every string cleaned, and
// no number that JSON can't hold. What was asked for is told as far as the
// contract carries it.
func ValidationOf(v *falconv1.Validation) falcon.Validation {
	out := falcon.Validation{
		ID: clean.String(v.GetId()), State: falcon.ValidationState(clean.String(v.GetState())), Reason: clean.String(v.GetReason()),
		Ask: falcon.ValidationAsk{
			Incident: clean.String(v.GetIncident()), By: clean.String(v.GetBy()), Why: clean.String(v.GetWhy()),
			GEMMSide: int(v.GetGemmN()), MessageBytes: v.GetMessageBytes(),
		},
		Iteration: v.GetIteration(), Passes: int(v.GetPasses()), ExtraPasses: int(v.GetExtraPasses()), PassesDone: int(v.GetPassesDone()),
		PausedMs: held(v.GetPausedMs()), QuietMs: held(v.GetQuietMs()), Attempts: int(v.GetAttempts()), Emulated: v.GetEmulated(), AtNs: v.GetAtUnixNs(),
	}
	for _, g := range v.GetGemm() {
		out.GEMM = append(out.GEMM, falcon.GEMMResult{
			Rank: falcon.Rank(g.GetRank()), Device: falcon.Device(clean.String(g.GetDevice())), Ms: held(g.GetMs()),
			MedianMs: held(g.GetMedianMs()), Ratio: held(g.GetRatio()), Slow: g.GetSlow(), Err: clean.String(g.GetErr()),
		})
	}
	for _, l := range v.GetLinks() {
		out.Links = append(out.Links, falcon.LinkResult{
			From: falcon.Rank(l.GetFrom()), To: falcon.Rank(l.GetTo()), FromDevice: falcon.Device(clean.String(l.GetFromDevice())),
			ToDevice: falcon.Device(clean.String(l.GetToDevice())), Link: clean.String(l.GetLink()), Class: falcon.LinkClass(clean.String(l.GetClass())),
			Pass: int(l.GetPass()), Bytes: l.GetBytes(), Ms: held(l.GetMs()), BaseMs: held(l.GetBaseMs()), Basis: clean.String(l.GetBasis()),
			Ratio: held(l.GetRatio()), Slow: l.GetSlow(), Err: clean.String(l.GetErr()),
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

// Head is one sentence on a validation.
func Head(v falcon.Validation) string {
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

// Slow sums up what a validation found slow.
func Slow(v falcon.Validation) string {
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
