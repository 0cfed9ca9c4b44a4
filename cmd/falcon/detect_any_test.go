package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/failslow/falcon/detect/autopsy"
)

func textFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// answered runs falcon detect on paths.
func answered(t *testing.T, in string, paths ...string) (autopsy.Answer, int) {
	t.Helper()
	out, err := detectRun(in, append(paths, "--json")...)
	var code exitError
	if err != nil && !errors.As(err, &code) {
		t.Fatalf("%v: %v", paths, err)
	}
	var a autopsy.Answer
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		t.Fatalf("%v: %v\n%s", paths, err, out)
	}
	return a, int(code)
}

// Every kind of file is recognized, as a file and on standard input, and the exit code says what came of it.
func TestDetectAnyFile(t *testing.T) {
	_, profile, _ := strings.Cut(detectProfileHelp, "standard input:\n")
	profile, _, _ = strings.Cut(profile, "\n\ndurations_ms")
	for name, c := range map[string]struct {
		in, input, answer string
		code              int
	}{
		"iterations": {slowRun(), "CSV", autopsy.KindSlow, exitSlow},
		"workers": {
			"step,rank,iter_time_ms,loss\n0,0,5,2\n0,1,5,2\n0,2,5.1,2\n",
			"a table by rank",
			autopsy.KindHealthy,
			0,
		},
		"profile": {profile, "a profile window", autopsy.KindSlow, exitSlow},
		"trace": {
			`[{"ph":"X","name":"forward","pid":0,"tid":0,"ts":1,"dur":5}]`,
			"trace",
			autopsy.KindUnknown,
			exitNotJudged,
		},
		"collectives": {
			`{"header":{"id":"0x1","rank":0,"n_ranks":2},"coll_perf":{"coll":"AllReduce","coll_exec_time_us":9000}}` + "\n",
			"NCCL Inspector",
			autopsy.KindUnknown,
			exitNotJudged,
		},
		"counters": {
			"DCGM_FI_DEV_SM_CLOCK{gpu=\"0\"} 1590\n",
			"dcgm-exporter",
			autopsy.KindUnknown,
			exitNotJudged,
		},
		"nothing": {"hello\nworld\n", "", autopsy.KindUnknown, exitNotJudged},
	} {
		for _, path := range []string{"-", textFile(t, "rank0.txt", c.in)} {
			a, code := answered(t, c.in, path)
			if a.Kind != c.answer ||
				code != c.code ||
				len(a.Inputs) != 1 ||
				!strings.Contains(a.Inputs[0].Kind, c.input) {
				t.Errorf("%s %s: exit %d, %+v", name, path, code, a)
			}
		}
	}
	if out, err := detectRun(""); err != nil || !strings.Contains(out, "Usage:") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := detectRun("", "other"); !errors.Is(err, errUsage) {
		t.Error(err)
	}
	if _, err := detectRun("", "./absent.log"); err == nil || !strings.Contains(err.Error(), "absent.log") {
		t.Error(err)
	}
}

// Dumps of several ranks in a folder are judged together.
func TestDetectAnyDumps(t *testing.T) {
	a, _ := answered(t, "", writeDumps(t, func(r int) string {
		return fmt.Sprintf("dump_rank%d.json", r)
	}))
	if len(a.Findings) == 0 || len(a.Inputs) < 2 {
		t.Errorf("%+v", a)
	}
}

// Every real log of package logs is answered.
func TestDetectAnyRealFile(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "detect", "trace", "logs", "testdata", "*.*"))
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		a, _ := answered(t, "", file)
		if len(a.Inputs) == 0 || !a.Inputs[0].Used && a.Inputs[0].Why == "" {
			t.Errorf("%s: %+v", file, a)
		}
	}
}

