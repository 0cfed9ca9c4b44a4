package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/failslow/falcon/agent/lab"
)

var labPairs = flag.Int("lab-pairs", 0, "pairs of runs with the hook on and off; 0 = skip, it measures and judges nothing")

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
// docs/benchmarks.md and asserts nothing about time.
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
				t.Logf("pair %d: rank CPU %.3f against %.3f core-ms per iteration, iteration %.3f against %.3f ms", k+1, on.RankCPUMs, off.RankCPUMs, *on.HealthyMs, *off.HealthyMs)
			}
			t.Logf("%s, hook on over off: rank CPU median %.4f (%.4f to %.4f), iteration time median %.4f (%.4f to %.4f), %d pairs",
				mode.name, middle(cpu), slices.Min(cpu), slices.Max(cpu), middle(ms), slices.Min(ms), slices.Max(ms), len(cpu))
		})
	}
}

func pairRun(t *testing.T, dir, scenario string, k int, hook string, args []string) lab.Report {
	t.Helper()
	r, out, err := playLab(t, filepath.Join(dir, fmt.Sprintf("%s-%d.json", hook, k)),
		append([]string{"--scenario", scenario, "--no-reference", "--approve", "never", "--hook", hook}, args...)...)
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
