package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// detectRun runs falcon detect with the given standard input.
func detectRun(stdin string, args ...string) (string, error) {
	root := newRoot()
	var out bytes.Buffer
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"detect"}, args...))
	err := root.Execute()
	return out.String(), err
}

// slowRun is a CSV whose level rises by 80 % at row 40 and falls at row 100.
func slowRun() string {
	rng := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	b.WriteString("step,ms\n")
	for i := range 140 {
		ms := 200.0
		if i >= 40 && i < 100 {
			ms = 360
		}
		fmt.Fprintf(&b, "%d,%.3f\n", i, ms*(1+0.01*rng.NormFloat64()))
	}
	return b.String()
}

func TestDetectIterationsJSON(t *testing.T) {
	out, err := detectRun(slowRun(), "iterations", "-", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var doc iterationsReport
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Points != 140 ||
		len(doc.Changes) != 2 ||
		!strings.Contains(out, `"jitters": [`) {
		t.Fatalf("%s", out)
	}
	on, off := doc.Changes[0], doc.Changes[1]
	if on.Kind != "onset" ||
		on.Index != 40 ||
		on.DetectedAt > 45 ||
		on.Change < 0.75 ||
		on.Change > 0.85 {
		t.Errorf("%+v", on)
	}
	if off.Kind != "relief" || off.Index != 100 || off.DetectedAt > 105 {
		t.Errorf("%+v", off)
	}
}

func TestDetectIterationsText(t *testing.T) {
	out, err := detectRun(slowRun(), "iterations", "-")
	if err != nil ||
		!strings.Contains(out, "onset   at iteration 40:") ||
		!strings.Contains(out, "relief  at iteration 100:") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDetectIterationsPosterior writes a posterior that sums to one after each
// observation.
func TestDetectIterationsPosterior(t *testing.T) {
	path := filepath.Join(t.TempDir(), "posterior.csv")
	in := "x\n0.5\n-0.3\n1.1\n9\n8.7\n9.2\n"
	if _, err := detectRun(
		in,
		"iterations",
		"-",
		"--raw",
		"--prior", "0,1,1,1",
		"--hazard", "100",
		"--posterior", path,
	); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(raw)).ReadAll()
	if err != nil || strings.Join(rows[0], ",") != "t,run_length,probability" {
		t.Fatalf("%v %v", err, rows)
	}
	sums := make(map[string]float64)
	for _, row := range rows[1:] {
		var p float64
		if _, err := fmt.Sscan(row[2], &p); err != nil {
			t.Fatal(err)
		}
		sums[row[0]] += p
	}
	for t0, sum := range sums {
		if sum < 1-1e-9 || sum > 1+1e-9 || len(sums) != 6 {
			t.Errorf("after %s: %g of %d", t0, sum, len(sums))
		}
	}
}

func TestDetectCalls(t *testing.T) {
	var b strings.Builder
	b.WriteString("t_us,op,group,bytes\n")
	for i := range 60 {
		op := "send"
		if i%6 == 5 {
			op = "all_reduce"
		}
		fmt.Fprintf(&b, "%d,%s,g,1024\n", 1000*i, op)
	}
	out, err := detectRun(b.String(), "calls", "-", "--json")
	var doc callsReport
	if err != nil || json.Unmarshal([]byte(out), &doc) != nil {
		t.Fatal(err, out)
	}
	if doc.Calls != 60 ||
		doc.Period == nil ||
		*doc.Period != 6 ||
		doc.ACF < 0.95 ||
		len(doc.IterationsMs) != 9 ||
		doc.IterationsMs[0] != 6 {
		t.Errorf("%s", out)
	}
	out, err = detectRun("t_us,op\n1,send\n2,send\n", "calls", "-", "--json")
	if err != nil ||
		!strings.Contains(out, `"period": null`) ||
		!strings.Contains(out, `"reason": "2 calls are too few`) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestDetectWrongUse(t *testing.T) {
	for name, args := range map[string][]string{
		"no file":    {"iterations"},
		"two files":  {"calls", "a", "b"},
		"threshold":  {"iterations", "-", "--threshold", "1.5"},
		"hazard":     {"iterations", "-", "--hazard", "0"},
		"verify":     {"iterations", "-", "--verify", "-1"},
		"prior":      {"iterations", "-", "--raw", "--prior", "1,2"},
		"bad prior":  {"iterations", "-", "--raw", "--prior", "0,-1,1,1"},
		"prior only": {"iterations", "-", "--prior", "0,1,1,1"},
		"flag":       {"iterations", "-", "--nope"},
		"word":       {"nonsense"},
	} {
		if _, err := detectRun("ms\n1\n", args...); !errors.Is(err, errUsage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDetectFailures(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"absent":    {[]string{"iterations", filepath.Join(dir, "none.csv")}, "there is no file"},
		"folder":    {[]string{"calls", dir}, "is a folder"},
		"no column": {[]string{"iterations", "-", "--column", "b"}, `no column "b"`},
		"posterior": {
			[]string{"iterations", "-", "--posterior", filepath.Join(dir, "no", "p")},
			"can't write the posterior",
		},
	} {
		_, err := detectRun("ms\n1\n", c.args...)
		if err == nil ||
			errors.Is(err, errUsage) ||
			!strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDetectWorkers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var b strings.Builder
	b.WriteString("step,rank,ms\n")
	for i := range 100 {
		for rank := range 4 {
			ms := 100.0
			if rank == 2 && i >= 40 && i < 70 {
				ms = 140
			}
			fmt.Fprintf(&b, "%d,%d,%.2f\n", i, rank, ms*(1+0.01*rng.NormFloat64()))
		}
	}
	out, err := detectRun(b.String(), "workers", "-", "--json")
	var doc workersReport
	if err != nil || json.Unmarshal([]byte(out), &doc) != nil {
		t.Fatal(err, out)
	}
	if doc.Workers != 4 || len(doc.Flagged) != 1 {
		t.Fatalf("%s", out)
	}
	f := doc.Flagged[0]
	if f.Worker != "2" ||
		f.Onset != 40 ||
		f.Relief == nil ||
		*f.Relief != 70 ||
		f.Kind != "transient" ||
		f.Ratio < 1.35 {
		t.Errorf("%s", out)
	}
}