// An ambiguous file is refused with a sentence that names the flag.
func TestDetectAsks(t *testing.T) {
	wandb := "Step,\"sun-7 - train/step_time\",\"sun-7 - train/step_time__MIN\"\n0,0.5,0.5\n1,0.5,0.5\n"
	for name, c := range map[string]struct {
		in, text string
		args     []string
		usage    bool
	}{
		"unit": {wandb, "train/step_time is unknown; set --unit ms or --unit s", nil, false},
		"column": {
			"step,iter_time_ms,step_time_ms\n1,2,3\n",
			"iter_time_ms and step_time_ms, and each may be the time; choose one with --column",
			nil,
			false,
		},
		"run":    {"step,ms\n1,5\n2,5\n1,9\n", "choose one with --run 1 to 2", nil, false},
		"tokens": {"step,tokens_per_sec\n1,5\n", "set --tokens", nil, false},
		"empty":  {"", "the file is empty", nil, false},
		"bad unit": {
			wandb,
			"--unit hours is not a unit of time; use ms, s, us, ns or min",
			[]string{"--unit", "hours"},
			true,
		},
		"bad tokens": {wandb, "--tokens -5 must be positive", []string{"--tokens", "-5"}, true},
		"bad run":    {wandb, "--run -1 must be at least 1", []string{"--run", "-1"}, true},
	} {
		_, err := detectRun(c.in, append([]string{"iterations", "-"}, c.args...)...)
		if err == nil ||
			!strings.Contains(err.Error(), c.text) ||
			errors.Is(err, errUsage) != c.usage ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if !c.usage &&
			(!strings.HasPrefix(err.Error(), "standard input: ") ||
				strings.Contains(err.Error(), "trace: ")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if out, err := detectRun(
		"step,rank,iter_time\n0,0,5\n0,1,6\n",
		"iterations",
		"-",
		"--unit", "ms",
	); err != nil ||
		!strings.Contains(out, "2 ranks write to the file") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err := detectRun(wandb, "iterations", "-", "--unit", "s")
	if err != nil ||
		!strings.Contains(out, "column sun-7 - train/step_time in seconds") ||
		!strings.Contains(out, "now 500 ms: too few, a change needs at least 13") {
		t.Errorf("%v\n%s", err, out)
	}
}

// A change is reported by the file's iteration numbers.
func TestDetectTellsIterations(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var b strings.Builder
	for i := range 80 {
		s := 105.2
		if i >= 40 {
			s = 122
		}
		fmt.Fprintf(&b,
			"[default7]: iteration %8d/  115311 | consumed samples: 1 | elapsed time per iteration (s): %.2f | lm loss: 2.4E+00 |\n",
			42700+10*i, s*(1+0.003*rng.NormFloat64()))
	}
	out, err := detectRun(b.String(), "iterations", "-")
	if err != nil ||
		!strings.Contains(out, "Megatron-DeepSpeed log: column elapsed time per iteration (s) in seconds") ||
		!strings.Contains(out, "one in 10 iterations is logged, each time is the mean since the last one") ||
		!strings.Contains(out, "baseline 105.2 s, now 12") ||
		!strings.Contains(out, "onset   at iteration 43100: 105.2 s → 12") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = detectRun(b.String(), "iterations", "-", "--json")
	var doc iterationsReport
	if err != nil ||
		json.Unmarshal([]byte(out), &doc) != nil ||
		len(doc.Changes) != 1 ||
		doc.Changes[0].Index != 40 ||
		doc.Changes[0].Iteration == nil ||
		*doc.Changes[0].Iteration != 43100 ||
		doc.Unit != "s" {
		t.Errorf("%v\n%s", err, out)
	}
}

// The shared MLPerf records have the time in an unnamed column and a clock whose
// steps count samples: neither is used without a flag.
func TestDetectIterationsOnRealRecords(t *testing.T) {
	mlperf := realFile(t, "iterations/Cisco-hpf_n16-llama31_8b-result_2.csv")
	if out, err := detectRun("", "iterations", mlperf); err == nil ||
		!strings.Contains(err.Error(), "it may count samples") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err := detectRun("", "iterations", mlperf, "--column", "value", "--unit", "ms")
	if err != nil || !strings.Contains(out, "3456 iterations, baseline 461.9 ms") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = detectRun(
		"",
		"iterations",
		realFile(t, "iterations/track_1_short-2025-11-29_BatchSizeSchedule-ff0a5115.csv"),
	)
	if err != nil || !strings.Contains(out, "onset   at iteration 709: 34 ms → 59.5 ms") {
		t.Errorf("%v\n%s", err, out)
	}
}
