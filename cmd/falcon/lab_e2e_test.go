package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
)

var (
	labSeeds    = flag.Int("lab-seeds", 0, "seeds to play of each scenario; 0 plays the first scenario once")
	labParallel = flag.Int("lab-parallel", 2, "labs at once")
	labBin      = flag.String("lab-bin", "../../bin", "folder of the built programs")
	labOut      = flag.String("lab-out", "", "keep reports here and skip those that are there already")
)

// binFalcon is the built binary; labs need its neighbours, so `go test` alone
// can't make it.
func binFalcon(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(*labBin, "falcon"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{
		"falcon", "falcon-agent", "falcon-trainer", "lib/libfalcon_hook.so", "lib/libnccl.so.2",
	} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), f)); err != nil {
			t.Skipf("%s is not built: run `make build`", f)
		}
	}
	return path
}

// labWithin bounds one run of a lab.
const labWithin = 40 * time.Minute

// playLab runs one scenario headless and returns its report and output.
func playLab(t testing.TB, report string, args ...string) (lab.Report, string, error) {
	t.Helper()
	return playLabFor(t, labWithin, report, args...)
}

// playLabFor is playLab for a run that may take so long.
func playLabFor(
	t testing.TB,
	within time.Duration,
	report string,
	args ...string,
) (lab.Report, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_ = os.Remove(report) // of a play before: reports are not written over
	cmd := exec.CommandContext(
		ctx,
		binFalcon(t),
		append([]string{"lab", "run", "--headless", "--report", report}, args...)...,
	)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return lab.Report{}, out.String(), err
	}
	r, err := readReport(report)
	return r, out.String(), err
}

func readReport(path string) (lab.Report, error) {
	var r lab.Report
	b, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(b, &r)
}

// plays are the runs to judge: a scenario, its flags, and what its report must
// show. Judges list what a report lacks.
var plays = []struct {
	name, scenario string
	args           []string
	judge          func(lab.Report) []string
}{
	{"gpu-throttle", "gpu-throttle", nil, judgeS2(0.6)},
	{"two-stragglers-s3", "two-stragglers", []string{"--approve", "s3", "--iterations", "190"}, judgeS3(0.6)},
	{"all-slow", "all-slow", nil, judgeNotHardware},
	// a node's whole CPU: two replicas are slow, less can be moved
	{"cpu-contention", "cpu-contention", nil, judgeS2(0.3)},
	{"link-congestion", "link-congestion", nil, judgeLinks},
	{"compound", "compound", nil, judgeTruth},
	{"two-stragglers", "two-stragglers", nil, judgeLinks},
	{"stage-imbalance", "stage-imbalance", nil, judgeNotHardware},
	{"data-stall", "data-stall", nil, judgeReason(falcon.ReasonData)},
	{"lengths", "lengths", nil, judgeReason(falcon.ReasonLengths)},
	// Iterations inferred from the NCCL calls alone, without the job's marks.
	{"gpu-throttle-by-calls", "gpu-throttle", []string{"--marks", "off"}, judgeS2(0.6)},
	// Of a job without an adapter the calls alone are known, and its layout by inference:
	// work is not moved by it.
	{
		"late-throttle-no-adapter",
		"testdata/late-throttle.yaml",
		[]string{"--adapter", "off", "--approve", "never"},
		judgeTruth,
	},
	// Watched by NCCL's profiler plug-in, without the hook: found and located, and nothing done.
	{
		"gpu-throttle-by-plugin",
		"gpu-throttle",
		[]string{"--hook", "plugin", "--approve", "never"},
		judgeTruth,
	},
}

// playsInTest is how many of them a plain `go test` plays.
const playsInTest = 1

// score is how one scenario did over all seeds.
type score struct {
	ok, total int
	failures  []string
}

// TestLabScenarios plays the shipped scenarios on seeds 1 to -lab-seeds, judges
// every report by what the scenario must show, and ends with a table.
func TestLabScenarios(t *testing.T) {
	if testing.Short() {
		t.Skip("whole lab runs take minutes")
	}
	binFalcon(t)
	var (
		slots  = make(chan struct{}, *labParallel)
		wait   sync.WaitGroup
		mu     sync.Mutex // guards scores and builds
		scores = map[string]*score{}
		builds = map[string]int{}
	)
	dir := reportDir(t)
	chosen := plays
	if *labSeeds == 0 {
		chosen = plays[:playsInTest]
	}
	for _, p := range chosen {
		scores[p.name] = &score{}
	}
	// scenario by scenario, so that an interrupted table has something of each
	for seed := 1; seed <= max(1, *labSeeds); seed++ {
		for _, p := range chosen {
			wait.Add(1)
			slots <- struct{}{}
			go func() {
				defer wait.Done()
				defer func() { <-slots }()
				file := filepath.Join(dir, fmt.Sprintf("%s-%d.json", p.name, seed))
				args := append(
					[]string{"--scenario", p.scenario, "--approve", "s2", "--seed", strconv.Itoa(seed)},
					p.args...,
				)
				build, bad, judged := judgeRun(
					t,
					fmt.Sprintf("%s seed %d", p.name, seed),
					file,
					args,
					p.judge,
				)
				mu.Lock()
				defer mu.Unlock()
				if judged {
					scores[p.name].add(seed, bad)
				}
				builds[build]++
			}()
		}
	}
	wait.Wait()
	t.Log(scoreTable(scores, builds))
}

