package main

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
)

// How the runs of the matrix are timed: iterations of 45 ms, so that a recovery
// is most of a run.
const (
	pointAt       = 30
	pointLast     = 50
	pointMicro    = 4
	pointForward  = 3
	pointIterates = (pointMicro + 1) * 3 * pointForward // ms, by the 1F1B schedule of two stages
)

// recoverLayouts are plain data parallelism with tensor parallelism inside the
// nodes, and ZeRO-1 whose shards are there twice.
var recoverLayouts = []struct {
	name  string
	shape lab.Shape
}{
	{"plain", lab.Shape{TP: 2, DP: 2, PP: 2}},
	{"zero", lab.Shape{TP: 1, DP: 4, PP: 2, Zero: 1, Instances: 2}},
}

// recoverScenario is a job of 8 ranks on 4 nodes with spares, and deaths.
func recoverScenario(name string, shape lab.Shape, spares int, deaths ...lab.Event) lab.Scenario {
	return lab.Scenario{
		Name:         name,
		About:        "Generated: faults that stop a part of the job.",
		Layout:       shape,
		Nodes:        4,
		Spares:       spares,
		Iterations:   pointLast,
		MicroBatches: pointMicro,
		ForwardMs:    pointForward,
		WarmUp:       10,
		LinkMBs:      1000,
		NICs:         1,
		Events:       deaths,
	}
}

// recoverMatrix is every point × layout × rank or node. At a point of a recovery
// another rank has died before.
func recoverMatrix() []recoverRun {
	var out []recoverRun
	for _, l := range recoverLayouts {
		for _, victim := range []string{"rank 5", "node n2"} {
			for i, point := range lab.Points {
				r := recoverRun{want: recoveryWants{replaced: ranksOf(victim), kills: 1}}
				deaths := []lab.Event{{AtIteration: pointAt, Kill: victim, Point: point}}
				if i >= slices.Index(lab.Points, "park") {
					deaths = append(deaths, lab.Event{
						AtIteration: pointAt,
						Kill:        "rank 1",
						Point:       "forward",
					})
					r.want.replaced = append([]int{1}, r.want.replaced...)
					r.want.kills = 2
				}
				r.sc = recoverScenario(
					fmt.Sprintf("%s-%s-%s", l.name, victim[:4], point),
					l.shape,
					2,
					deaths...,
				)
				out = append(out, r)
			}
		}
	}
	return out
}

// recoverConsole kills the console in the middle of a recovery: about so long
// after a rank has died.
func recoverConsole() []recoverRun {
	var out []recoverRun
	for _, ms := range []float64{40, 150, 300, 450} {
		l := recoverLayouts[1]
		deaths := []lab.Event{
			{AtIteration: pointAt, Kill: "console", AfterMs: ms},
			{AtIteration: pointAt, Kill: "rank 5", Point: "forward"},
		}
		out = append(out, recoverRun{
			sc:   recoverScenario(fmt.Sprintf("console-%.0f", ms), l.shape, 1, deaths...),
			want: recoveryWants{replaced: []int{5}, kills: 2},
		})
	}
	return out
}

// ranksOf are the ranks of a victim, two to a node.
func ranksOf(victim string) []int {
	var n int
	if _, err := fmt.Sscanf(victim, "rank %d", &n); err == nil {
		return []int{n}
	}
	if _, err := fmt.Sscanf(victim, "node n%d", &n); err != nil {
		panic(err)
	}
	return []int{2 * n, 2*n + 1}
}

// randomRecoveries are faults of ranks and nodes at moments that the seed draws,
// dealt from outside.
func randomRecoveries(seeds int) []recoverRun {
	var out []recoverRun
	for seed := 1; seed <= seeds; seed++ {
		rng := rand.New(rand.NewPCG(uint64(seed), 0))
		victim := fmt.Sprintf("rank %d", rng.IntN(8))
		if rng.IntN(2) == 0 {
			victim = fmt.Sprintf("node n%d", rng.IntN(4))
		}
		l := recoverLayouts[rng.IntN(len(recoverLayouts))]
		death := lab.Event{
			AtIteration: 15 + rng.Int64N(20),
			Kill:        victim,
			AfterMs:     1 + rng.Float64()*pointIterates,
		}
		out = append(out, recoverRun{
			sc:   recoverScenario(fmt.Sprintf("moment-%d", seed), l.shape, 1, death),
			seed: int64(seed),
			want: recoveryWants{replaced: ranksOf(victim), kills: 1},
		})
	}
	return out
}

