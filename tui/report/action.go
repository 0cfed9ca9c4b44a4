package report

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/phrase"
)

// ActionOf is an action as commands and reports write it.
func ActionOf(p *falconv1.Action) Action {
	return actionOf(convert.ActionFromProto(received(p)))
}

func actionOf(a falcon.Action) Action {
	return Action{Action: a, Outcome: string(a.State)}
}

// Change says what an action does to the job.
func (a Action) Change() string {
	var parts []string
	if p := a.Preview; p != nil && len(p.Swaps) > 0 {
		parts = append(parts, pairsText("nodes", p.Swaps))
	}
	if p := a.Preview; p != nil && len(p.Groups) > 0 {
		parts = append(parts, pairsText("ranks on", p.Groups))
	}
	if a.Variant != "" {
		parts = append(parts, string(a.Variant))
	}
	if len(a.MicroBatches) > 0 || len(parts) == 0 {
		parts = append(parts, fmt.Sprintf("micro-batches %v → %v", a.Previous, a.MicroBatches))
	}
	return strings.Join(parts, ", ")
}

func pairsText[T ~string](what string, pairs [][2]T) string {
	var names []string
	for _, s := range pairs {
		names = append(names, string(s[0])+" ⇄ "+string(s[1]))
	}
	return what + " " + strings.Join(names, ", ")
}

// Measured says what came of the prediction.
func (a Action) Measured() string {
	if a.MeasuredMs <= 0 {
		return "not measured"
	}
	return fmt.Sprintf("measured %.1f ms", a.MeasuredMs)
}

// Details are the lines below an action: decision, prediction and outcome.
func (a Action) Details() []string {
	var out []string
	n := len(a.Approvals)
	if n > 1 || n == 1 && (a.State == falcon.ActionVetoed || a.DecidedBy != a.Approvals[0].By) {
		for _, v := range a.Approvals {
			out = append(out, approvalText(v))
		}
	}
	if a.DecidedUnixNs != 0 {
		at := time.Unix(0, a.DecidedUnixNs).UTC().Format(time.DateTime)
		verb := "decided"
		if a.State == falcon.ActionVetoed && len(a.Approvals) > 0 {
			verb = "withdrawn"
		}
		line := fmt.Sprintf("%s by %s from %s at %s UTC for job epoch %d",
			verb, OrNobody(a.DecidedBy), OrNobody(a.DecidedFrom), at, a.JobEpoch)
		out = append(out, line+phrase.Prefixed(": ", a.Reason))
	}
	if p := a.Preview; p != nil {
		out = append(out, previewLines(p)...)
	}
	if s := a.Swap; s != nil {
		steps := make([]string, len(s.StepMs))
		total := 0.0
		for i, ms := range s.StepMs {
			steps[i] = fmt.Sprintf("%s %.1f ms", falcon.SwapSteps[i], ms)
			total += ms
		}
		out = append(out, fmt.Sprintf("carried out in %.1f ms on the slowest rank (%s), %.1f MB moved",
			total, strings.Join(steps, ", "), s.MovedMB))
	}
	if a.Generation > 0 {
		out = append(out, fmt.Sprintf("launch %d, from iteration %d", a.Generation, a.Resume))
	}
	if len(a.Placement) > 0 {
		var devices []string
		for r, d := range a.Placement {
			devices = append(devices, fmt.Sprintf("%d on %s", r, d))
		}
		out = append(out, "ranks: "+strings.Join(devices, ", "))
	}
	if a.MeasuredMs > 0 && a.PredictedMs > 0 {
		out = append(out, fmt.Sprintf(
			"predicted %.1f ms, measured %.1f ms: the prediction was off by %.1f %%",
			a.PredictedMs, a.MeasuredMs, 100*math.Abs(a.ErrorShare),
		))
	}
	return out
}

func approvalText(v falcon.Approval) string {
	at := time.Unix(0, v.UnixNs).UTC().Format(time.DateTime)
	return fmt.Sprintf("approved by %s from %s at %s UTC", OrNobody(v.By), OrNobody(v.From), at) +
		phrase.Prefixed(": ", v.Reason)
}

func previewLines(p *falcon.Preview) []string {
	out := []string{fmt.Sprintf("foreseen: %.1f MB in about %.0f ms", p.MovedMB, p.CopyMs)}
	for _, side := range []struct {
		what  string
		links map[falcon.Dimension][]falcon.Link
	}{{"leave", p.Left}, {"join", p.Joined}} {
		for _, d := range []falcon.Dimension{falcon.DimTP, falcon.DimDP, falcon.DimPP, falcon.DimWorld} {
			if links := side.links[d]; len(links) > 0 {
				out = append(out, fmt.Sprintf("links that %s %s: %s",
					side.what, d, strings.Join(linkNames(links), ", ")))
			}
		}
	}
	if len(p.Splits) > 0 {
		out = append(out, fmt.Sprintf("best split there: %v", p.Splits))
	}
	return out
}
