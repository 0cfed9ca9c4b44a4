package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
)

// Runs that are wider than a cell: the climb of figure 17, the price of moving
// state of figure 19, and long runs with many faults (table 7, the slides' 256
// GPUs) with Falcon and without.

// widerRuns are all of them.
func widerRuns() []figureRun {
	climb, err := lab.Load("climb")
	if err != nil {
		panic(err)
	}
	climb.Name = climbName
	out := []figureRun{{sc: climb, judge: judgeClimb}}
	for _, mb := range stateSizes {
		out = append(out, figureRun{sc: moveScenario(mb), judge: judgeMove})
	}
	for _, m := range mixes() {
		for _, with := range []bool{false, true} {
			r := figureRun{
				sc:    m.scenario(with),
				noRef: true,
				judge: judgeWhole,
			}
			if !with {
				r.approve = "never"
			}
			out = append(out, r)
		}
	}
	return out
}

// judgeWhole: all iterations were trained. How much a mix gains is given by its
// two runs together, and what becomes of the weights by the other figures.
func judgeWhole(r lab.Report) []string {
	for i, it := range r.Iterations {
		if it.Index != int64(i) {
			return []string{fmt.Sprintf("iteration %d is missing", i)}
		}
	}
	return nil
}

const climbName = "fig17-climb"

// judgeClimb: S3, then S2, then S4, each by policy; at the end full speed.
func judgeClimb(r lab.Report) []string {
	bad := judgeSums(r)
	var rungs []string
	for _, a := range actionsOf(r) {
		if !slices.Contains(rungs, a.Rung) {
			rungs = append(rungs, a.Rung)
		}
	}
	if !slices.Equal(rungs, []string{"S3", "S2", "S4"}) {
		bad = append(bad, fmt.Sprintf("rungs taken %v, want S3, S2, S4", rungs))
	}
	if len(r.Restarts) != 1 {
		bad = append(bad, fmt.Sprintf("%d restarts, want 1", len(r.Restarts)))
	}
	last := lastPhase(r)
	if last == nil ||
		r.HealthyMs == nil ||
		math.Abs(last.MedianMs / *r.HealthyMs - 1) > 0.03 {
		bad = append(bad, fmt.Sprintf("ends with %+v, healthy %s ms", last, showMs(r.HealthyMs)))
	}
	return bad
}

func lastPhase(r lab.Report) *lab.Phase {
	if len(r.Phases) == 0 {
		return nil
	}
	return &r.Phases[len(r.Phases)-1]
}

// stateSizes are figure 19's, in 10⁶ bytes per GPU: at 1 : 10⁴ a GPU's 20, 40
// and 80 GB.
var stateSizes = []float64{2, 4, 8}

// moveScenario makes one job swap nodes in memory (a congested link), and then
// restart from disk (a throttling GPU, S2 forbidden). At 1 : 10⁴ in size and
// 1 : 5 in time the rates are those of 25 GB/s between device and host, 40 GB/s
// between nodes and 2 GB/s of storage for each GPU.
func moveScenario(mb float64) lab.Scenario {
	sc := scenario(fmt.Sprintf("fig19-%gmb", mb), 4, 4, 16, 8, 4, 20)
	sc.Spares, sc.Iterations = 2, 220 // one for the GPU's node, one for an end of the link
	sc.StateMB = mb
	sc.CopyGBs = 0.0125
	sc.DiskMBs = 1
	sc.Events = append(calibrated(sc, 1.7, slowLinks("n1-n2")),
		lab.Event{AtIteration: 110, GPU: "n6.g0", Clock: 0.3},
	)
	sc.Policy = map[string]any{
		"mode":  "auto",
		"cap":   "S4",
		"owner": "lab",
		"rungs": map[string]any{"S2": map[string]any{"approval": "never"}},
	}
	sc.Overheads = map[falcon.Rung]float64{falcon.RungS4: 6000}
	return sc
}