// pointTable is one line for each point, of the reports that are there.
func pointTable(dir string, cells []recoverRun, bad map[string]string) string {
	head := []string{
		"layout", "dies", "at", "right", "run again", "known after ms", "down ms", "restored from",
	}
	var rows [][]string
	for _, c := range cells {
		r, err := readReport(reportFile(dir, c.sc.Name))
		e := c.sc.Events[0]
		at := e.Point
		if at == "" {
			at = fmt.Sprintf("%.0f ms into the iteration in which rank 5 dies", e.AfterMs)
		}
		if err != nil || len(r.Recoveries) == 0 {
			rows = append(rows, []string{
				shapeName(c.sc.Layout),
				e.Kill,
				at,
				"no: " + bad[c.sc.Name],
				"",
				"",
				"",
				"",
			})
			continue
		}
		s := r.Recoveries[0]
		rows = append(rows, []string{
			shapeName(c.sc.Layout), e.Kill, at, rightOr(bad[c.sc.Name]), itoa(int(s.LostIterations)),
			fmt.Sprintf("%.0f", s.DetectedMs), fmt.Sprintf("%.0f", s.DownMs), sourcesText(s.RestoredFrom),
		})
	}
	return fmt.Sprintf("## Every fault point\n\nBy `make recoveries`. %s\n\n%s\n%s",
		machine(), pointsAbout, mdTable(head, rows))
}

const pointsAbout = `Jobs of 8 ranks on 4 nodes with 2 spares in the lab: GPUs and links are
emulated, processes, agents, engine, deaths and recoveries are real. "Right" is
one recovery with the job training again; the dead ranks replaced and nobody
else; every survivor the same process; at most one iteration run again; and the
weights, every loss and every iteration's samples those of the undisturbed run,
to the bit. At the points park, groups and restore rank 1 has died before, and
the second death hits its recovery. "Known" counts from the (first) death to the
engine's certainty, "down" from the end of the last iteration before to the
start of the first after.
`

// momentTable counts the faults at random moments.
func momentTable(dir string, runs []recoverRun, bad map[string]string) string {
	if len(runs) == 0 {
		return ""
	}
	right := 0
	redone := map[int64]int{}
	var known, down []float64
	text := ""
	for _, run := range runs {
		if why := bad[run.sc.Name]; why != "" {
			text += fmt.Sprintf("- %s (%s at iteration %d): %s\n",
				run.sc.Name, run.sc.Events[0].Kill, run.sc.Events[0].AtIteration, why)
			continue
		}
		right++
		if r, err := readReport(reportFile(dir, run.sc.Name)); err == nil {
			s := r.Recoveries[0]
			redone[s.LostIterations]++
			known = append(known, s.DetectedMs)
			down = append(down, s.DownMs)
		}
	}
	return fmt.Sprintf(
		"## Faults at random moments\n\nBy `make recoveries RECOVER_SEEDS=%d`: ranks and nodes killed from outside at drawn moments. Right: %d of %d; one iteration run again in %d, none in %d.\n\n%s\n%s",
		len(runs), right, len(runs), redone[1], redone[0],
		mdTable(quantileHead, [][]string{quantiles("known after", known), quantiles("down", down)}),
		text,
	)
}

func shapeName(s lab.Shape) string {
	name := fmt.Sprintf("tp %d, dp %d, pp %d", s.TP, s.DP, s.PP)
	if s.Zero > 0 {
		name += fmt.Sprintf(", ZeRO-%d × %d", s.Zero, s.Instances)
	}
	return name
}

func rightOr(bad string) string {
	if bad == "" {
		return "yes"
	}
	return "no: " + bad
}

func sourcesText(from map[falcon.Rank]falcon.Rank) string {
	var out []string
	for rank, source := range from {
		out = append(out, fmt.Sprintf("%d ← %d", rank, source))
	}
	slices.Sort(out)
	text := ""
	for i, s := range out {
		if i > 0 {
			text += ", "
		}
		text += s
	}
	return text
}
