package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/failslow/falcon/agent/lab"
)

var pipelineKills = flag.Int("pipeline-kills", 0,
	"deaths of stage 0 in its backward pass, in a PyTorch job with two pipeline stages")

// pipelineSchedules are played one after the other; of the second one a fifth as many deaths.
var pipelineSchedules = []struct {
	name  string
	share int
}{{"1f1b", 1}, {"interleaved", 5}}

// pipelineDeaths is who dies when, a rank of stage 0 each, as the script takes it.
func pipelineDeaths(r *rand.Rand, kills int) string {
	var out []string
	for k := range kills {
		out = append(out, fmt.Sprintf("%d:%d", torchBefore*(k+1), r.IntN(torchRanks/2)))
	}
	return strings.Join(out, ",")
}

// A rank of a pipeline's first stage dies in its last backward pass, when the last stage has all
// that it needs for its update: no stage has updated, a common step exists, and the job goes on
// in place from replicas.
func TestTorchPipelineKills(t *testing.T) {
	if testing.Short() || *pipelineKills == 0 {
		t.Skip("give -pipeline-kills")
	}
	needHeaders(t, hollowEnvironment(t)[1])
	command := trainTorch(t, "pipeline_kills.py")
	var table strings.Builder
	for _, schedule := range pipelineSchedules {
		var all []lab.RecoveryReport
		total := *pipelineKills / schedule.share
		for first := 0; first < total; first += torchPerJob {
			kills := min(torchPerJob, total-first)
			t.Run(fmt.Sprintf("%s-%d", schedule.name, first), func(t *testing.T) {
				t.Setenv("SCHEDULE", schedule.name)
				all = append(all, playPipelineKills(t, command, kills, first)...)
			})
		}
		killsLine(&table, schedule.name, all)
	}
	text := fmt.Sprintf(
		"## Deaths in a pipeline\n\nBy `make pipeline-kills PIPELINE_KILLS=%d`. %s\n\nTwo stages of `torch.distributed.pipelining`, each with %d replicas, with `falcon_torch.run`; a rank of stage 0 ends in the backward pass of its last micro-batch, when stage 1 has all gradients, %d to a job. Right: one recovery in place from replicas, none from storage, the survivors keep their processes, at most one iteration runs again, and the job's ledger shows each micro-batch once. Known and down in ms, median and most.\n\n| Schedule | Deaths | Right | Known | Down |\n|---|---|---|---|---|\n%s",
		*pipelineKills, machine(), torchRanks/2, torchPerJob, table.String(),
	)
	writePage(t, "pipeline-kills", text)
	t.Log(text)
}

func playPipelineKills(t *testing.T, command string, kills, seed int) []lab.RecoveryReport {
	t.Helper()
	iterations := torchIterations(kills)
	t.Setenv("ITERATIONS", fmt.Sprint(iterations))
	t.Setenv("DEATHS", pipelineDeaths(rand.New(rand.NewPCG(2, uint64(seed))), kills))
	sc := recoverScenario(
		"pipeline-kills",
		lab.Shape{TP: 1, DP: torchRanks / 2, PP: 2},
		0,
	)
	sc.Nodes, sc.Iterations = 2, iterations
	sc.Policy = killsPolicy()
	report, out, err := playLab(
		t,
		filepath.Join(t.TempDir(), "report.json"),
		"--no-reference",
		"--scenario", scenarioFile(t, sc),
		"--train", command,
	)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return judgeKills(t, report, kills, out)
}
