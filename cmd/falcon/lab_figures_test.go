package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/failslow/falcon/agent/lab"
	"github.com/failslow/falcon/backend/sim/tabletest"
)

var (
	labFigures = flag.String("lab-figures", "",
		"play the paper's figures and write their tables to this file")
	labFigure = flag.String("lab-figure", "",
		"only figures whose name matches this expression; tables are made of the reports that are there")
)

// optimumShare is how much of what the cost model holds possible a cell of S2
// must reach; one of S3 must reach what the paper did.
const optimumShare = 0.95

// TestFigures plays the cells of the paper's figures 13 to 16 and what is wider
// than a cell, at most -lab-parallel at once, skips those whose report lies in
// -lab-out already, and writes the tables.
func TestFigures(t *testing.T) {
	if *labFigures == "" {
		t.Skip("minutes of labs: run make figures")
	}
	binFalcon(t)
	dir := reportDir(t)
	only, err := regexp.Compile(*labFigure)
	if err != nil {
		t.Fatal(err)
	}
	slots := make(chan struct{}, *labParallel)
	wait := sync.WaitGroup{}
	for _, r := range figureRuns() {
		if !only.MatchString(r.sc.Name) {
			continue
		}
		wait.Add(1)
		slots <- struct{}{}
		go func() {
			defer wait.Done()
			defer func() { <-slots }()
			r.play(t, dir)
		}()
	}
	wait.Wait()
	if err := os.WriteFile(*labFigures, []byte(figureTables(dir)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// figureRun is one run of a lab for the figures.
type figureRun struct {
	sc      lab.Scenario
	approve string
	noRef   bool // without the undisturbed run to compare the weights with
	judge   func(lab.Report) []string
}

func (r figureRun) play(t *testing.T, dir string) {
	scenario := filepath.Join(t.TempDir(), r.sc.Name+".yaml")
	text, err := yaml.Marshal(r.sc)
	if err != nil {
		t.Error(err)
		return
	}
	writeFile(t, scenario, string(text))
	args := []string{"--scenario", scenario, "--seed", itoa(figureSeed)}
	if r.approve != "" {
		args = append(args, "--approve", r.approve)
	}
	if r.noRef {
		args = append(args, "--no-reference")
	}
	judgeRun(t, r.sc.Name, reportFile(dir, r.sc.Name), args, r.judge)
}

// figureSeed is the seed of all figures' runs.
const figureSeed = 1

func reportFile(dir, name string) string {
	return filepath.Join(dir, name+".json")
}

func figureRuns() []figureRun {
	var out []figureRun
	for _, c := range figures() {
		out = append(out, figureRun{
			sc:      c.sc,
			approve: strings.ToLower(string(c.rung)),
			judge:   c.judge,
		})
	}
	return append(out, widerRuns()...)
}

// judge: the culprit was found, what could be gained was, and nothing was done
// where there was no room.
func (c figure) judge(r lab.Report) []string {
	bad := judgeSums(r)
	if !c.room {
		for _, a := range actionsOf(r) {
			bad = append(bad, fmt.Sprintf("%s was applied at %s, there is no room",
				a.ID, show(a.AppliedIteration)))
		}
		return bad
	}
	b, err := bestBy(c.sc, c.rung, c.events...)
	if err != nil {
		return append(bad, err.Error())
	}
	want := optimumShare * b.removed()
	if c.least > 0 {
		want = c.least
	}
	if r.SlowdownRemoved == nil || *r.SlowdownRemoved < want {
		bad = append(bad, fmt.Sprintf("removed %s of the slowdown, not %.3f (the model's optimum: %.3f)",
			showMs(r.SlowdownRemoved), want, b.removed()))
	}
	return bad
}

// judgeSums: the loss is the reference's, and the weights too unless a split
// changed the order of sums.
func judgeSums(r lab.Report) []string {
	bad := judgeLoss(r)
	if strings.HasPrefix(r.WeightsNote, "must be equal") && r.WeightsSha != r.ReferenceSha {
		bad = append(bad, fmt.Sprintf("weights %.12s, reference %.12s", r.WeightsSha, r.ReferenceSha))
	}
	return bad
}

func actionsOf(r lab.Report) []lab.ActionReport {
	var out []lab.ActionReport
	for _, in := range r.Incidents {
		for _, a := range in.Actions {
			if a.AppliedIteration != nil {
				out = append(out, a)
			}
		}
	}
	slices.SortFunc(out, func(a, b lab.ActionReport) int {
		return int(*a.AppliedIteration - *b.AppliedIteration)
	})
	return out
}

// row is one line of a figure's table.
func (c figure) row(dir string) []string {
	r, err := readReport(reportFile(dir, c.sc.Name))
	if err != nil {
		return nil
	}
	b, err := bestBy(c.sc, c.rung, c.events...)
	if err != nil {
		return nil
	}
	removed := "no action"
	if len(actionsOf(r)) > 0 {
		removed = percent(r.SlowdownRemoved)
	}
	optimum := "no room"
	if c.room {
		v := b.removed()
		optimum = percent(&v)
	}
	if len(c.events) == 0 {
		optimum = "no fault"
	}
	return []string{
		c.setting,
		millis(r.HealthyMs),
		millis(r.SlowMs) + ofHealthy(r.SlowMs, r.HealthyMs),
		millis(r.MitigatedMs) + ofHealthy(r.MitigatedMs, r.HealthyMs),
		removed,
		c.paper,
		optimum,
		predictionError(r),
		sums(r),
	}
}

// sums says how the loss and the weights compare with the reference's.
func sums(r lab.Report) string {
	loss := "loss differs"
	d := math.Abs(r.FinalLoss-r.ReferenceLoss) / math.Abs(r.ReferenceLoss)
	if d <= 1e-4 {
		loss = fmt.Sprintf("loss within %.0e", max(d, 1e-12))
	}
	if r.WeightsSha != "" && r.WeightsSha == r.ReferenceSha {
		return "same bits"
	}
	return loss
}

// predictionError is the last kept action's: measured over predicted − 1.
func predictionError(r lab.Report) string {
	all := actionsOf(r)
	for _, a := range slices.Backward(all) {
		if a.Outcome == "kept" && a.MeasuredMs > 0 && a.PredictedMs > 0 {
			return fmt.Sprintf("%+.1f %%", 100*(a.MeasuredMs/a.PredictedMs-1))
		}
	}
	return ""
}

func percent(v *float64) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100**v)
}

func millis(v *float64) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%.1f", *v)
}

