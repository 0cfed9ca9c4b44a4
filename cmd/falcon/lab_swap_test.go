package main

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
)

var labKills = flag.Bool("lab-kills", false, "kill the console, an agent and a rank at each step of a swap")

// swapScenario has one congested link, and a state big enough for each step of
// the swap to last.
func swapScenario(name string, more ...lab.Event) lab.Scenario {
	sc := scenario(name, 4, 4, 16, 8, 4, 20)
	sc.Iterations = 100
	sc.StateMB = 3
	sc.CopyGBs = 0.0125
	sc.Park = new(bool) // a job that ends with a rank, and says which side of the swap it ended on
	sc.Events = append(calibrated(sc, 1.7, slowLinks("n5-n6")), more...)
	return sc
}

// death is what is killed, at which step.
type death struct{ who, step string }

func deaths() []death {
	var out []death
	for _, step := range falcon.SwapSteps {
		for _, who := range []string{"console", "agent n5", "rank 5"} {
			out = append(out, death{who, step})
		}
	}
	return out
}

// Whatever dies at whichever step of a swap: the job goes on unswapped or
// swapped, or its survivors say alike which of the two it was; nothing hangs,
// and the journal tells the same.
func TestDeathsInASwap(t *testing.T) {
	if !*labKills {
		t.Skip("a dozen labs: run make swaps")
	}
	binFalcon(t)
	dir := reportDir(t)
	slots := make(chan struct{}, *labParallel)
	wait := sync.WaitGroup{}
	for _, d := range deaths() {
		wait.Add(1)
		slots <- struct{}{}
		go func() {
			defer wait.Done()
			defer func() { <-slots }()
			d.play(t, dir)
		}()
	}
	wait.Wait()
}

func (d death) String() string { return d.who + " at " + d.step }

func (d death) play(t *testing.T, dir string) {
	name := "kill-" + strings.ReplaceAll(d.who, " ", "") + "-" + d.step
	sc := swapScenario(name, lab.Event{Kill: d.who, OnStep: d.step})
	report := reportFile(dir, name)
	journal := filepath.Join(dir, name+".db")
	out, err := playScenario(t, sc, report, "--approve", "s3", "--journal", journal)
	r, readErr := readReport(report)
	if readErr != nil {
		t.Errorf("%s: no report: %v\n%s", d, readErr, out)
		return
	}
	bad := append(d.judge(r, err), judgeJournal(t, journal)...)
	if len(bad) > 0 {
		t.Errorf("%s: %s\n%s", d, strings.Join(bad, "; "), out)
		return
	}
	s := r.Swaps[0]
	t.Logf("%s: %d ranks swapped, %d not; last step %s; actions %s",
		d, len(s.Applied), len(s.Refused), s.LastStep, actionStates(r))
}

// judge: the death was dealt in its step, no rank stands elsewhere than the
// others, and what Falcon says of the action is what the ranks did.
func (d death) judge(r lab.Report, err error) []string {
	var bad []string
	if len(r.Kills) != 1 || r.Kills[0].Error != "" {
		bad = append(bad, fmt.Sprintf("deaths dealt: %+v", r.Kills))
	}
	if len(r.Swaps) == 0 {
		return append(bad, "there was no swap")
	}
	s := r.Swaps[0]
	announced := r.Ranks
	if strings.HasPrefix(d.who, "rank") {
		announced-- // the dead say nothing
		if err == nil {
			bad = append(bad, "the job went on without a rank")
		}
	} else if err != nil {
		bad = append(bad, fmt.Sprintf("the job ended: %v", err))
	} else {
		bad = append(bad, judgeSums(r)...)
	}
	if len(s.Applied) > 0 && len(s.Refused) > 0 || len(s.Applied)+len(s.Refused) < announced {
		bad = append(bad, fmt.Sprintf("mixed: swapped %v, not swapped %v", s.Applied, s.Refused))
	}
	if err == nil {
		bad = append(bad, judgeAnnounced(r, s)...)
	}
	return bad
}

// judgeTold: the first S3 of the report took force exactly when the ranks
// swapped.
func judgeAnnounced(r lab.Report, s lab.SwapReport) []string {
	for _, in := range r.Incidents {
		for _, a := range in.Actions {
			if a.Rung != "S3" {
				continue
			}
			if (a.AppliedIteration != nil) != (len(s.Applied) > 0) {
				return []string{fmt.Sprintf("the ranks swapped: %v; the journal says %s", s.Applied, a.State)}
			}
			return nil
		}
	}
	return []string{"no S3 is reported"}
}

