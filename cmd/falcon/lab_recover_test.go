package main

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
)

var (
	labRecoveries = flag.String("lab-recoveries", "",
		"play every fault point and write its part of this page")
	labRecoverSeeds = flag.Int("lab-recover-seeds", 0, "moreover as many faults at random moments")
)

// recoveryWants is what a report of a run with one recovery must show.
type recoveryWants struct {
	replaced []int // ranks replaced
	kills    int   // deaths and freezes that were dealt
}

// judgeRecovery: one recovery, which ended with the job training again; those it
// says were replaced and nobody else; at most one step run again; the weights,
// the losses and the samples are the undisturbed run's; no slowdown was reported.
func judgeRecovery(want recoveryWants) func(lab.Report) []string {
	return func(r lab.Report) []string {
		bad := append(judgeSums(r), judgeOrder(r)...)
		bad = append(bad, judgeDeaths(r, want.kills)...)
		if len(r.Recoveries) != 1 {
			return append(bad, fmt.Sprintf("%d recoveries, want one", len(r.Recoveries)))
		}
		bad = append(bad, judgeNoSlowdown(r)...)
		return append(bad, judgeOne(r.Recoveries[0], want.replaced)...)
	}
}

// judgeNoSlowdown: nobody took the fault or the recovery for a slowdown. One that
// began before it is the machine's, which the lab shares, and so is one that the
// ranks' own clocks confirm after it.
func judgeNoSlowdown(r lab.Report) []string {
	var bad []string
	resume := r.Recoveries[0].ResumeIteration
	for _, in := range r.Incidents {
		for _, k := range r.Kills {
			at := in.OnsetIteration >= k.Iteration-1 && in.OnsetIteration <= resume+1
			if at &&
				!slower(rowsMs(r, resume+1, in.DetectedIteration+1), rowsMs(r, 10, k.Iteration)) {
				bad = append(bad, fmt.Sprintf("%s is taken for a slowdown since iteration %d",
					k, in.OnsetIteration))
			}
		}
	}
	return bad
}

// rowsMs are the times of iterations from to to − 1 that have one.
func rowsMs(r lab.Report, from, to int64) []float64 {
	var out []float64
	for _, row := range r.Iterations {
		if row.Index >= from && row.Index < to && !row.Untold {
			out = append(out, row.Ms)
		}
	}
	return out
}

// slower reports whether the later iterations took 1.1 times as long, the least that
// the detector calls a slowdown.
func slower(after, before []float64) bool {
	return len(after) > 0 && len(before) > 0 && middle(after) > 1.1*middle(before)
}

func judgeOne(s lab.RecoveryReport, replaced []int) []string {
	var bad []string
	if s.State != "resumed" {
		bad = append(bad, fmt.Sprintf("%s is %s: %s", s.ID, s.State, s.Reason))
	}
	var got []int
	for r := range s.Replaced {
		got = append(got, int(r))
	}
	if slices.Sort(got); !slices.Equal(got, replaced) {
		bad = append(bad, fmt.Sprintf("ranks %v were replaced, want %v", got, replaced))
	}
	if !s.SurvivorPidsKept {
		bad = append(bad, "a survivor is another process than before")
	}
	if s.LostIterations > 1 || s.Checkpoint {
		bad = append(bad, fmt.Sprintf("%d iterations were run again, from storage: %v; %s",
			s.LostIterations, s.Checkpoint, s.Reason))
	}
	for _, rank := range replaced {
		if from, ok := s.RestoredFrom[falcon.Rank(rank)]; !ok || from < 0 {
			bad = append(bad, fmt.Sprintf("rank %d got its state from %d", rank, from))
		}
	}
	return bad
}

// judgeOrder: all iterations were run, on the samples of the undisturbed run.
func judgeOrder(r lab.Report) []string {
	if r.SamplesNote != lab.SamplesEqual {
		return []string{r.SamplesNote}
	}
	return nil
}