// judgeMove: both ways were gone, and the swap's overhead beyond its copies
// stayed below a second.
func judgeMove(r lab.Report) []string {
	bad := judgeSums(r)
	if len(r.Swaps) == 0 ||
		len(r.Swaps[0].Applied) != r.Ranks ||
		len(r.Restarts) == 0 {
		return append(bad, fmt.Sprintf("swaps %+v, restarts %+v, want one of each", r.Swaps, r.Restarts))
	}
	if s := r.Swaps[0]; s.ControlMs > 1000 {
		bad = append(bad, fmt.Sprintf("the swap took %.0f ms beyond its copies of %.0f ms",
			s.ControlMs, s.EmulatedMs))
	}
	return bad
}

// mix is a long run with two congested links and eight slow GPUs.
type mix struct {
	name, title, paper string
	base               lab.Scenario
	links              [2]string
	gpus               [8]string
	slowdown           float64 // mean, without Falcon
}

// Lengths of a mix's faults, in iterations: the ten minutes of a computation
// fault of figure 20, at the 17.1 iterations a minute of table 7.
const (
	mixGPU  = 170
	mixLink = 340
)

// mixSeverities are the unmitigated slowdowns of the eight GPUs' faults, and of
// the two links'.
var mixSeverities = struct {
	gpu  [8]float64
	link [2]float64
}{[8]float64{1.3, 1.9, 1.6, 1.5, 1.4, 1.8, 1.5, 1.7}, [2]float64{1.6, 1.7}}

func mixes() []mix {
	return []mix{
		{
			name:     "table7",
			title:    "Table 7 and figure 20: 2 communication and 8 computation faults (16 ranks for the paper's 64)",
			paper:    "60.1 % (17.1, 14.8 and 16.2 iterations/min)",
			base:     scenario("", 4, 4, 16, 8, 3, 20),
			links:    [2]string{"n1-n2", "n5-n6"},
			slowdown: 17.1 / 14.8,
			gpus:     [8]string{"n3.g0", "n6.g0", "n9.g0", "n12.g0", "n0.g0", "n15.g0", "n10.g0", "n5.g0"},
		},
		{
			name:     "gpus256",
			title:    "The slides' mixed run of 8 TP × 16 DP × 2 PP, at 2 × 4 × 2 on 8 nodes of 2 GPUs",
			paper:    "not stated",
			base:     tensorParallel(scenario("", 4, 2, 8, 8, 3, 20)),
			links:    [2]string{"n1-n2", "n5-n6"},
			slowdown: 17.1 / 14.8,
			gpus:     [8]string{"n3.g1", "n6.g0", "n2.g1", "n5.g0", "n0.g0", "n7.g1", "n4.g0", "n1.g1"},
		},
	}
}

func tensorParallel(sc lab.Scenario) lab.Scenario {
	sc.Layout.TP = 2
	return sc
}

// scenario lays the faults out so that the job is as slow as said without
// Falcon: GPUs one after another, two of them while a link is slow, and as much
// healthy time between them as that takes.
func (m mix) scenario(with bool) lab.Scenario {
	sc := m.base
	sc.Name = m.name + "-without"
	if with {
		sc.Name = m.name + "-with"
		sc.Policy = map[string]any{"mode": "auto", "cap": "S3", "owner": "lab"}
	}
	slots := m.slots()
	length := int64(0)
	excess := 0.0
	healthy := truth(sc).Iteration(sc.Placement(), even(sc)).IterationMs
	for _, s := range slots {
		length += s.length
		for i := range s.length {
			excess += truth(sc, s.at(i)...).Iteration(sc.Placement(), even(sc)).IterationMs/healthy - 1
		}
	}
	total := int64(excess / (m.slowdown - 1))
	gap := max(30, (total-length)/int64(len(slots)+1))
	at := gap
	for _, s := range slots {
		for _, e := range s.events {
			e.AtIteration = at + e.AtIteration
			e.UntilIteration = at + e.UntilIteration
			sc.Events = append(sc.Events, e)
		}
		at += s.length + gap
	}
	sc.Iterations = int(at)
	return sc
}

// slot is a stretch with faults, dated from its start.
type slot struct {
	length int64
	events []lab.Event
}