func (s *score) add(seed int, bad string) {
	s.total++
	if bad == "" {
		s.ok++
		return
	}
	s.failures = append(s.failures, fmt.Sprintf("seed %d: %s", seed, bad))
}

// scoreTable is scenario by scenario how many runs were right, why others were
// not, and which builds played them.
func scoreTable(scores map[string]*score, builds map[string]int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-24s %8s\n", "scenario", "right")
	for _, p := range plays {
		s := scores[p.name]
		if s == nil {
			continue
		}
		fmt.Fprintf(&b, "%-24s %8s\n", p.name, fmt.Sprintf("%d/%d", s.ok, s.total))
		for _, f := range s.failures {
			fmt.Fprintf(&b, "    %s\n", f)
		}
	}
	for build, n := range builds {
		fmt.Fprintf(&b, "%d reports of build %s\n", n, build)
	}
	again, _ := filepath.Glob(filepath.Join(*labOut, "*.disturbed.*")) // the pattern is well-formed
	fmt.Fprintf(&b,
		"%d disturbed runs that were judged wrong, played again (more than %g %% of the CPU time stolen, or undisturbed iterations that scatter by more than %g)\n",
		len(again), 100*stealMost, scatterMost)
	return b.String()
}

func reportDir(t *testing.T) string {
	if *labOut != "" {
		return *labOut
	}
	return t.TempDir()
}

// runTries bounds how often a disturbed run is played.
const runTries = 4

// unplayed stands for the build of a run that ended in an error.
const unplayed = "unknown"

// judgeRun plays one run, unless its report is there already, and judges it. It
// returns the build that played it, and what was wrong, "" for nothing. A run
// that is judged wrong while others took the machine's CPUs is played again: its
// report goes to FILE.disturbed.TRY. After the last try it counts as wrong where
// reports are kept, and is not judged elsewhere, as in CI.
func judgeRun(
	t *testing.T,
	what, file string,
	args []string,
	judge func(lab.Report) []string,
) (build, bad string, judged bool) {
	for try := 1; ; try++ {
		steal := stealMeter()
		r, out, bad := judgeOnce(t, file, args, judge)
		if bad == "" {
			t.Logf("%s: healthy %s slow %s mitigated %s ms, removed %s of bound %s", what,
				showMs(r.HealthyMs), showMs(r.SlowMs), showMs(r.MitigatedMs),
				showMs(r.SlowdownRemoved), showMs(r.SlowdownBound))
			return r.Build, "", true
		}
		share := steal()
		noise := fmt.Sprintf(
			"%.1f %% of the CPU time was taken by others, undisturbed iterations scatter by %.2f",
			100*share, scatter(r),
		)
		switch {
		case r.Build == unplayed ||
			!disturbed(r, share) ||
			(try == runTries && *labOut != ""):
			t.Errorf("%s: %s (%s)\n%s", what, bad, noise, out)
			return r.Build, bad, true
		case try == runTries:
			t.Logf("%s is not judged, %d runs were disturbed; the last: %s (%s)", what, runTries, bad, noise)
			return r.Build, bad, false
		}
		t.Logf("%s, try %d: %s (%s)", what, try, bad, noise)
		if err := os.Rename(file, fmt.Sprintf("%s.disturbed.%d", file, try)); err != nil {
			t.Fatal(err)
		}
	}
}

func judgeOnce(
	t *testing.T,
	file string,
	args []string,
	judge func(lab.Report) []string,
) (r lab.Report, out, bad string) {
	r, err := readReport(file)
	if err != nil {
		r, out, err = playLab(t, file, args...)
	}
	if err != nil {
		return lab.Report{Setup: lab.Setup{Build: unplayed}}, out, err.Error()
	}
	return r, out, strings.Join(judge(r), "; ")
}
