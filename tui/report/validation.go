package report

import (
	"fmt"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/phrase"
)

// ValidationOf is a validation as commands and reports write it. What was asked
// for is known as far as the contract carries it.
func ValidationOf(p *falconv1.Validation) falcon.Validation {
	return convert.ValidationFromProto(received(p))
}

// Head is one sentence on a validation.
func Head(v falcon.Validation) string {
	s := fmt.Sprintf("%s %s", v.ID, v.State) + phrase.Prefixed(": ", v.Reason)
	if v.PausedMs > 0 {
		s += fmt.Sprintf("; held at iteration %d for %.0f ms, quiet %.0f ms after the order",
			v.Iteration, v.PausedMs, v.QuietMs)
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
		if n := len(v.NotJudged()); n > 0 {
			return fmt.Sprintf("; %d GPUs and %d directions of links, none known to be slow, %d not judged",
				len(v.GEMM), len(v.Links), n)
		}
		return fmt.Sprintf("; %d GPUs and %d directions of links, none slow", len(v.GEMM), len(v.Links))
	}
	return s
}
