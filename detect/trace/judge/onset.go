package judge

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/bocd"
	"github.com/failslow/falcon/detect/cause"
	"github.com/failslow/falcon/detect/trace"
)

// weightOnset is the weight of a worker that becomes slower than its own past in the
// middle of the trace.
const weightOnset = 0.50

// findTurned finds workers that become slower in the middle of the trace, whose
// medians over all steps may be like their peers'. Those that stay slow are named,
// those that recovered are listed.
func findTurned(t trace.Timeline) (falcon.Verdict, bool) {
	v := falcon.Verdict{Cause: falcon.CauseUnknown}
	watch := bocd.NewWorkers(bocd.DefaultTrackerConfig())
	for step := range t.Steps {
		for _, w := range t.Workers {
			if w.ComputeMs[step] > 0 && watch.Observe(w.Name, w.ComputeMs[step]) != nil {
				return v, false // an invalid number is not evidence
			}
		}
	}
	worst := 0.0
	for _, f := range watch.Flagged() {
		at := slices.IndexFunc(t.Workers, func(w trace.Worker) bool {
			return w.Name == f.Worker
		})
		if f.Onset == 0 || at < 0 {
			continue // slow from the start: found by comparison with its peers
		}
		until := "until the end"
		if f.Relief >= 0 {
			until = fmt.Sprintf("until step %d", f.Relief)
		} else {
			v.Ranks = append(v.Ranks, t.Workers[at].Rank)
			worst = max(worst, f.Ratio-1)
		}
		v.Evidence = append(v.Evidence, falcon.Evidence{
			Kind: falcon.EvidenceTiming,
			Text: fmt.Sprintf(
				"Worker %s (rank %d) computes %.2f x as long as before from step %d on, %s",
				f.Worker, t.Workers[at].Rank, f.Ratio, f.Onset, until),
		})
	}
	slices.Sort(v.Ranks)
	v.Ranks = slices.Compact(v.Ranks)
	if len(v.Ranks) > 0 {
		v.Confidence = weightOnset * noCounters
		v.Severity = cause.Severity(worst, 0, false, len(v.Ranks))
	}
	return v, len(v.Evidence) > 0
}
