package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon/backend/sim/tabletest"
)

var (
	curveNodes = flag.String(
		"swarm-nodes",
		"",
		"numbers of nodes of 8 ranks to measure, separated by commas; none after the first that does not hold",
	)
	curveFor  = flag.Duration("swarm-for", 60*time.Second, "how long each is measured")
	curvePage = flag.String("swarm-out", "", "page to write the curve into")
)

// goalRanks is what one engine is to carry.
const goalRanks = 100_000

// TestScaleCurve measures what an engine costs by the number of ranks, and writes the curve where
// -swarm-out says. It asserts nothing about time: the swarm and whatever else runs share the machine.
func TestScaleCurve(t *testing.T) {
	if *curveNodes == "" {
		t.Skip("-swarm-nodes names no size")
	}
	began := time.Now()
	var curve []swarmResult
	for n := range strings.SplitSeq(strings.NewReplacer(" ", ",").Replace(*curveNodes), ",") {
		if _, err := strconv.Atoi(n); err != nil {
			t.Fatalf("-swarm-nodes: %q is no number", n)
		}
		out, err := exec.CommandContext(
			t.Context(),
			filepath.Join("..", "..", "bin", "falcon"),
			"lab",
			"swarm",
			"--nodes", n,
			"--for", curveFor.String(),
			"--json",
		).Output()
		if err != nil {
			t.Fatalf("%s nodes: %v", n, err)
		}
		var r swarmResult
		if err := json.Unmarshal(out[max(0, strings.Index(string(out), "{")):], &r); err != nil {
			t.Fatalf("%s nodes: %v: %s", n, err, out)
		}
		t.Log(r.String())
		if len(r.Harm) > 0 {
			t.Errorf("%d nodes: %v were sent to a job that nothing ails", r.Nodes, r.Harm)
		}
		if curve = append(curve, r); !r.holds() {
			break
		}
	}
	text := curveTable(curve)
	t.Log(text)
	if *curvePage == "" {
		return
	}
	stamp, err := tabletest.Stamp("../..", "results/benchmarks.md", "scale")
	if err != nil {
		t.Fatal(err)
	}
	head := fmt.Sprintf(
		"## What one engine costs by ranks (nodes, GPUs, ports and the job are emulated)\n\n`go test ./cmd/falcon -run TestScaleCurve -swarm-nodes %s -swarm-for %s` (`make scale`), %.0f s on %d cores of %s, commit %s, %s, %s. Streams, certificates, rates and sizes are those of agents; 8 ranks a node, 1 iteration a second, telemetry every second; the swarm shares the machine, whose load average was %s at the end. %s\n\n",
		*curveNodes, *curveFor, time.Since(began).Seconds(), runtime.NumCPU(),
		tabletest.Processor(), tabletest.Commit(), runtime.Version(),
		time.Now().UTC().Format(time.DateOnly), loadAverage(), stamp,
	)
	if err := tabletest.WritePart(*curvePage, "scale", "make scale", head+text); err != nil {
		t.Fatal(err)
	}
}

// loadAverage is of the newest five minutes: what else ran on the machine shows in it.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(text)); len(fields) > 1 {
		return fields[1]
	}
	return "unknown"
}

// holds reports whether the engine took nearly all that was sent, and let go of nothing.
func (r swarmResult) holds() bool {
	return r.Connected == r.Nodes &&
		r.TakenPerS >= 0.97*r.SamplesPerS &&
		r.Dropped == 0 &&
		len(r.Harm) == 0
}