func ofHealthy(v, healthy *float64) string {
	if v == nil || healthy == nil {
		return ""
	}
	return fmt.Sprintf(" (%.2f ×)", *v / *healthy)
}

// mdTable is a table in Markdown.
func mdTable(head []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	line(head)
	line(slices.Repeat([]string{"---"}, len(head)))
	for _, r := range rows {
		line(r)
	}
	return b.String()
}

// figureTables is docs/results/figures.md, of the reports that are there.
func figureTables(dir string) string {
	var b strings.Builder
	b.WriteString(figuresHead(dir))
	titles := []struct{ figure, title string }{
		{"13", "Figure 13: S2, one slow GPU of 8, by replicas and severity"},
		{"14", "Figure 14: S2, several slow replicas of 4"},
		{"15", "Figure 15: S3, one congested link, by stages and severity"},
		{"16", "Figure 16: S3, congested links in several stages of 4 × 4"},
	}
	head := []string{
		"setting", "healthy ms", "slow ms", "mitigated ms", "removed", "paper",
		"optimum of the cost model", "measured over predicted", "against the reference run",
	}
	for _, w := range titles {
		var rows [][]string
		for _, c := range figures() {
			if row := c.row(dir); c.figure == w.figure && row != nil {
				rows = append(rows, row)
			}
		}
		if len(rows) > 0 {
			fmt.Fprintf(&b, "\n## %s\n\n%s", w.title, mdTable(head, rows))
		}
	}
	b.WriteString(widerTables(dir))
	return b.String()
}

// figuresHead says how the tables were made.
func figuresHead(dir string) string {
	builds := map[string]bool{}
	files, _ := filepath.Glob(filepath.Join(dir, "*.json")) // the pattern is well-formed
	for _, f := range files {
		if r, err := readReport(f); err == nil {
			builds[r.Build] = true
		}
	}
	var names []string
	for n := range builds {
		names = append(names, n)
	}
	slices.Sort(names)
	stamp, err := tabletest.Stamp("../..", "results/figures.md", "-")
	if err != nil {
		stamp = err.Error()
	}
	return fmt.Sprintf(`# The paper's figures, in the lab

Written by %s; nothing here is typed by hand. %s Builds: %s. Seed %d. %s

GPUs and links are emulated, processes, agents, engine, detection, decisions,
swaps and restarts are real. Every run starts healthy; the fault comes at
iteration %d, unannounced, and Falcon finds, decides and acts by itself under a
policy that allows it. Faults are calibrated by the cost model of what the lab
emulates, so that the unmitigated iteration is as slow as the paper says; where
the paper's text names no slowdown (figures 13 and 15) weak, medium and severe
are %.1f, %.1f and %.1f ×. "Removed" is (slow − mitigated) / (slow − healthy) of
the iteration times' medians, each figure's within one run; healthy is the phase
before the fault alone. The machine's speed drifts between phases, and shares above
100 %% are that drift: [figures-sim.md](figures-sim.md) has the shares of 20 seeds
against healthy phases on both sides of each fault, on a simulated network. The optimum is the same share by the cost model
with the faults known exactly (the best split for S2; the best placement with
the best split for S3). Where S3 ran alone the weights must be the reference
run's to the bit; an uneven split sums in another order, and the loss must agree
within 1e-4.
`,
		"`make figures`", machine(), strings.Join(names, ", "), figureSeed, stamp, faultAt,
		severities[0].target, severities[1].target, severities[2].target)
}
