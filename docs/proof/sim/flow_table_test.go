package sim

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/sim/tabletest"
)

var (
	flowSeeds = flag.Int("flow-seeds", 0, "seeds of each cell of the figures played by flows; 0 = none")
	flowOut   = flag.String("flow-out", "", "Markdown file whose marked parts are replaced")
)

// leastOfOptimum is the share of what the best split can remove that ours has to.
const leastOfOptimum = 0.95

// judged is one cell over its seeds.
type judged struct {
	cell
	healthyMs, slowMs           float64
	trials                      []seedTrial
	removed, plan, ofBest, miss []float64 // by seed, by fault and by action
	best                        optimum
	hasBest                     bool
}

// judge plays a cell's seeds. What the plans are worth is also found without noise.
func judge(c cell, seeds int) judged {
	c.times = c.severity()
	out := judged{cell: c, trials: overSeeds(seeds, c.play)}
	out.healthyMs, out.slowMs = c.shape.plainMs(nil, nil, nil), c.shape.plainMs(c.at(out.times), nil, nil)
	if c.rung() == "S3" {
		out.best, out.hasBest = c.shape.bestNodes(c.at(out.times))
	} else {
		out.best, out.hasBest = c.shape.bestSplit(c.at(out.times)), true
	}
	for _, t := range out.trials {
		out.addTrial(t)
	}
	return out
}

func (j *judged) addTrial(t seedTrial) {
	if len(t.cycles) > 0 {
		j.removed = append(j.removed, t.removed())
	}
	for _, y := range t.cycles {
		share := 0.0 // where nothing was done
		if y.acted {
			share = j.planShare(y.mitigated.last, j.times)
		}
		j.plan = append(j.plan, share)
		if j.hasBest {
			j.ofBest = append(j.ofBest, share/j.shareOf(j.times, j.best.ms))
		}
	}
	for _, a := range t.actions {
		if a.MeasuredMs > 0 {
			j.miss = append(j.miss, a.PredictedMs/a.MeasuredMs-1)
		}
	}
}

// overSeeds plays seeds 1 … n on all processors.
func overSeeds[T any](n int, play func(seed uint64) T) []T {
	out := make([]T, n)
	var next atomic.Int64
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				out[i] = play(uint64(i + 1))
			}
		})
	}
	wait.Wait()
	return out
}

// shares is median, least and most in percent.
func shares(v []float64) string {
	if len(v) == 0 {
		return "nothing done"
	}
	v = slices.Sorted(slices.Values(v))
	return fmt.Sprintf("%.1f %% (%.1f to %.1f)",
		100*falcon.Median(v), 100*v[0], 100*v[len(v)-1])
}

// misses is the median error, and the quartiles and the worst.
func misses(v []float64) string {
	if len(v) == 0 {
		return ""
	}
	v = slices.Sorted(slices.Values(v))
	worst := v[0]
	if math.Abs(v[len(v)-1]) > math.Abs(worst) {
		worst = v[len(v)-1]
	}
	at := func(p float64) float64 {
		return 100 * stat.Quantile(p, stat.LinInterp, v, nil)
	}
	return fmt.Sprintf("%+.1f %% (%+.1f to %+.1f; worst %+.1f)",
		at(0.5), at(0.25), at(0.75), 100*worst)
}

func (j judged) missed() (n, of int) {
	for _, t := range j.trials {
		n, of = n+t.missed, of+len(t.cycles)
	}
	return n, of
}

// reason is why nothing was done about a fault, if that was so.
func (j judged) reason() string {
	for _, t := range j.trials {
		if t.missed > 0 && t.why != "" {
			return ": " + t.why
		}
	}
	return ""
}

// knownShort are the cells that fall short of what is asked, and why. A cell that no
// longer does has to leave the list.
var knownShort = map[string]string{}

func fallsShort(t *testing.T, name string, short bool, how string) {
	t.Helper()
	switch why, known := knownShort[name]; {
	case short && known:
		t.Logf("%s: %s, as is known: %s", name, how, why)
	case short:
		t.Errorf("%s: %s", name, how)
	case known:
		t.Errorf("%s no longer falls short: take it from knownShort", name)
	}
}