func curveTable(curve []swarmResult) string {
	var b strings.Builder
	b.WriteString(
		"| nodes / ranks | engine cores (swarm) | CPU µs a sample | RSS, peak MB | kB a rank | samples/s taken of sent | pull p50, p95 ms | loop's turn p50, p99 ms | journal kB/min | all connected s |\n|---|---|---|---|---|---|---|---|---|---|\n",
	)
	for _, r := range curve {
		fmt.Fprintf(&b,
			"| %d / %d | %.2f (%.2f) | %.0f | %.0f, %.0f | %.0f | %.0f of %.0f | %.1f, %.1f | %.1f, %.1f | %.0f | %.1f |\n",
			r.Nodes, r.Ranks, r.EngineCores, r.SwarmCores,
			1e6*r.EngineCores/max(r.TakenPerS, 1), r.RSSMB, r.PeakMB,
			1e3*r.RSSMB/float64(r.Ranks), r.TakenPerS, r.SamplesPerS, r.PullMs[0], r.PullMs[1],
			r.TurnMs[0], r.TurnMs[1], r.JournalKBPerMin, r.ConnectS)
	}
	return b.String() + "\n" + curveBends(curve) + "\n"
}

// curveBends says where the curve bends, and what the largest size that holds says of the goal.
func curveBends(curve []swarmResult) string {
	var held *swarmResult
	text := ""
	for i := range curve {
		r := &curve[i]
		if r.SamplesPerS < 0.95*float64(r.Ranks) {
			text = fmt.Sprintf(
				" At %d ranks the machine had no room for the swarm itself, which sent %.0f %% of its samples: that row says nothing of the engine.",
				r.Ranks, 100*r.SamplesPerS/float64(r.Ranks),
			)
			break
		}
		if !r.holds() {
			text = fmt.Sprintf(
				" At %d ranks it takes %.0f %% of the samples: the two share %d cores, and it had %.2f of them beside the swarm's %.2f.",
				r.Ranks, 100*r.TakenPerS/max(r.SamplesPerS, 1), runtime.NumCPU(), r.EngineCores,
				r.SwarmCores,
			)
			break
		}
		held = r
	}
	if held == nil {
		return strings.TrimSpace(text)
	}
	first := &curve[0]
	perRank := 1e3 * (held.RSSMB - first.RSSMB) / max(1, float64(held.Ranks-first.Ranks))
	return fmt.Sprintf(
		"Below some hundred ranks the engine's own %.0f MB and its ticks are most of the cost; above, memory grows by %.1f kB and CPU by %.0f µs a second with each rank, most of it reading and decoding streams.%s The largest size that holds is %d ranks; going on as from there, %d ranks take %.1f cores and %.1f GB.",
		first.RSSMB, perRank, 1e6*held.EngineCores/float64(held.Ranks), text, held.Ranks,
		goalRanks, held.EngineCores/float64(held.Ranks)*goalRanks,
		(first.RSSMB+perRank*goalRanks/1e3)/1e3,
	)
}

// The words below the curve follow from its figures.
func TestCurveBends(t *testing.T) {
	at := func(nodes int, cores, mb, taken float64) swarmResult {
		ranks := 8 * nodes
		return swarmResult{
			Nodes:       nodes,
			Ranks:       ranks,
			Connected:   nodes,
			EngineCores: cores,
			RSSMB:       mb,
			TakenPerS:   taken * float64(ranks),
			SamplesPerS: float64(ranks),
		}
	}
	got := curveBends([]swarmResult{
		at(1, 0.01, 50, 1),
		at(125, 0.05, 70, 1),
		at(1250, 0.4, 250, 0.99),
		at(4000, 1, 700, 0.5),
	})
	for _, want := range []string{
		"own 50 MB", "by 20.0 kB", "40 µs", "At 32000 ranks it takes 50 %",
		"largest size that holds is 10000", "take 4.0 cores and 2.1 GB",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in: %s", want, got)
		}
	}
	starved := at(4000, 0.1, 700, 0.1)
	starved.SamplesPerS /= 3
	if got := curveBends([]swarmResult{at(125, 0.05, 70, 1), starved}); !strings.Contains(got, "sent 33 %") ||
		!strings.Contains(got, "holds is 1000") {
		t.Error(got)
	}
	if got := curveBends([]swarmResult{at(1, 0.01, 50, 0.1)}); !strings.HasPrefix(got, "At 8 ranks") {
		t.Error(got)
	}
}