// judgeDeaths: what was to be dealt was, and the engine knew of it.
func judgeDeaths(r lab.Report, want int) []string {
	var bad []string
	if len(r.Kills) != want {
		bad = append(bad, fmt.Sprintf("%d deaths were dealt, want %d", len(r.Kills), want))
	}
	for _, k := range r.Kills {
		ofJob := k.Target != "console" && !strings.HasPrefix(k.Target, "agent ")
		if k.Error != "" || ofJob && k.DetectedMs == nil {
			bad = append(bad, fmt.Sprintf("%s: %s, never named by a recovery", k, k.Error))
		}
	}
	return bad
}

// recoverPlays are the shipped fail-stop scenarios.
var recoverPlays = []struct {
	name string
	want recoveryWants
}{
	{"rank-crash", recoveryWants{[]int{5}, 1}},
	{"node-loss", recoveryWants{[]int{4, 5}, 1}},
	{"crash-in-optimizer", recoveryWants{[]int{5}, 1}},
	{"second-fault", recoveryWants{[]int{0, 1, 5}, 2}},
	{"freeze", recoveryWants{[]int{2, 3}, 1}},
}

// TestLabRecoveries plays each shipped fail-stop scenario once.
func TestLabRecoveries(t *testing.T) {
	if testing.Short() {
		t.Skip("whole lab runs")
	}
	binFalcon(t)
	dir := t.TempDir()
	var list []recoverRun
	for _, p := range recoverPlays {
		sc, err := lab.Load(p.name)
		if err != nil {
			t.Fatal(err)
		}
		sc.Iterations = 45 // enough to see the job train again
		list = append(list, recoverRun{sc: sc, want: p.want})
	}
	playRecoveries(t, dir, list)
}

// recoverRun is one run that must recover.
type recoverRun struct {
	sc   lab.Scenario
	want recoveryWants
	seed int64
}

// playRecoveries plays runs side by side and judges each; reports that are there
// already are not played again. It returns what was wrong, by name.
func playRecoveries(t *testing.T, dir string, list []recoverRun) map[string]string {
	var (
		slots = make(chan struct{}, *labParallel)
		wait  sync.WaitGroup
		mu    sync.Mutex // guards out
		out   = map[string]string{}
	)
	for _, r := range list {
		wait.Add(1)
		slots <- struct{}{}
		go func() {
			defer wait.Done()
			defer func() { <-slots }()
			bad := r.play(t, dir)
			mu.Lock()
			defer mu.Unlock()
			out[r.sc.Name] = bad
		}()
	}
	wait.Wait()
	return out
}

// play plays the run, unless its report is there, and judges it.
func (r recoverRun) play(t *testing.T, dir string) string {
	file := reportFile(dir, r.sc.Name)
	rep, err := readReport(file)
	out := ""
	if err != nil {
		if out, err = playScenario(
			t,
			r.sc,
			file,
			"--seed", strconv.FormatInt(max(1, r.seed), 10),
		); err == nil {
			rep, err = readReport(file)
		}
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", r.sc.Name, err, out)
		return err.Error()
	}
	bad := strings.Join(judgeRecovery(r.want)(rep), "; ")
	if bad != "" {
		t.Errorf("%s: %s\n%s", r.sc.Name, bad, out)
		return bad
	}
	s := rep.Recoveries[0]
	t.Logf("%s: %s; known after %.0f ms, resumed at iteration %d with %d run again, %.0f ms down; %s",
		r.sc.Name, s.Fault, s.DetectedMs, s.ResumeIteration, s.LostIterations, s.DownMs,
		phasesText(s.PhasesMs))
	return ""
}

// phasesText lists phases in the order of a recovery.
func phasesText(ms map[string]float64) string {
	var out []string
	for _, p := range recoveryPhases {
		if v, ok := ms[p]; ok {
			out = append(out, fmt.Sprintf("%s %.0f", p, v))
		}
	}
	return strings.Join(out, ", ")
}

