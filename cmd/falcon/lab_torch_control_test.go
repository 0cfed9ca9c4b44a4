package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/failslow/falcon/agent/lab"
	"github.com/failslow/falcon/agent/lab/hollow"
)

// needHeaders skips where the operators of emulated GPUs can't be compiled for this PyTorch.
func needHeaders(t *testing.T, libraries string) {
	t.Helper()
	folder, _, _ := strings.Cut(strings.TrimPrefix(libraries, "LD_LIBRARY_PATH="), ":")
	if why := hollow.Uncomputed(folder); why != "" {
		t.Skip(why)
	}
}

// What carries control data is computed on emulated GPUs: operators on integers, truth values and bytes give
// what they give on the CPU, in random sequences, on several streams and from several threads.
func TestTorchControlData(t *testing.T) {
	if testing.Short() {
		t.Skip("PyTorch starts")
	}
	env := hollowEnvironment(t)
	needHeaders(t, env[1])
	c := exec.Command(env[0], filepath.Join("testdata", "torch", "control.py"), "300")
	c.Env = append(os.Environ(), env[1:]...)
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "control data: ") {
		t.Fatalf("%v: %s", err, out)
	}
}

// A job with pipeline stages runs on emulated GPUs without an adapter: object collectives, shapes that stages
// send each other, and a distributed checkpoint that is written and read.
func TestTorchPipelineRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("a lab runs")
	}
	needHeaders(t, hollowEnvironment(t)[1])
	script, err := filepath.Abs("../../native/python/examples/plain_pipeline.py")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("ITERATIONS", "10")
	folder := t.TempDir()
	sc := recoverScenario("pipeline-runs", lab.Shape{TP: 1, DP: 4, PP: 2}, 0)
	sc.Nodes, sc.Iterations = 2, 10
	python, err := exec.LookPath(interpreterWithTorch(t))
	if err == nil {
		python, err = filepath.Abs(python)
	}
	if err != nil {
		t.Fatal(err)
	}
	// A line for a shell, which stays as the parent of the training process.
	command := "cd " + folder + " && " + python + " " + script + " checkpoint; exit $?"
	_, out, err := playLab(
		t,
		filepath.Join(folder, "report.json"),
		"--scenario", scenarioFile(t, sc),
		"--train", command,
	)
	if err != nil || !strings.Contains(out, "all 8 ranks ended with success") {
		t.Errorf("%v\n%s", err, out)
	}
	if parts, _ := filepath.Glob(filepath.Join(folder, "checkpoint", "*.distcp")); len(parts) == 0 {
		t.Error("no checkpoint was written")
	}
}
