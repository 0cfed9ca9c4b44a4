package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab/hollow"
	"github.com/failslow/falcon/detect/trace/judge"
)

var (
	hangCount = flag.Int("hangs", 0, "hangs of PyTorch jobs to play and to judge")
	hangSeed  = flag.Int("hangs-seed", 1, "seed of the hangs")
	hangOut   = flag.String("hangs-out", "", "keeps the dumps of the hangs in this folder")
)

// hangTruth is what hangs.py did to a job.
type hangTruth struct {
	Kind  string        `json:"kind"`
	Ranks []falcon.Rank `json:"ranks"`
	World int           `json:"world"`
}

// hangScore counts verdicts on one kind of hang.
type hangScore struct{ played, right, unsure, wrong int }

// Hangs of real PyTorch jobs: on NCCL's process group over stand-ins of the CUDA
// libraries, and on gloo. The injected rank and no other must be named.
func TestFreshHangs(t *testing.T) {
	if *hangCount == 0 {
		t.Skip("give -hangs")
	}
	env := hollowEnvironment(t)
	out := *hangOut
	if out == "" {
		out = t.TempDir()
	}
	scores := map[string]*hangScore{}
	total := hangScore{}
	for backend, count := range map[string]int{
		"nccl": *hangCount - 2**hangCount/5,
		"gloo": 2 * *hangCount / 5,
	} {
		dir := filepath.Join(out, backend)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		c := exec.Command(
			env[0],
			"testdata/torch/hangs.py",
			dir,
			fmt.Sprint(count),
			fmt.Sprint(*hangSeed),
			backend,
		)
		c.Env = append(os.Environ(), env[1:]...)
		if text, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", backend, err, text)
		}
		cases, err := filepath.Glob(filepath.Join(dir, "*", "truth.json"))
		if err != nil || len(cases) != count {
			t.Fatalf("%s: %d of %d hangs were played: %v", backend, len(cases), count, err)
		}
		for _, path := range cases {
			judgeHang(t, path, backend, scores, &total)
		}
	}
	t.Log(hangsTable(scores, total))
	if total.wrong > 0 || 25*total.right < 24*total.played {
		t.Errorf("%d of %d right, %d wrong", total.right, total.played, total.wrong)
	}
}

// hollowEnvironment is an interpreter with PyTorch, and the variables under
// which its CUDA wheel runs on stand-ins.
func hollowEnvironment(t *testing.T) []string {
	t.Helper()
	python := interpreterWithTorch(t)
	text, err := exec.Command(python, "-c", findTorch).Output()
	if err != nil {
		t.Fatal(err)
	}
	lib, err := filepath.Abs("../../bin/lib")
	if err != nil {
		t.Fatal(err)
	}
	folder, names, err := hollow.Build(
		strings.TrimSpace(string(text)),
		lib,
		t.TempDir(),
	)
	if err != nil {
		if errors.Is(err, hollow.ErrTorch) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	return []string{
		python,
		"LD_LIBRARY_PATH=" + folder + ":" + lib,
		"LD_PRELOAD=" + hollow.Preload(folder, names),
		"FALCON_LAB_HOLLOW=1",
		"PYTHONDONTWRITEBYTECODE=1",
	}
}

func judgeHang(t *testing.T, path, backend string, scores map[string]*hangScore, total *hangScore) {
	t.Helper()
	var truth hangTruth
	raw, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(raw, &truth) != nil {
		t.Fatal(path, err)
	}
	text, err := detectRun("", "trace", filepath.Dir(path), "--json")
	var r judge.TraceReport
	if err != nil || json.Unmarshal([]byte(text), &r) != nil {
		t.Fatal(path, err, text)
	}
	key := backend + " | " + strings.ReplaceAll(truth.Kind, "_", " ")
	if scores[key] == nil {
		scores[key] = &hangScore{}
	}
	for _, s := range []*hangScore{scores[key], total} {
		s.played++
		switch {
		case slices.Equal(r.Ranks, truth.Ranks):
			s.right++
		case len(r.Ranks) == 0:
			s.unsure++
		default:
			s.wrong++
		}
	}
	if !slices.Equal(r.Ranks, truth.Ranks) {
		t.Logf("%s: %v, the truth is %v", path, r.Ranks, truth.Ranks)
	}
}

func hangsTable(scores map[string]*hangScore, total hangScore) string {
	var b strings.Builder
	b.WriteString("\n| Backend | Kind | Played | Right | Unsure | Wrong |\n|---|---|---|---|---|---|\n")
	keys := make([]string, 0, len(scores))
	for k := range scores {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		s := scores[k]
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", k, s.played, s.right, s.unsure, s.wrong)
	}
	fmt.Fprintf(&b, "| all | | %d | %d | %d | %d |\n",
		total.played, total.right, total.unsure, total.wrong)
	return b.String()
}
