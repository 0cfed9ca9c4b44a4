package plain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/phrase"
)

// Recoveries is every recovery in lines, the oldest first.
func Recoveries(list []*falconv1.Recovery) []string {
	var out []string
	for _, r := range slices.Backward(list) {
		out = append(out, r.GetId()+"  "+r.GetState())
		for _, s := range recovery(r) {
			out = append(out, "  "+s)
		}
	}
	return out
}

func recovery(r *falconv1.Recovery) []string {
	var out []string
	for _, f := range r.GetFaults() {
		out = append(out, "fault     "+phrase.Fault(f))
		for _, e := range f.GetEvidence() {
			out = append(out, "evidence  + "+e)
		}
	}
	if r.GetDecidedBy() != "" {
		out = append(out, fmt.Sprintf("decision  by %s, generation %d, attempt %d",
			r.DecidedBy, r.Generation, r.Attempts))
	}
	if len(r.GetReplaced()) > 0 {
		out = append(out, fmt.Sprintf("%-8s  %s; %d survivors",
			phrase.Replacing(falcon.RecoveryState(r.State), r.PhasesMs), phrase.Replaced(r),
			len(r.Survivors)))
	}
	if len(r.GetFenced()) > 0 {
		out = append(out, "fenced    "+strings.Join(r.Fenced, ", "))
	}
	if r.GetResumeIteration() >= 0 {
		from := fmt.Sprintf("%d shards from replicas", len(r.Moves))
		if r.GetCheckpoint() {
			from = "all from the checkpoint"
		}
		out = append(out, fmt.Sprintf("resume    at iteration %s, %s was the newest begun; %s",
			phrase.Iteration(r.ResumeIteration), phrase.Iteration(r.BeforeIteration), from))
	}
	var times []string
	for _, name := range phrase.Phases {
		if ms, ok := r.GetPhasesMs()[name]; ok {
			times = append(times, name+" "+phrase.Ms(ms))
		}
	}
	if len(times) > 0 {
		out = append(out, "times     "+strings.Join(times, ", "))
	}
	if r.GetReason() != "" {
		out = append(out, "reason    "+r.Reason)
	}
	return out
}