func (s slot) at(i int64) []lab.Event {
	var out []lab.Event
	for _, e := range s.events {
		if i >= e.AtIteration && i < e.UntilIteration {
			out = append(out, e)
		}
	}
	return out
}

// slots are six GPUs alone, and two links each with a GPU in its second half.
func (m mix) slots() []slot {
	gpu := func(k int, from int64) lab.Event {
		e := calibrated(m.base, mixSeverities.gpu[k], func(clock float64) []lab.Event {
			return []lab.Event{{GPU: m.gpus[k], Clock: clock}}
		})[0]
		e.AtIteration = from
		e.UntilIteration = from + mixGPU
		return e
	}
	link := func(k, with int) slot {
		e := calibrated(m.base, mixSeverities.link[k], slowLinks(m.links[k]))[0]
		e.AtIteration, e.UntilIteration = 0, mixLink
		return slot{mixLink, []lab.Event{e, gpu(with, mixLink-mixGPU)}}
	}
	alone := func(k int) slot {
		return slot{mixGPU, []lab.Event{gpu(k, 0)}}
	}
	return []slot{alone(0), alone(1), link(0, 2), alone(3), alone(4), link(1, 5), alone(6), alone(7)}
}

// widerTables are their tables, of the reports that are there.
func widerTables(dir string) string {
	var b strings.Builder
	if r, err := readReport(reportFile(dir, climbName)); err == nil {
		b.WriteString(
			"\n## Figure 17: the whole ladder by itself\n\n`falcon lab run --scenario climb`; phases between one change of faults or actions and the next. The paper: 1.7 iterations/s, 1.0 with the link, 1.3 after S3, 0.5 with the GPU, 0.9 after S2, 1.7 after S4.\n\n",
		)
		b.WriteString(mdTable(
			[]string{"from iteration", "to", "ms", "of healthy", "faults", "actions in force"},
			phaseRows(r),
		))
	}
	b.WriteString(moveTable(dir))
	for _, m := range mixes() {
		b.WriteString(m.table(dir))
	}
	return b.String()
}

func phaseRows(r lab.Report) [][]string {
	var out [][]string
	for _, p := range r.Phases {
		ms := p.MedianMs
		share := ""
		if r.HealthyMs != nil {
			share = fmt.Sprintf("%.2f ×", ms / *r.HealthyMs)
		}
		out = append(out, []string{
			fmt.Sprint(p.From),
			fmt.Sprint(p.To),
			millis(&ms),
			share,
			strings.Join(p.Faults, ", "),
			strings.Join(p.Actions, ", "),
		})
	}
	return out
}

// moveTable is figure 19: a swap in memory beside a restart from disk.
func moveTable(dir string) string {
	var rows [][]string
	for _, mb := range stateSizes {
		r, err := readReport(reportFile(dir, moveScenario(mb).Name))
		if err != nil || len(r.Swaps) == 0 || len(r.Restarts) == 0 {
			continue
		}
		s, d := r.Swaps[0], r.Restarts[0]
		ms := func(v float64) string { return fmt.Sprintf("%.0f", v) }
		rows = append(rows, []string{
			fmt.Sprintf("%g MB", mb),
			ms(s.StepMs["pause"]),
			ms(s.StepMs["dump"]),
			ms(s.StepMs["swap"]),
			ms(s.StepMs["restore"]),
			ms(s.TotalMs),
			ms(s.ControlMs),
			ms(d.DumpMs + d.StoreMs),
			ms(d.LaunchMs),
			ms(d.LoadMs + d.RestoreMs),
			ms(d.DownMs),
			fmt.Sprintf("%.2f ×", d.DownMs/s.TotalMs),
		})
	}
	if len(rows) == 0 {
		return ""
	}
	return "\n## Figure 19: swapping in memory beside a restart from disk, in one run\n\nMilliseconds on the slowest rank; the state and the rates of its copies are emulated (at 1 : 10⁴ in size and 1 : 5 in time: 25 GB/s between device and host, 40 GB/s between nodes, 2 GB/s of storage for each GPU); communicators, votes and processes are real and not scaled. \"Beyond copies\" is what the swap took besides moving state. The paper: 6.72 × at most.\n\n" +
		mdTable(
			[]string{
				"state of a GPU", "pause", "dump", "swap", "restore", "swap in all",
				"beyond copies", "checkpoint to disk", "launch", "load from disk",
				"restart in all", "restart over swap",
			},
			rows,
		)
}

