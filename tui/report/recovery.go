package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/phrase"
)

// ranksMost is how many runs of ranks a report names before it only counts.
const ranksMost = 8

// RecoveryOf is a recovery as commands and reports write it.
func RecoveryOf(p *falconv1.Recovery) falcon.Recovery {
	return convert.RecoveryFromProto(received(p))
}

// Cleaned is a list of names, each cleaned.
func Cleaned[T ~string](in []string) []T {
	out := make([]T, len(in))
	for i, s := range in {
		out[i] = T(clean.String(s))
	}
	return out
}

// writeRecoveries writes the recoveries that belong to the incident.
func (s Incident) writeRecoveries(b *strings.Builder) {
	if len(s.Recoveries) == 0 {
		return
	}
	b.WriteString("\n## Recoveries\n\nRanks were lost while it lasted, or on a node that it names.\n")
	for _, r := range s.Recoveries {
		fmt.Fprintf(b, "\n### %s: %s\n\n", r.ID, markdown(lostText(r)))
		for _, line := range recoveryLines(r) {
			fmt.Fprintf(b, "- %s\n", markdown(line))
		}
		phasesTable(b, r)
	}
}

// lostText says what failed.
func lostText(r falcon.Recovery) string {
	var parts []string
	for _, f := range r.Faults {
		if f.Kind == falcon.FaultNode {
			parts = append(parts, fmt.Sprintf("node %s lost (%s)",
				f.Node, phrase.Ranks(f.Ranks, ranksMost)))
			continue
		}
		parts = append(parts, fmt.Sprintf("%s on %s (%s)",
			phrase.FaultKind(string(f.Kind)), cmp.Or(string(f.Device), string(f.Node)),
			phrase.Ranks(f.Ranks, ranksMost)))
	}
	if len(parts) == 0 {
		return "no fault reported"
	}
	return strings.Join(parts, ", ")
}

func recoveryLines(r falcon.Recovery) []string {
	out := []string{stateText(r)}
	for _, f := range r.Faults {
		for _, e := range f.Evidence {
			out = append(out, "evidence: "+e)
		}
	}
	out = append(out,
		"decided by "+
			OrNobody(r.DecidedBy)+
			phrase.Prefixed(" from ", r.DecidedFrom)+
			phrase.Prefixed(", plan ", r.PlanHash),
	)
	for _, rank := range slices.Sorted(maps.Keys(r.Replaced)) {
		out = append(out, fmt.Sprintf("%s: rank %d on %s",
			phrase.Replacing(r.State, r.PhaseMs), rank, r.Replaced[rank]))
	}
	if len(r.Fenced) > 0 {
		out = append(out, "fenced: "+strings.Join(stringsOf(r.Fenced), ", "))
	}
	switch {
	case r.Whole:
		out = append(out, "a whole restart: no process was kept")
	case len(r.Survivors) > 0:
		out = append(out, fmt.Sprintf("survivors, whose processes stayed: %d (%s)",
			len(r.Survivors), phrase.Ranks(r.Survivors, ranksMost)))
	}
	if x := r.Shrink; x != nil {
		out = append(out, fmt.Sprintf("goes on with %d of %d replicas: %s",
			len(x.Kept), x.Of, joinNumbers(x.Kept)))
	}
	return append(out, resumeLines(r)...)
}

func joinNumbers(in []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(in), "[]"), " ", ", ")
}

func stateText(r falcon.Recovery) string {
	text := string(r.State)
	if r.Generation > 0 {
		text += fmt.Sprintf(" with generation %d, attempt %d", r.Generation, r.Attempts)
	}
	switch {
	case r.StartedNs != 0 && r.EndedNs != 0:
		text += fmt.Sprintf("; began %s, took %.1f s",
			timestamp(r.StartedNs), time.Duration(r.EndedNs-r.StartedNs).Seconds())
	case r.StartedNs != 0 && r.State.Over():
		text += "; began " + timestamp(r.StartedNs)
	case r.StartedNs != 0:
		text += fmt.Sprintf("; began %s and goes on", timestamp(r.StartedNs))
	}
	return text + phrase.Prefixed(": ", r.Reason)
}

// movesMost bounds the lines about where single ranks got their state.
const movesMost = 16

func resumeLines(r falcon.Recovery) []string {
	if r.Resume < 0 {
		return []string{"no iteration to resume at was chosen"}
	}
	out := []string{fmt.Sprintf("resumed at iteration %d; %d was the newest begun before the fault",
		r.Resume, r.Before)}
	if r.Checkpoint {
		out = append(out, "all ranks went back to storage")
	}
	for i, m := range r.Moves {
		if i == movesMost {
			return append(out, fmt.Sprintf("%d more ranks restored; the JSON names them",
				len(r.Moves)-movesMost))
		}
		source := fmt.Sprintf("rank %d", m.From)
		if m.From == falcon.FromCheckpoint {
			source = "storage"
		}
		out = append(out, fmt.Sprintf("rank %d restored from %s%s",
			m.Rank, source, inBrackets(m.Why)))
	}
	return out
}

// phasesTable sets each phase's time beside what was predicted.
func phasesTable(b *strings.Builder, r falcon.Recovery) {
	if len(r.PhaseMs)+len(r.PredictMs) == 0 {
		return
	}
	b.WriteString("\n| Phase | Predicted | Actual |\n|---|---|---|\n")
	for _, p := range phrase.Phases {
		predicted, known := r.PredictMs[p]
		actual, came := r.PhaseMs[p]
		if known || came {
			fmt.Fprintf(b, "| %s | %s | %s |\n", p, msText(predicted, known), msText(actual, came))
		}
	}
}

func msText(ms float64, known bool) string {
	if !known {
		return "—"
	}
	return fmt.Sprintf("%.1f ms", ms)
}

func inBrackets(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

func stringsOf[T ~string](in []T) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = string(s)
	}
	return out
}
