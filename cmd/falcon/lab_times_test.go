package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
	"github.com/failslow/falcon/backend/sim/tabletest"
)

var (
	labTimes = flag.Int("lab-times", 0, "measure how fast deaths are known, on at least so many of each kind")
	labSoak  = flag.Float64("lab-soak", 0,
		"minutes that a job runs beside CPU hogs without a fault; none may be seen")
	labNice = flag.Int("lab-nice", 0, "niceness of the CPU hogs")
	labPage = flag.String("lab-page", "", "page that gets the tables")
)

// recoveryPhases are the phases of a recovery in their order.
var recoveryPhases = []string{
	falcon.PhaseDetect, falcon.PhaseSuspend, falcon.PhaseFence, falcon.PhaseReplace,
	falcon.PhaseTable, falcon.PhaseCollect,
	falcon.PhaseGroups, falcon.PhaseRestore, falcon.PhaseResume,
}

// deathKinds are what detection is measured on; wanted is the bound in ms, on
// the median or on the longest.
var deathKinds = []struct {
	name, about string
	wanted      float64
	median      bool
	event       func(k int) lab.Event // of the k-th of 4 nodes of 2 ranks
}{
	{
		"rank-killed",
		"a process killed (SIGKILL)",
		100,
		true,
		func(k int) lab.Event {
			return lab.Event{Kill: fmt.Sprintf("rank %d", 2*k+1)}
		},
	},
	{
		"node-killed",
		"a node killed: its agent and ranks at once",
		7000,
		false,
		func(k int) lab.Event {
			return lab.Event{Kill: fmt.Sprintf("node n%d", k)}
		},
	},
	{
		"node-silent",
		"a node silent: its agent and ranks stopped (SIGSTOP), nothing is reset",
		7000,
		false,
		func(k int) lab.Event {
			return lab.Event{Freeze: fmt.Sprintf("node n%d", k)}
		},
	},
	{
		"rank-frozen",
		"a process stopped (SIGSTOP)",
		10000,
		false,
		func(k int) lab.Event {
			return lab.Event{Freeze: fmt.Sprintf("rank %d", 2*k+1)}
		},
	},
}

// How the runs of the measurement are timed, in iterations: each of the four
// nodes is hit once, with time to go on between.
const (
	timesFirst = 20
	timesEvery = 25
	timesNodes = 4
)

func timesScenario(name string, event func(int) lab.Event) lab.Scenario {
	var deaths []lab.Event
	for k := range timesNodes {
		e := event(k)
		e.AtIteration = int64(timesFirst + timesEvery*k)
		deaths = append(deaths, e)
	}
	sc := recoverScenario(name, recoverLayouts[1].shape, timesNodes, deaths...)
	sc.Iterations = timesFirst + timesEvery*timesNodes
	return sc
}

// TestDetectionTimes measures the time from a death that the lab dealt until the
// engine was certain of it. It judges nothing but that each was seen.
func TestDetectionTimes(t *testing.T) {
	if *labTimes == 0 {
		t.Skip("a measurement: run make detection-times")
	}
	binFalcon(t)
	dir := reportDir(t)
	var rows [][]string
	for _, kind := range deathKinds {
		var ms []float64
		for i := 0; len(ms) < *labTimes && i < *labTimes; i++ { // each run gives some, unless it fails
			ms = append(ms, timesRun(t, dir, fmt.Sprintf("%s-%d", kind.name, i+1), kind.event)...)
		}
		row := quantiles(kind.about, ms)
		rows = append(rows, append(row, wantedText(kind.wanted, kind.median, ms)))
		t.Log(strings.Join(rows[len(rows)-1], " | "))
	}
	text := fmt.Sprintf("## How fast deaths are known\n\nBy `make detection-times DEATHS=%d`. %s\n\n%s\n%s",
		*labTimes, machine(), timesAbout, mdTable(append(quantileHead, "wanted"), rows))
	writePage(t, "detection", text)
}

const timesAbout = `From the death that the lab dealt until the engine was certain enough to act:
by the wall clock of one machine, in jobs of 8 ranks on 4 nodes whose agents
beat every 2 s. Processes, agents and connections are real.
`

// timesRun plays one run and returns what its deaths took to be known.
func timesRun(t *testing.T, dir, name string, event func(int) lab.Event) []float64 {
	file := reportFile(dir, name)
	r, err := readReport(file)
	out := ""
	if err != nil {
		if out, err = playScenario(t, timesScenario(name, event), file, "--no-reference"); err == nil {
			r, err = readReport(file)
		}
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", name, err, out)
		return nil
	}
	var ms []float64
	for _, k := range r.Kills {
		if k.DetectedMs == nil {
			t.Errorf("%s: %s at iteration %d was never known\n%s", name, k, k.Iteration, out)
			continue
		}
		ms = append(ms, *k.DetectedMs)
	}
	return ms
}

// quantileHead names the columns of quantiles.
var quantileHead = []string{"what", "n", "median ms", "p99 ms", "longest ms"}