func (j judged) row() string {
	paper := ""
	if j.paper > 0 {
		paper = fmt.Sprintf("%.1f %% (%s)", 100*j.paper, j.paperText)
	}
	best := "as fast as healthy is the bound"
	if j.hasBest {
		how := "all"
		if !j.best.all {
			how = "within a box,"
		}
		best = fmt.Sprintf("%.1f %% (%s %d)",
			100*j.shareOf(j.times, j.best.ms), how, j.best.played)
	}
	missed, of := j.missed()
	return fmt.Sprintf("| %s | %.2f | %.0f | %.2f × | %s | %s | %s | %s | %s | %d of %d |\n",
		j.name, j.times, j.healthyMs, j.slowMs/j.healthyMs,
		shares(j.removed), paper, shares(j.plan), best, misses(j.miss), of-missed, of)
}

const cellsHead = `| setting | severity | healthy ms | slow | removed: median (least to most) | paper | the plan without noise | best plan of its kind (played) | predicted over measured: median (quartiles; worst) | faults acted on |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
`

func TestFlowFigures(t *testing.T) {
	for _, f := range []struct {
		number, title string
		cells         []cell
	}{
		{"13", "Figure 13: S2, one slow GPU of 8, by replicas and severity", cellsOf13()},
		{"14", "Figure 14: S2, several slow replicas of 4", cellsOf14()},
		{"15", "Figure 15: S3, one congested path among 16 GPUs, by stages and severity", cellsOf15()},
		{"16", "Figure 16: S3, congested paths in several stages of 4 × 4", cellsOf16()},
	} {
		t.Run(f.number, func(t *testing.T) {
			page := beginFlow(t, "flow-"+f.number, f.title)
			var b strings.Builder
			b.WriteString(cellsHead)
			for _, c := range f.cells {
				j := judge(c, *flowSeeds)
				b.WriteString(j.row())
				t.Logf("figure %s: %s", c.figure, strings.TrimSpace(j.row()))
				j.check(t)
			}
			page.write(t, b.String())
		})
	}
}

// check holds a cell against what is asked of it.
func (j judged) check(t *testing.T) {
	t.Helper()
	if len(j.removed) == 0 {
		t.Errorf("figure %s, %s: nothing was done in any seed", j.figure, j.name)
		return
	}
	s2 := j.rung() == "S2"
	if got := falcon.Median(j.ofBest); s2 && got < leastOfOptimum {
		t.Errorf("figure %s, %s: the splits remove %.3f of what the best can", j.figure, j.name, got)
	}
	if got := falcon.Median(j.removed); !s2 && got < j.paper {
		t.Errorf("figure %s, %s: %.3f of the slowdown removed, the paper's is %.3f",
			j.figure, j.name, got, j.paper)
	}
}

// TestFlowTwoNodes is figure 15 on two nodes, where whole nodes can't change places to any use.
func TestFlowTwoNodes(t *testing.T) {
	page := beginFlow(t, "flow-two-nodes", "Figure 15 on 2 nodes of 8 GPUs")
	var b strings.Builder
	b.WriteString(`With two nodes both orders are the same job on the same paths, so only an exchange of
single ranks can help. "Single ranks" is the best of all divisions of the 16 ranks over
the two nodes, played one by one without noise; beyond 100 % it is better than the places
that the job had when all was well. The path is the only one between the job's nodes, so
no test has anything to compare it with: it is named by what the rings took before. Falcon's
shares are of each run's first fault, against the healthy phase before it: an exchange often
stays in force beyond its fault, as nothing shows soon that the path is well again.

| setting | severity | slow | whole nodes | best of single ranks (played) | paper | Falcon: median (least to most) | faults acted on |
| --- | --- | --- | --- | --- | --- | --- | --- |
`)
	for _, c := range cellsOnTwoNodes() {
		c.times = c.severity()
		times := c.times
		healthy, slow := c.shape.plainMs(nil, nil, nil), c.shape.plainMs(c.at(times), nil, nil)
		home := c.shape.home()
		swapped := append(slices.Clone(home[8:]), home[:8]...)
		whole := min(slow, c.shape.plainMs(c.at(times), swapped, nil))
		best := c.shape.bestDivision(c.at(times))
		var removed []float64
		acted, why := 0, ""
		for _, y := range overSeeds(*flowSeeds, c.play) {
			removed, why = append(removed, y.first), cmp.Or(why, y.why)
			if y.actedFirst {
				acted++
			}
		}
		row := fmt.Sprintf(
			"| %s | %.2f | %.2f × | %.1f %% | %.1f %% (%d) | %.1f %% (%s) | %.1f %% (%.1f to %.1f) | %d of %d |\n",
			c.name, times, slow/healthy,
			100*c.shareOf(times, whole), 100*c.shareOf(times, best.ms), best.played,
			100*c.paper, c.paperText,
			100*falcon.Median(slices.Clone(removed)), 100*slices.Min(removed),
			100*slices.Max(removed), acted, len(removed),
		)
		if got := falcon.Median(slices.Clone(removed)); got < c.paper {
			t.Errorf("%s: %.3f of the slowdown removed, the paper's is %.3f; %s", c.name, got, c.paper, why)
		}
		t.Log(strings.TrimSpace(row))
		b.WriteString(row)
	}
	page.write(t, b.String())
}