func judgeJournal(t *testing.T, file string) []string {
	code, _, errs := command(t, "journal", "verify", file)
	if code != 0 {
		return []string{"journal verify: " + errs}
	}
	return nil
}

func actionStates(r lab.Report) string {
	var out []string
	for _, in := range r.Incidents {
		for _, a := range in.Actions {
			out = append(out, a.ID+" "+a.State)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// playScenario plays a scenario made here, and returns what the run said.
func playScenario(t *testing.T, sc lab.Scenario, report string, args ...string) (string, error) {
	return playScenarioFor(t, labWithin, sc, report, args...)
}

// playScenarioFor is playScenario for a run that may take so long.
func playScenarioFor(
	t *testing.T,
	within time.Duration,
	sc lab.Scenario,
	report string,
	args ...string,
) (string, error) {
	_, out, err := playLabFor(
		t,
		within,
		report,
		append([]string{"--scenario", scenarioFile(t, sc)}, args...)...,
	)
	return out, err
}

// scenarioFile writes sc where a lab can read it.
func scenarioFile(t *testing.T, sc lab.Scenario) string {
	t.Helper()
	text, err := yaml.Marshal(sc)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), sc.Name+".yaml")
	writeFile(t, file, string(text))
	return file
}

// playReport is playScenario where the lab must end well: its report and its output.
func playReport(t *testing.T, sc lab.Scenario, args ...string) (lab.Report, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	out, err := playScenario(t, sc, file, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r, err := readReport(file)
	if err != nil {
		t.Fatal(err)
	}
	return r, out
}

// worseWithin is how many iterations after it took force a mitigation that makes
// things worse is undone at most: 2 to settle, 8 to be measured, and the order's
// way to the ranks.
const worseWithin = 20

// worse are mitigations that bring a slowdown of their own, as long as they hold.
var worse = []struct {
	name    string
	approve string
	sc      func() lab.Scenario
}{
	{"worse-s2", "s2", func() lab.Scenario {
		sc := scenario("worse-s2", 4, 2, 1, 16, 3, 1000)
		sc.Events = append(calibrated(sc, 1.6, slowGPUs(1)),
			lab.Event{OnAction: "S2", All: 1.8},
		)
		return sc
	}},
	{"worse-s3", "s3", func() lab.Scenario {
		sc := scenario("worse-s3", 4, 4, 16, 8, 4, 20)
		sc.Events = append(calibrated(sc, 1.6, slowLinks("n5-n6")),
			lab.Event{OnAction: "S3", All: 1.8},
		)
		return sc
	}},
}

// A mitigation that makes things worse is undone.
func TestWorseIsReverted(t *testing.T) {
	if !*labKills {
		t.Skip("labs: run make swaps")
	}
	binFalcon(t)
	dir := reportDir(t)
	for _, w := range worse {
		file := reportFile(dir, w.name)
		r, err := readReport(file)
		out := ""
		if err != nil {
			out, err = playScenario(t, w.sc(), file, "--approve", w.approve)
			if err == nil {
				r, err = readReport(file)
			}
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", w.name, err, out)
			continue
		}
		if bad := judgeWorse(r); len(bad) > 0 {
			t.Errorf("%s: %s; %s\n%s", w.name, strings.Join(bad, "; "), actionStates(r), out)
			continue
		}
		a := actionsOf(r)[0]
		t.Logf("%s: %s applied at %d, measured %.1f ms against %.1f before, undone at %d: %s",
			w.name, a.ID, *a.AppliedIteration, a.MeasuredMs, a.BeforeMs, *a.RevertedIteration,
			a.RevertReason)
	}
}

func judgeWorse(r lab.Report) []string {
	all := actionsOf(r)
	if len(all) == 0 {
		return []string{"nothing was done"}
	}
	a := all[0]
	if a.RevertedIteration == nil {
		return []string{a.ID + " was not undone"}
	}
	if after := *a.RevertedIteration - *a.AppliedIteration; after > worseWithin {
		return []string{fmt.Sprintf("%s was undone after %d iterations, want at most %d",
			a.ID, after, worseWithin)}
	}
	return judgeLoss(r)
}
