package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/lab"
)

var (
	labSeeds    = flag.Int("lab-seeds", 1, "seeds to play of each scenario")
	labParallel = flag.Int("lab-parallel", 2, "labs at once")
	labOut      = flag.String("lab-out", "", "keep reports here and skip those that are there already")
)

// binFalcon is the built binary; labs need its neighbours, so `go test` alone
// can't make it.
func binFalcon(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/falcon")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"falcon", "falcon-agent", "falcon-trainer", "lib/libfalcon_hook.so", "lib/libnccl.so.2"} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), f)); err != nil {
			t.Skipf("%s is not built: run `make build`", f)
		}
	}
	return path
}

// playLab runs one scenario headless and returns its report and output.
func playLab(t testing.TB, report string, args ...string) (lab.Report, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binFalcon(t), append([]string{"lab", "run", "--headless", "--report", report}, args...)...)
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

// stories are the runs to judge: a scenario, its flags, and what its report
// must show. Judges list what a report lacks.
var stories = []struct {
	name, scenario string
	args           []string
	judge          func(lab.Report) []string
}{
	{"gpu-throttle", "gpu-throttle", nil, judgeGPU},
	{"all-slow", "all-slow", nil, judgeAllSlow},
	{"cpu-contention", "cpu-contention", nil, judgeCPU},
	// Iterations inferred from the NCCL calls alone, without the job's marks.
	{"gpu-throttle-by-calls", "gpu-throttle", []string{"--marks", "off"}, judgeGPU},
}

func judgeGPU(r lab.Report) []string {
	return append(judgeMitigated(r, "gpu_degradation", []string{"n1.g0"}, []int32{2}), judgeLoss(r)...)
}

func judgeCPU(r lab.Report) []string {
	return append(judgeMitigated(r, "cpu_contention", []string{"n2.g0", "n2.g1"}, []int32{4, 5}), judgeLoss(r)...)
}

// judgeMitigated: onset within 5 iterations, exactly these devices and ranks,
// S2 applied and worth 60 % of the slowdown (for the GPU), relief within 70
// iterations of the clearing, reverted, healthy speed again within 3 %.
func judgeMitigated(r lab.Report, cause string, devices []string, ranks []int32) []string {
	var bad []string
	fail := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	if len(r.Incidents) != 1 {
		fail("%d incidents, want 1", len(r.Incidents))
		return bad
	}
	in, truth := r.Incidents[0], r.Injected[0]
	if late := in.DetectedIteration - truth.FirstIteration; late < 0 || late > 5 {
		fail("onset of iteration %d known at %d", truth.FirstIteration, in.DetectedIteration)
	}
	if in.Verdict.Cause != cause {
		fail("cause %s, want %s", in.Verdict.Cause, cause)
	}
	if !slices.Equal(in.Verdict.Devices, devices) || !slices.Equal(in.Verdict.Ranks, ranks) {
		fail("named %v %v, want %v %v", in.Verdict.Devices, in.Verdict.Ranks, devices, ranks)
	}
	cleared := truth.LastIteration + 1
	if in.RelievedIteration == nil || *in.RelievedIteration < cleared-1 || *in.RelievedIteration > cleared+70 {
		fail("relieved %v, cleared at %d", show(in.RelievedIteration), cleared)
	}
	bad = append(bad, judgeAction(r, in, cause, cleared)...)
	if r.AfterMs == nil || r.HealthyMs == nil || math.Abs(*r.AfterMs-*r.HealthyMs) > 0.03**r.HealthyMs {
		fail("after %v ms, healthy %v ms", showMs(r.AfterMs), showMs(r.HealthyMs))
	}
	return bad
}

func judgeAction(r lab.Report, in lab.IncidentStory, cause string, cleared int64) []string {
	var bad []string
	if len(in.Actions) != 1 || in.Actions[0].Rung != "S2" || in.Actions[0].AppliedIteration == nil || in.Actions[0].Outcome != "kept" {
		return []string{fmt.Sprintf("actions %+v, want one S2, kept", in.Actions)}
	}
	if rev := in.Actions[0].RevertedIteration; rev == nil || *rev > cleared+75 {
		bad = append(bad, fmt.Sprintf("reverted at %v", show(rev)))
	}
	floor := 0.6
	if cause != "gpu_degradation" {
		floor = 0.3 // a node's whole CPU: two replicas are slow, less can be moved
	}
	if r.SlowdownRemoved == nil || *r.SlowdownRemoved < floor {
		bad = append(bad, fmt.Sprintf("slowdown removed %v, want %v", showMs(r.SlowdownRemoved), floor))
	}
	return bad
}

func judgeLoss(r lab.Report) []string {
	if d := math.Abs(r.FinalLoss - r.ReferenceLoss); !(d <= 1e-4*math.Abs(r.ReferenceLoss)) {
		return []string{fmt.Sprintf("loss %v, reference %v", r.FinalLoss, r.ReferenceLoss)}
	}
	return nil
}

func judgeAllSlow(r lab.Report) []string {
	if len(r.Incidents) != 1 {
		return []string{fmt.Sprintf("%d incidents, want 1", len(r.Incidents))}
	}
	v := r.Incidents[0].Verdict
	if v.Cause != "not_hardware" || len(v.Devices)+len(v.Ranks)+len(v.Links)+len(r.Incidents[0].Actions) != 0 {
		return []string{fmt.Sprintf("verdict %+v, actions %+v, want not_hardware and none", v, r.Incidents[0].Actions)}
	}
	return judgeLoss(r)
}

func show(v *int64) string {
	if v == nil {
		return "never"
	}
	return strconv.FormatInt(*v, 10)
}

func showMs(v *float64) string {
	if v == nil {
		return "none"
	}
	return strconv.FormatFloat(*v, 'f', 3, 64)
}

// TestLabScenarios plays the shipped scenarios on seeds 1 to -lab-seeds and
// judges every report by what the scenario must show.
func TestLabScenarios(t *testing.T) {
	if testing.Short() {
		t.Skip("whole lab runs take minutes")
	}
	binFalcon(t)
	slots := make(chan struct{}, *labParallel)
	var wait sync.WaitGroup
	for _, story := range stories {
		for seed := 1; seed <= *labSeeds; seed++ {
			wait.Add(1)
			slots <- struct{}{}
			go func() {
				defer wait.Done()
				defer func() { <-slots }()
				file := filepath.Join(reportDir(t), fmt.Sprintf("%s-%d.json", story.name, seed))
				args := append([]string{"--scenario", story.scenario, "--approve", "s2", "--seed", strconv.Itoa(seed)}, story.args...)
				judgeRun(t, fmt.Sprintf("%s seed %d", story.name, seed), file, args, story.judge)
			}()
		}
	}
	wait.Wait()
}

func reportDir(t *testing.T) string {
	if *labOut != "" {
		return *labOut
	}
	return t.TempDir()
}

// judgeRun plays one run, unless its report is there already, and judges it.
func judgeRun(t *testing.T, what, file string, args []string, judge func(lab.Report) []string) {
	r, err := readReport(file)
	out := ""
	if err != nil {
		r, out, err = playLab(t, file, args...)
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", what, err, out)
		return
	}
	if bad := judge(r); len(bad) > 0 {
		t.Errorf("%s: %s\n%s", what, strings.Join(bad, "; "), out)
		return
	}
	t.Logf("%s: healthy %s slow %s mitigated %s ms, removed %s of bound %s", what,
		showMs(r.HealthyMs), showMs(r.SlowMs), showMs(r.MitigatedMs), showMs(r.SlowdownRemoved), showMs(r.SlowdownBound))
}