// smallCells are jobs so small that all splits are played. The slow rank is the seed's.
func smallCells() (out []cell) {
	for _, s := range []struct{ dp, pp, micro int }{{2, 2, 6}, {2, 4, 8}, {3, 2, 6}, {4, 1, 6}, {4, 2, 4}} {
		for _, v := range severityNames {
			l := falcon.Layout{TP: 1, DP: s.dp, PP: s.pp}
			out = append(out, cell{
				figure: "small",
				name: fmt.Sprintf("%d × %d, %d micro-batches each, %s",
					s.dp, s.pp, s.micro, v.name),
				target: v.target,
				shape:  shapeOf("small", l, l.World(), s.micro),
			})
		}
	}
	return out
}

// TestFlowSplits holds S2 against all splits.
func TestFlowSplits(t *testing.T) {
	page := beginFlow(t, "flow-splits", "S2 beside all splits")
	var b strings.Builder
	b.WriteString(`One slow GPU at a place of the seed's. "Of the best" is what the split that Falcon put into
force removes without noise, over what the best of all splits does. A fault on which nothing
was done counts as 0 %, and the planner's first reason follows.

| replicas × stages | of the best: median (least to most) | splits played | predicted over measured | faults acted on |
| --- | --- | --- | --- | --- |
`)
	for _, c := range smallCells() {
		all := judged{cell: c}
		for i, j := range overSeeds(*flowSeeds, func(seed uint64) judged {
			d := c
			d.faults = slowDevices(int(seed) % c.shape.Layout.World())
			d.times = d.severity()
			one := judged{cell: d, hasBest: true}
			one.best = d.shape.bestSplit(d.at(one.times))
			one.trials = []seedTrial{d.play(seed)}
			one.addTrial(one.trials[0])
			return one
		}) {
			if !j.best.all {
				t.Fatalf("%s, seed %d: splits were left out", c.name, i+1)
			}
			all.ofBest = append(all.ofBest, j.ofBest...)
			all.miss = append(all.miss, j.miss...)
			all.trials = append(all.trials, j.trials...)
			all.best = j.best
		}
		missed, of := all.missed()
		row := fmt.Sprintf("| %s | %s | %d | %s | %d of %d%s |\n",
			c.name, shares(all.ofBest), all.best.played, misses(all.miss), of-missed, of,
			all.reason())
		t.Log(strings.TrimSpace(row))
		b.WriteString(row)
		fallsShort(
			t,
			c.name,
			len(all.ofBest) == 0 || falcon.Median(all.ofBest) < leastOfOptimum,
			fmt.Sprintf("the splits remove less than %v of what the best can", leastOfOptimum),
		)
	}
	page.write(t, b.String())
}

// flowPart is a part of the page that a test writes.
type flowPart struct {
	mark, title   string
	start         time.Time
	commit, stamp string // of when it began
}

// beginFlow begins a part, or skips it.
func beginFlow(t *testing.T, mark, title string) flowPart {
	t.Helper()
	if *flowSeeds < 1 {
		t.Skip("takes minutes: -flow-seeds 20, or make flow")
	}
	p := flowPart{
		mark:   mark,
		title:  title,
		start:  time.Now(),
		commit: tabletest.Commit(),
	}
	var err error
	if p.stamp, err = tabletest.Stamp("../../..", "results/figures-sim.md", mark); err != nil {
		t.Fatal(err)
	}
	return p
}

// write replaces the part on the page.
func (p flowPart) write(t *testing.T, tables string) {
	t.Helper()
	if *flowOut == "" {
		return
	}
	text := fmt.Sprintf(
		"## %s (simulated)\n\n`make flow FLOW_SEEDS=%d`, seeds 1 to %d, %.0f s on %d cores of %s, %s, %s, commit %s. %s\n\n%s",
		p.title, *flowSeeds, *flowSeeds, time.Since(p.start).Seconds(), runtime.GOMAXPROCS(0),
		tabletest.Processor(), runtime.Version(), p.start.UTC().Format(time.DateOnly),
		p.commit, p.stamp, tables,
	)
	if err := tabletest.WritePart(*flowOut, p.mark, "make flow", text); err != nil {
		t.Fatal(err)
	}
}
