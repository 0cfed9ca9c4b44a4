package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon/agent/lab"
)

var (
	torchKills = flag.Int("torch-kills", 0,
		"deaths of ranks at random moments of a PyTorch job, on each backend")
	torchStands = flag.Bool("torch-standby", false,
		"with -torch-kills: a standby takes each dead rank's place")
	torchPython = flag.String("torch-python", "",
		"interpreter that has torch; default $FALCON_PYTHON, .tools/torch, python3")
)

// torchBackends are the process groups over NCCL that PyTorch 2.14 has.
var torchBackends = []string{"nccl", "nccl2"}

const (
	torchBefore = 6  // iterations between two deaths
	torchCalm   = 60 // the same, where the next standby has to be there by then
	torchPerJob = 10
	torchRanks  = 8
)

// interpreterWithTorch is the first interpreter that has PyTorch; the test is skipped without one.
func interpreterWithTorch(t *testing.T) string {
	t.Helper()
	for _, p := range []string{
		*torchPython,
		os.Getenv("FALCON_PYTHON"),
		"../../.tools/torch/bin/python",
		"python3",
	} {
		if p == "" {
			continue
		}
		out, err := exec.Command(p, "-c", findTorch).Output()
		if err == nil && strings.TrimSpace(string(out)) != "" {
			return p
		}
	}
	t.Skip("no torch: set FALCON_PYTHON, or run make python-torch")
	return ""
}

// torchScenario is a job of eight replicas of which a rank dies every few iterations, at a random
// moment of one.
func torchScenario(r *rand.Rand, kills int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "layout: {tp: 1, dp: %d, pp: 1}\nnodes: 2\nmicro_batches: 4\niterations: %d\n",
		torchRanks, torchIterations(kills))
	b.WriteString(
		"policy: {mode: auto, cap: S1, owner: lab, recovery: {per_hour: 1000, in_place: 1000}}\nevents:\n",
	)
	for k := range kills {
		fmt.Fprintf(&b, "  - {at_iteration: %d, kill: rank %d, after_ms: %d}\n",
			torchGap()*(k+1), r.IntN(torchRanks), r.IntN(130))
	}
	return b.String()
}

// torchGap is how many iterations lie between two deaths.
func torchGap() int {
	if *torchStands {
		return torchCalm
	}
	return torchBefore
}

func torchIterations(kills int) int {
	return torchGap()*(kills+1) + 4
}

// A rank of a real PyTorch job dies at random moments: the others keep their processes, and every
// micro-batch counts once, as the job's own ledger shows.
func TestTorchKills(t *testing.T) {
	if *torchKills == 0 {
		t.Skip("give -torch-kills")
	}
	command := trainTorch(t, "ddp_kills.py")
	if *torchStands {
		command = asStandby(command)
	}
	var table strings.Builder
	for _, backend := range torchBackends {
		var all []lab.RecoveryReport
		for first := 0; first < *torchKills; first += torchPerJob {
			kills := min(torchPerJob, *torchKills-first)
			t.Run(fmt.Sprintf("%s-%d", backend, first), func(t *testing.T) {
				all = append(all, playTorchKills(t, command, backend, kills, first)...)
			})
		}
		killsLine(&table, backend, all)
	}
	name, title, how := "torch-kills", "Deaths of ranks", ""
	if *torchStands {
		name = "torch-standby"
		title = "Deaths of ranks, with standbys"
		how = fmt.Sprintf(
			" Each node keeps a [standby](../recovery.md#standbys), and %d iterations lie between two deaths, so that the next one can import torch; where it was not there in time, an ordinary process was started. Replaced: how often, and how long, by a standby and by an ordinary process, median and most.",
			torchCalm,
		)
	}
	text := fmt.Sprintf(
		"## %s\n\nBy `make %s KILLS=%d`. %s\n\nA DDP job of %d ranks with `falcon_torch`; a random rank is killed at a random moment, %d to a job. Right: one recovery in which the survivors keep their processes, at most one iteration runs again, and the job's ledger shows each micro-batch once. Known and down in ms, median and most.%s\n\n| Backend | Deaths | Right | Known | Down |\n|---|---|---|---|---|\n%s",
		title, name, *torchKills, machine(), torchRanks, torchPerJob, how, table.String(),
	)
	writePage(t, name, text)
	t.Log(text)
}

// asStandby is a command by which a script can wait as a standby.
func asStandby(command string) string {
	python, script, _ := strings.Cut(command, " ")
	return python + " -m falcon_torch.standby " + script
}

func recoveredRight(s lab.RecoveryReport) bool {
	return s.State == "resumed" &&
		!s.Checkpoint &&
		s.SurvivorPidsKept &&
		s.LostIterations <= 1 &&
		len(s.Replaced) == 1
}

func killsLine(b *strings.Builder, backend string, all []lab.RecoveryReport) {
	var known, down []float64
	right := 0
	for _, s := range all {
		known = append(known, s.DetectedMs)
		down = append(down, s.DownMs)
		if recoveredRight(s) {
			right++
		}
	}
	if len(all) > 0 {
		fmt.Fprintf(b, "| %s | %d | %d | %.0f, %.0f | %.0f, %.0f |\n",
			backend, len(all), right, middle(known), slices.Max(known), middle(down),
			slices.Max(down))
	}
}

func playTorchKills(t *testing.T, command, backend string, kills, seed int) []lab.RecoveryReport {
	t.Setenv("BACKEND", backend)
	t.Setenv("ITERATIONS", fmt.Sprint(torchIterations(kills)))
	dir := t.TempDir()
	scenario := filepath.Join(dir, "kills.yaml")
	if err := os.WriteFile(
		scenario,
		[]byte(torchScenario(rand.New(rand.NewPCG(1, uint64(seed))), kills)),
		0o600,
	); err != nil {
		t.Fatal(err)
	}
	report, out, err := playLab(
		t,
		filepath.Join(dir, "report.json"),
		"--scenario", scenario,
		"--train", command,
	)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return judgeKills(t, report, kills, out)
}

// judgeKills expects one right recovery for each death, and returns them.
func judgeKills(t *testing.T, report lab.Report, kills int, out string) []lab.RecoveryReport {
	t.Helper()
	if len(report.Recoveries) != kills {
		t.Errorf("%d recoveries of %d deaths\n%s", len(report.Recoveries), kills, out)
	}
	for _, s := range report.Recoveries {
		t.Logf("%s: %s, known after %.0f ms, down %.0f ms, %d iterations again, phases %v",
			s.ID, s.Fault, s.DetectedMs, s.DownMs, s.LostIterations, s.PhasesMs)
		if !recoveredRight(s) {
			t.Errorf("%s: %+v", s.ID, s)
		}
	}
	return report.Recoveries
}

// killsPolicy recovers from any number of deaths by itself, and does nothing else.
func killsPolicy() map[string]any {
	return map[string]any{
		"mode":     "auto",
		"cap":      "S1",
		"owner":    "lab",
		"recovery": map[string]any{"per_hour": 1000, "in_place": 1000},
	}
}
