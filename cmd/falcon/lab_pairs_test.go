package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon/agent/lab"
)

var labPairs = flag.Int("lab-pairs", 0,
	"pairs of runs with the hook on and off; 0 = skip, it measures and judges nothing")

// calmScenario has no faults: only the hook differs within a pair.
const calmScenario = `about: No faults, to measure the hook's cost.
layout: {tp: 1, dp: 4, pp: 2}
nodes: 4
micro_batches: 8
iterations: %d
`

// TestHookPairs measures what the hook costs the job: CPU of all rank
// processes per iteration and the iteration time, hook on against off, in
// alternating pairs, paced and unpaced. It prints figures for
// docs/results/benchmarks.md and asserts nothing about time. With the hook on, agents
// and engine have work to do on the same cores: TestHookAlone takes them away.
func TestHookPairs(t *testing.T) {
	if *labPairs == 0 {
		t.Skip("a measurement: run with -lab-pairs N")
	}
	for _, mode := range []struct {
		name       string
		iterations int
		args       []string
	}{{"paced", 150, nil}, {"unpaced", 2000, []string{"--unpaced"}}} {
		t.Run(mode.name, func(t *testing.T) {
			dir := t.TempDir()
			scenario := filepath.Join(dir, "calm.yaml")
			writeFile(t, scenario, fmt.Sprintf(calmScenario, mode.iterations))
			var cpu, ms []float64
			for k := range *labPairs {
				on := pairRun(t, dir, scenario, k, "on", mode.args)
				off := pairRun(t, dir, scenario, k, "off", mode.args)
				cpu = append(cpu, on.RankCPUMs/off.RankCPUMs)
				ms = append(ms, *on.HealthyMs / *off.HealthyMs)
				t.Logf(
					"pair %d: rank CPU %.3f against %.3f core-ms per iteration, iteration %.3f against %.3f ms",
					k+1, on.RankCPUMs, off.RankCPUMs, *on.HealthyMs, *off.HealthyMs,
				)
			}
			t.Logf(
				"%s, hook on over off: rank CPU median %.4f (%.4f to %.4f), iteration time median %.4f (%.4f to %.4f), %d pairs",
				mode.name, middle(cpu), slices.Min(cpu), slices.Max(cpu), middle(ms),
				slices.Min(ms), slices.Max(ms), len(cpu),
			)
		})
	}
}

// TestHookAlone measures the hook without agents and engine beside it, which
// share the two cores of a small machine with the ranks: the same unpaced job
// preloaded and not, in alternating pairs, by rank 0's own CPU clock.
func TestHookAlone(t *testing.T) {
	if *labPairs == 0 {
		t.Skip("a measurement: run with -lab-pairs N")
	}
	trainer := filepath.Join(filepath.Dir(binFalcon(t)), "falcon-trainer")
	hook := filepath.Join(filepath.Dir(trainer), "lib", "libfalcon_hook.so")
	shm, err := os.MkdirTemp("/dev/shm", "falcon-pairs")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(shm)
	var ratios []float64
	for k := range 20 * *labPairs { // short runs, many pairs: the noise is between runs
		order := []string{"LD_PRELOAD=" + hook, "LD_PRELOAD="}
		if k%2 == 1 {
			slices.Reverse(order) // the second run of a pair must not always be the same
		}
		used := map[string]float64{}
		for _, preload := range order {
			used[preload] = rankCPU(t, trainer, preload, "FALCON_SHM_DIR="+shm)
		}
		ratios = append(ratios, used["LD_PRELOAD="+hook]/used["LD_PRELOAD="])
	}
	t.Logf(
		"unpaced, hook alone, on over off: rank 0's CPU per iteration median %.4f (%.4f to %.4f), %d pairs",
		middle(ratios), slices.Min(ratios), slices.Max(ratios), len(ratios),
	)
}

// rankCPU is rank 0's CPU per iteration in ms, without the first iterations.
func rankCPU(t *testing.T, trainer string, env ...string) float64 {
	t.Helper()
	cmd := exec.Command(
		trainer,
		"local",
		"--tp", "1",
		"--dp", "4",
		"--pp", "2",
		"--micro-batches", "8",
		"--iterations", "300",
		"--seed", "1",
	)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var cpu []float64
	for _, l := range strings.Split(string(out), "\n") {
		var v struct {
			Iteration *int64  `json:"iteration"`
			CPUMs     float64 `json:"cpu_ms"`
		}
		if json.Unmarshal([]byte(l), &v) == nil && v.Iteration != nil {
			cpu = append(cpu, v.CPUMs)
		}
	}
	const skip = 10
	if len(cpu) < 2*skip {
		t.Fatalf("%d iterations in the trainer's output", len(cpu))
	}
	return (cpu[len(cpu)-1] - cpu[skip]) / float64(len(cpu)-1-skip)
}

func pairRun(t *testing.T, dir, scenario string, k int, hook string, args []string) lab.Report {
	t.Helper()
	r, out, err := playLab(
		t,
		filepath.Join(dir, fmt.Sprintf("%s-%d.json", hook, k)),
		append(
			[]string{"--scenario", scenario, "--no-reference", "--approve", "never", "--hook", hook},
			args...,
		)...,
	)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return r
}

func middle(v []float64) float64 {
	w := slices.Clone(v)
	slices.Sort(w)
	return (w[(len(w)-1)/2] + w[len(w)/2]) / 2
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