// The judge passes what is right and says what is wrong, one thing at a time.
func TestJudgeRecovery(t *testing.T) {
	ms := 40.0
	good := func() lab.Report {
		return lab.Report{
			Training: lab.Training{
				SamplesNote:  lab.SamplesEqual,
				WeightsNote:  "must be equal",
				WeightsSha:   "a",
				ReferenceSha: "a",
			},
			Kills: []lab.Kill{{Target: "rank 5", Iteration: 30, DetectedMs: &ms}},
			Recoveries: []lab.RecoveryReport{{
				ID:               "REC-0001",
				State:            "resumed",
				Replaced:         map[falcon.Rank]falcon.Device{5: "n2.g1"},
				RestoredFrom:     map[falcon.Rank]falcon.Rank{5: 1},
				SurvivorPidsKept: true,
				LostIterations:   1,
				ResumeIteration:  30,
			}},
		}
	}
	judge := judgeRecovery(recoveryWants{[]int{5}, 1})
	if bad := judge(good()); bad != nil {
		t.Errorf("a right report: %v", bad)
	}
	for want, spoil := range map[string]func(*lab.Report){
		"weights b, reference a": func(r *lab.Report) { r.WeightsSha = "b" },
		"iteration 9 began with": func(r *lab.Report) {
			r.SamplesNote = "iteration 9 began with sample 3"
		},
		"2 deaths were dealt": func(r *lab.Report) {
			r.Kills = append(r.Kills, r.Kills[0])
		},
		"never named by a recovery": func(r *lab.Report) { r.Kills[0].DetectedMs = nil },
		"rank 5 killed is taken for a slowdown": func(r *lab.Report) {
			r.Incidents = []lab.IncidentReport{{OnsetIteration: 30}}
		},
		"0 recoveries": func(r *lab.Report) { r.Recoveries = nil },
		"is failed: no spare": func(r *lab.Report) {
			r.Recoveries[0].State, r.Recoveries[0].Reason = "failed", "no spare"
		},
		"ranks [4] were replaced": func(r *lab.Report) {
			r.Recoveries[0].Replaced = map[falcon.Rank]falcon.Device{4: "n4.g0"}
		},
		"a survivor is another process": func(r *lab.Report) {
			r.Recoveries[0].SurvivorPidsKept = false
		},
		"2 iterations were run again": func(r *lab.Report) { r.Recoveries[0].LostIterations = 2 },
		"from storage: true":          func(r *lab.Report) { r.Recoveries[0].Checkpoint = true },
		"rank 5 got its state from -2": func(r *lab.Report) {
			r.Recoveries[0].RestoredFrom[5] = -2
		},
		"loss 2, reference 0": func(r *lab.Report) { r.FinalLoss = 2 },
	} {
		r := good()
		spoil(&r)
		if got := strings.Join(judge(r), "; "); !strings.Contains(got, want) {
			t.Errorf("want %q, the judge says %q", want, got)
		}
	}
}

// The matrix is made of valid scenarios, each with a name of its own.
func TestRecoverMatrix(t *testing.T) {
	names := map[string]bool{}
	for _, r := range slices.Concat(recoverMatrix(), recoverConsole(), randomRecoveries(20)) {
		if err := r.sc.Validate(); err != nil {
			t.Errorf("%s: %v", r.sc.Name, err)
		}
		if names[r.sc.Name] {
			t.Errorf("%s is there twice", r.sc.Name)
		}
		names[r.sc.Name] = true
	}
	if n := len(recoverMatrix()); n != 2*2*len(lab.Points) {
		t.Errorf("%d cells", n)
	}
}

// TestRecoverPoints plays every fault point with and without ZeRO, of ranks and
// of nodes, then faults at random moments, and writes the tables.
func TestRecoverPoints(t *testing.T) {
	if *labRecoveries == "" {
		t.Skip("dozens of labs: run make recoveries")
	}
	binFalcon(t)
	dir := reportDir(t)
	cells := append(recoverMatrix(), recoverConsole()...)
	points := playRecoveries(t, dir, cells)
	random := randomRecoveries(*labRecoverSeeds)
	moments := playRecoveries(t, dir, random)
	text := pointTable(dir, cells, points) + "\n" + momentTable(dir, random, moments)
	if err := writePart(*labRecoveries, "recoveries", text); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s has the tables of %s", *labRecoveries, filepath.Base(dir))
}
