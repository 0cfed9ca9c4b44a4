package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/report"
)

// recoveryReport is a recovery as commands write it. Every string in it has been
// cleaned.
type recoveryReport struct {
	falcon.Recovery
	Stages []recoveryStage `json:"ranks,omitempty"` // while it goes on
}

// recoveryStage is where one rank's process stands.
type recoveryStage struct {
	Rank   int32         `json:"rank"`
	Device falcon.Device `json:"device"`
	Stage  string        `json:"stage"`
	Pid    int32         `json:"pid"`
	Steps  []int64       `json:"steps,omitempty"`
}

func recoveryReportOf(v *falconv1.Recovery) recoveryReport {
	out := recoveryReport{Recovery: report.RecoveryOf(v)}
	for _, r := range v.GetRanks() {
		out.Stages = append(out.Stages, recoveryStage{
			r.GetRank(),
			falcon.Device(clean.String(r.GetDevice())),
			clean.String(r.GetStage()),
			r.GetPid(),
			r.GetSteps(),
		})
	}
	return out
}

// elapsedText is from the first sign to the end, or to now.
func (s recoveryReport) elapsedText() string {
	if s.EndedNs == 0 {
		return "goes on"
	}
	return time.Duration(s.EndedNs - s.StartedNs).Round(time.Millisecond).String()
}

func writeRecovery(w io.Writer, s recoveryReport) error {
	if err := writeRecoveryLine(w, s.Recovery); err != nil {
		return err
	}
	for _, f := range s.Faults {
		fmt.Fprintf(w, "\nfault: %s on %s, %s\n",
			f.Kind, textOrNone(string(f.Node)), rankNames(f.Ranks))
		for _, e := range f.Evidence {
			fmt.Fprintf(w, "  %s\n", e)
		}
	}
	fmt.Fprintln(w)
	if len(s.Fenced) > 0 {
		fmt.Fprintf(w, "fenced: %s\n", joinNodes(s.Fenced))
	}
	for _, r := range slices.Sorted(maps.Keys(s.Replaced)) {
		fmt.Fprintf(w, "rank %d is replaced on %s\n", r, s.Replaced[r])
	}
	if s.Whole {
		fmt.Fprintln(w, "a whole restart: no process is kept")
	} else {
		fmt.Fprintf(w, "%d survivors keep their processes\n", len(s.Survivors))
	}
	s.writeSteps(w)
	return s.writePhases(w)
}

func (s recoveryReport) writeSteps(w io.Writer) {
	if s.Resume >= 0 {
		fmt.Fprintf(w, "goes on at iteration %d; %d was the newest begun\n", s.Resume, s.Before)
	}
	if s.Checkpoint {
		fmt.Fprintln(w, "all ranks go back to storage")
	}
	for _, m := range s.Moves {
		from := fmt.Sprintf("rank %d", m.From)
		if m.From == falcon.FromCheckpoint {
			from = "storage"
		}
		fmt.Fprintf(w, "rank %d restores from %s%s\n", m.Rank, from, inBrackets(m.Why))
	}
	for _, r := range s.Stages {
		fmt.Fprintf(w, "rank %d on %s (process %d): %s\n", r.Rank, r.Device, r.Pid, r.Stage)
	}
}

func (s recoveryReport) writePhases(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\nPHASE\tTOOK\tPREDICTED")
	for _, p := range phrase.Phases {
		took, has := s.PhaseMs[p]
		predicted, known := s.PredictMs[p]
		if !has && !known {
			continue
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", p, msText(took, has), msText(predicted, known))
	}
	return tw.Flush()
}

func msText(ms float64, known bool) string {
	if !known {
		return ""
	}
	return fmt.Sprintf("%.1f ms", ms)
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

func textOrNone(s string) string {
	if s == "" {
		return "no node"
	}
	return s
}

func joinNodes(nodes []falcon.Node) string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = string(n)
	}
	return strings.Join(out, ", ")
}

func rankNames(ranks []falcon.Rank) string {
	const most = 8
	var out []string
	for _, r := range ranks[:min(len(ranks), most)] {
		out = append(out, fmt.Sprint(int(r)))
	}
	text := "ranks " + strings.Join(out, ", ")
	if len(ranks) > most {
		text += fmt.Sprintf(" and %d more", len(ranks)-most)
	}
	if len(ranks) == 0 {
		return "no rank"
	}
	return text
}
