package main

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
)

var enteredSwaps = flag.Int("entered-swaps", 0,
	"with -torch-entered: how often the ranks of each job change places")

// Of a job whose links become slow, one after the other.
const (
	swapNodes     = 4
	swapEvery     = 70 // iterations from one slow link to the next
	swapFaultLast = 55 // of which the link is slow
	swapBandwidth = 0.1
)

// swapLinks are slow in turn. A ring of four nodes that leaves one of them out has both of the others:
// each slow link asks for another order.
var swapLinks = []string{"n0-n1", "n0-n2", "n0-n3"}

// Ranks of Megatron-LM's pretrain() and of torchtitan's Trainer change places when a link of their ring
// becomes slow, on emulated GPUs: each enters its loop again, as another rank, and what was trained is
// each number once.
func TestTorchEnteredSwaps(t *testing.T) {
	if *torchEntered == "" || *enteredSwaps == 0 {
		t.Skip("give -torch-entered and -entered-swaps: run make torch-entered-swaps")
	}
	withFrameworks(t)
	var rows strings.Builder
	for _, j := range enteredJobs() {
		if j.linkMBs == 0 {
			continue
		}
		t.Run(j.name, func(t *testing.T) { rows.WriteString(j.playSwaps(t)) })
	}
	text := strings.Join([]string{
		"## Megatron-LM and torchtitan: ranks change places",
		fmt.Sprintf("By `make torch-entered-swaps SWAPS=%d`. %s", *enteredSwaps, machine()),
		fmt.Sprintf("The same jobs with a rank on each of %d nodes, in a ring. One link after the other falls to a tenth; "+
			"policy moves the ranks (S3) so that the ring does not need it. Right: the action is kept, all ranks keep their "+
			"processes, no recovery. Each sample, or batch, was trained once, by what the ranks write. Moved: what the change of "+
			"places took of the job, in ms, median and most.", swapNodes),
		"| Job | Slow links | Right | Moved | Iteration before, ms | After |\n|---|---|---|---|---|---|\n" +
			rows.String(),
	}, "\n\n")
	t.Log(text)
	if !t.Failed() {
		writePage(t, "torch-entered-swaps", text)
	}
}

func (j enteredJob) swapScenario() lab.Scenario {
	sc := recoverScenario("entered-swaps", j.shape, 0)
	sc.Nodes = swapNodes
	sc.Iterations = swapEvery * (*enteredSwaps + 1)
	sc.MicroBatches = 4
	sc.LinkMBs = j.linkMBs
	sc.Policy = map[string]any{"mode": "auto", "cap": "S3", "owner": "lab"}
	sc.Overheads = map[falcon.Rung]float64{falcon.RungS2: 1e6, falcon.RungS3: 500}
	for k := range *enteredSwaps {
		at := int64(swapEvery*k + swapEvery/2)
		sc.Events = append(sc.Events, lab.Event{
			AtIteration:    at,
			UntilIteration: at + swapFaultLast,
			Link:           swapLinks[k%len(swapLinks)],
			Bandwidth:      swapBandwidth,
		})
	}
	return sc
}

// playSwaps plays one job and returns its row.
func (j enteredJob) playSwaps(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	sc := j.swapScenario()
	r, out := j.train(t, folder, sc)
	var moved, before, after []float64
	for _, a := range actionsOf(r) {
		t.Logf("%s: %s %s, %.0f ms, then %.0f (%.0f predicted), moved in %.0f ms",
			a.ID, a.Rung, a.Outcome, a.BeforeMs, a.MeasuredMs, a.PredictedMs, a.OverheadMs)
		if a.Rung == string(falcon.RungS3) && a.Outcome == "kept" {
			moved = append(moved, a.OverheadMs)
			before = append(before, a.BeforeMs)
			after = append(after, a.MeasuredMs)
		}
	}
	processes, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err != nil || len(processes) != enteredRanks || len(r.Recoveries) > 0 {
		t.Errorf("%d processes of %d ranks have trained, %d recoveries: %v",
			len(processes), enteredRanks, len(r.Recoveries), err)
	}
	if len(moved) != *enteredSwaps {
		t.Fatalf("%d slow links, %d moves kept\n%s", *enteredSwaps, len(moved), out)
	}
	for _, bad := range judgeEntered(readEntered(t, folder), sc.Iterations, j.numbers) {
		t.Error(bad)
	}
	return fmt.Sprintf("| %s | %d | %d | %.0f, %.0f | %.0f | %.0f |\n",
		j.name, *enteredSwaps, len(moved), middle(moved), slices.Max(moved), middle(before), middle(after))
}