// table compares the two runs of a mix.
func (m mix) table(dir string) string {
	without, err1 := readReport(reportFile(dir, m.scenario(false).Name))
	with, err2 := readReport(reportFile(dir, m.scenario(true).Name))
	if err1 != nil || err2 != nil || without.HealthyMs == nil {
		return ""
	}
	n := float64(len(without.Iterations))
	healthy := *without.HealthyMs * n
	slow := jobMs(without)
	mitigated := jobMs(with)
	rate := func(ms float64) string { return fmt.Sprintf("%.1f", 60_000*n/ms) }
	rows := [][]string{
		{"healthy", rate(healthy), "1.000", ""},
		{
			"without Falcon",
			rate(slow),
			fmt.Sprintf("%.3f", slow/healthy),
			fmt.Sprintf("%.1f", lostMs(without)/1e3),
		},
		{
			"with Falcon",
			rate(mitigated),
			fmt.Sprintf("%.3f", mitigated/healthy),
			fmt.Sprintf("%.1f", lostMs(with)/1e3),
		},
	}
	counts := map[string]int{}
	for _, a := range actionsOf(with) {
		counts[a.Rung]++
	}
	text := "%d iterations, the same faults in both runs. Lost is what iterations took beyond the healthy median of their run while a fault was there or an action in force, and all pauses that Falcon made. Actions: %d × S2, %d × S3. **Slowdown removed: %.1f %%**; the paper: %s. By the time of all iterations, those in between too, in which the machine's own noise of 1 %% counts for 5: %.1f %%."
	return fmt.Sprintf(
		"\n## %s\n\n"+text+"\n\n",
		m.title,
		int(n),
		counts["S2"],
		counts["S3"],
		100*(1-lostMs(with)/lostMs(without)),
		m.paper,
		100*(slow-mitigated)/(slow-healthy),
	) +
		mdTable([]string{"run", "iterations/min", "job completion time over healthy", "lost s"}, rows)
}

// jobMs is the time of all iterations, with the pauses that Falcon made.
func jobMs(r lab.Report) float64 {
	sum := 0.0
	for _, i := range r.Iterations {
		sum += i.Ms + i.PausedMs
	}
	return sum
}

// lostMs is what a run lost to its faults, and to what was done about them.
func lostMs(r lab.Report) float64 {
	sum := 0.0
	for _, i := range r.Iterations {
		sum += i.PausedMs
	}
	for _, p := range r.Phases {
		if len(p.Faults) == 0 && len(p.Actions) == 0 || r.HealthyMs == nil {
			continue
		}
		for _, i := range r.Iterations {
			if i.Index >= p.From && i.Index < p.To {
				sum += i.Ms - *r.HealthyMs
			}
		}
	}
	return sum
}

// What counts as lost: pauses always, slow iterations only where there is a
// reason for them.
func TestLost(t *testing.T) {
	healthy := 100.0
	r := lab.Report{
		Medians: lab.Medians{HealthyMs: &healthy},
		Phases: []lab.Phase{
			{From: 0, To: 2},
			{From: 2, To: 4, Faults: []string{"gpu n0.g0"}},
			{From: 4, To: 5, Actions: []string{"INC-0001/S2/1"}},
			{From: 5, To: 6},
		},
	}
	for i, ms := range []float64{100, 130, 150, 140, 90, 170} {
		r.Iterations = append(r.Iterations, lab.Iteration{
			Index:    int64(i),
			Ms:       ms,
			PausedMs: float64(i % 2),
		})
	}
	if got := lostMs(r); got != 50+40-10+3 {
		t.Errorf("%v ms", got)
	}
	if got := jobMs(r); got != 783 {
		t.Errorf("%v ms in all", got)
	}
}