func quantiles(what string, v []float64) []string {
	if len(v) == 0 {
		return []string{what, "0", "", "", ""}
	}
	w := slices.Sorted(slices.Values(v))
	at := func(share float64) string {
		return fmt.Sprintf("%.0f", w[int(share*float64(len(w)-1)+0.5)])
	}
	return []string{what, itoa(len(w)), fmt.Sprintf("%.0f", middle(w)), at(0.99), at(1)}
}

func wantedText(wanted float64, median bool, ms []float64) string {
	if len(ms) == 0 {
		return "not measured"
	}
	what := "longest"
	got := slices.Max(ms)
	if median {
		what = "median"
		got = middle(ms)
	}
	verdict := "met"
	if got > wanted {
		verdict = "missed"
	}
	return fmt.Sprintf("%s ≤ %.0f ms: %s", what, wanted, verdict)
}

// TestSoak runs a job without a fault beside processes that take all the CPU
// they can get: nobody may be taken for dead.
func TestSoak(t *testing.T) {
	if *labSoak == 0 {
		t.Skip("long: run make soak")
	}
	binFalcon(t)
	span := time.Duration(*labSoak * float64(time.Minute))
	sc := recoverScenario("soak", recoverLayouts[1].shape, 1)
	sc.Iterations = max(pointLast, int(span/(pointIterates*time.Millisecond)))
	file := reportFile(reportDir(t), "soak")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range runtime.NumCPU() {
		hog(t, ctx, 4*span)
	}
	began := time.Now()
	out, err := playScenarioFor(t, 4*span, sc, file, "--no-reference", "--approve", "never")
	r, readErr := readReport(file)
	if err != nil || readErr != nil {
		t.Fatalf("%v, %v\n%s", err, readErr, out)
	}
	took := time.Since(began)
	if len(r.Recoveries) > 0 || len(r.Iterations) != sc.Iterations {
		t.Errorf("%d recoveries without a fault, %d of %d iterations\n%s",
			len(r.Recoveries), len(r.Iterations), sc.Iterations, out)
	}
	text := fmt.Sprintf(
		"## A healthy job beside CPU hogs\n\nBy `make soak MINUTES=%s`. %s\n\n%d processes that only use CPU (niceness %d) ran beside a job of 8 ranks for %.0f minutes (%d iterations, median %s ms where %d were modelled): %d recoveries were begun, and none must be; %d slowdowns were reported.\n",
		strconv.FormatFloat(*labSoak, 'g', -1, 64), machine(), runtime.NumCPU(), *labNice,
		took.Minutes(), len(r.Iterations), millis(r.HealthyMs), pointIterates,
		len(r.Recoveries),
		len(r.Incidents),
	)
	writePage(t, "soak", text)
	t.Log(text)
}

// hog starts a process that uses one CPU until ctx ends, or most is over.
func hog(t *testing.T, ctx context.Context, most time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(
		ctx,
		"timeout",
		strconv.Itoa(int(most.Seconds())+1),
		"nice",
		"-n", strconv.Itoa(*labNice),
		"sh",
		"-c", "while :; do :; done",
	)
	// which timeout hands on; SIGKILL would leave the loop behind
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // it was killed
}

// writePage puts a part into the page that the flag names, if it names one.
func writePage(t *testing.T, part, text string) {
	t.Helper()
	if *labPage == "" {
		return
	}
	if err := writePart(*labPage, part, text); err != nil {
		t.Fatal(err)
	}
}

// writePart replaces one marked part of a page that exists, or adds it at the end. A part of
// docs/tables.txt says which code was measured.
func writePart(path, part, text string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	switch stamp, err := tabletest.Stamp("../..", "results/"+filepath.Base(path), part); {
	case err == nil:
		text += "\n" + stamp
	case !errors.Is(err, tabletest.ErrTables):
		return err
	}
	return tabletest.WritePart(path, part, "a command", text)
}

func TestWritePart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	writeFile(t, path, "# Page\n")
	for _, p := range [][2]string{{"a", "one"}, {"b", "two"}, {"a", "three"}} {
		if err := writePart(path, p[0], p[1]); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	want := "# Page\n\n<!-- a: written by a command -->\nthree\n<!-- end of a -->\n\n<!-- b: written by a command -->\ntwo\n<!-- end of b -->\n"
	if err != nil || string(got) != want {
		t.Errorf("%v, got %q", err, got)
	}
	path = filepath.Join(t.TempDir(), "recoveries.md")
	writeFile(t, path, "# Page\n")
	if err := writePart(path, "soak", "one"); err != nil {
		t.Fatal(err)
	}
	got, err = os.ReadFile(path)
	if err != nil || tabletest.Stamped(string(got)) == "" {
		t.Errorf("%v, a part of docs/tables.txt does not say what was measured: %q", err, got)
	}
}

func TestQuantiles(t *testing.T) {
	var v []float64
	for i := range 101 {
		v = append(v, float64(100-i))
	}
	if got := quantiles("x", v); !slices.Equal(got, []string{"x", "101", "50", "99", "100"}) {
		t.Error(got)
	}
	if got := wantedText(40, true, v); got != "median ≤ 40 ms: missed" {
		t.Error(got)
	}
	if got := wantedText(100, false, v); got != "longest ≤ 100 ms: met" {
		t.Error(got)
	}
}
