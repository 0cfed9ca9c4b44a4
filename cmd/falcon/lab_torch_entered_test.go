package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/lab"
)

var (
	torchEntered = flag.String("torch-entered", "",
		"folder of the packages megatron and torchtitan: kill ranks of their own training loops")
	enteredKills = flag.Int("entered-kills", 20, "with -torch-entered: deaths in each job")
)

// Of a job with one of the frameworks' own loops.
const (
	enteredRanks   = 4
	enteredSamples = 16 // of a job's iteration
	enteredSteps   = 8  // numbered batches of an iteration, where batches have the numbers
	enteredWithin  = time.Hour
)

// enteredJob is a framework, how its script is called after the folder that ranks write to, the
// job's shape, and how many things with a number an iteration trains.
type enteredJob struct {
	name, script, arguments string
	shape                   lab.Shape
	numbers                 int
	linkMBs                 float64 // of a link whose tenth is felt; 0 = it has no ring of all nodes
}

func enteredJobs() []enteredJob {
	megatron := fmt.Sprintf("--global-batch-size %d", enteredSamples)
	return []enteredJob{
		{
			"Megatron-LM, 4 replicas",
			"entered/of_megatron.py",
			megatron,
			lab.Shape{TP: 1, DP: 4, PP: 1},
			enteredSamples,
			4,
		},
		{
			"Megatron-LM, 2 stages with 2 replicas",
			"entered/of_megatron.py",
			megatron + " --pipeline-model-parallel-size 2",
			lab.Shape{TP: 1, DP: 2, PP: 2},
			enteredSamples,
			0,
		},
		{
			"torchtitan, 4 replicas",
			"entered/of_torchtitan.py",
			"4 1",
			lab.Shape{TP: 1, DP: 4, PP: 1},
			enteredSteps,
			400,
		},
		{
			"torchtitan, 2 replicas of 2 shards",
			"entered/of_torchtitan.py",
			"2 2",
			lab.Shape{TP: 1, DP: 4, PP: 1},
			enteredSteps,
			0,
		},
	}
}

// Ranks of Megatron-LM's pretrain() and of torchtitan's Trainer die at random moments, on emulated
// GPUs: the others enter the loop again in the same processes, at most one iteration runs again,
// and what was trained is each number once, by what the ranks themselves write.
func TestTorchEntered(t *testing.T) {
	if *torchEntered == "" {
		t.Skip("give -torch-entered: run make torch-entered")
	}
	withFrameworks(t)
	var table strings.Builder
	for k, j := range enteredJobs() {
		t.Run(j.name, func(t *testing.T) {
			killsLine(
				&table,
				j.name,
				j.play(t, rand.New(rand.NewPCG(3, uint64(k)))),
			)
		})
	}
	text := enteredPage(table.String())
	t.Log(text)
	if !t.Failed() {
		writePage(t, "torch-entered", text)
	}
}

func enteredPage(rows string) string {
	return strings.Join([]string{
		"## Megatron-LM and torchtitan: deaths of ranks",
		fmt.Sprintf("By `make torch-entered ENTERED=%d`. %s", *enteredKills, machine()),
		fmt.Sprintf("Megatron-LM's own `pretrain()` and torchtitan's own `Trainer` in `falcon_torch.run`, %d ranks on two nodes; "+
			"a random rank is killed at a random moment of an iteration. Right: one recovery in place from replicas, "+
			"the survivors keep their processes, and at most one iteration runs again. Each sample, or batch, was trained once, "+
			"by what the ranks write. Known and down in ms, median and most.", enteredRanks),
		"| Job | Deaths | Right | Known | Down |\n|---|---|---|---|---|\n" + rows,
	}, "\n\n")
}

func (j enteredJob) play(t *testing.T, r *rand.Rand) []lab.RecoveryReport {
	t.Helper()
	kills, folder := *enteredKills, t.TempDir()
	iterations := torchIterations(kills)
	sc := recoverScenario("entered", j.shape, 0)
	sc.Nodes = 2
	sc.Iterations = iterations
	sc.MicroBatches = 4
	sc.Policy = killsPolicy()
	for k := range kills {
		sc.Events = append(sc.Events, lab.Event{
			AtIteration: int64(torchBefore * (k + 1)),
			Kill:        fmt.Sprintf("rank %d", r.IntN(enteredRanks)),
			AfterMs:     float64(r.IntN(130)),
		})
	}
	got, out := j.train(t, folder, sc)
	all := judgeKills(t, got, kills, out)
	for _, bad := range judgeEntered(readEntered(t, folder), iterations, j.numbers) {
		t.Error(bad)
	}
	return all
}

// withFrameworks has the lab's ranks find the packages of the frameworks.
func withFrameworks(t *testing.T) {
	t.Helper()
	needHeaders(t, hollowEnvironment(t)[1])
	t.Setenv("PYTHONPATH", strings.TrimSuffix(*torchEntered+":"+os.Getenv("PYTHONPATH"), ":"))
}

// train plays the job's script in a lab; its ranks write to the folder.
func (j enteredJob) train(t *testing.T, folder string, sc lab.Scenario) (lab.Report, string) {
	t.Helper()
	t.Setenv("ITERATIONS", fmt.Sprint(sc.Iterations))
	r, out, err := playLabFor(
		t,
		enteredWithin,
		filepath.Join(t.TempDir(), "report.json"),
		"--no-reference",
		"--scenario", scenarioFile(t, sc),
		"--train", trainTorch(t, j.script)+" "+folder+" "+j.arguments,
	)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return r, out
}

// enteredLine is what a rank writes just before an update.
type enteredLine struct {
	At        int64 `json:"at"` // ns, of the machine's clock
	Iteration int   `json:"iteration"`
	Rank      int   `json:"rank"`
	Samples   []int `json:"samples"`
}

func readEntered(t *testing.T, folder string) (lines []enteredLine) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err != nil || len(files) < enteredRanks {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range bytes.Split(bytes.TrimSpace(raw), []byte("\n")) {
			var one enteredLine
			if json.Unmarshal(line, &one) == nil { // the last one of a killed rank may be cut
				lines = append(lines, one)
			}
		}
	}
	return lines
}

// judgeEntered says what is wrong with what ranks have trained: of each iteration the newest line
// of each rank counts, as an iteration that was cut off is run again.
func judgeEntered(lines []enteredLine, iterations, numbers int) (bad []string) {
	newest := map[[2]int]enteredLine{}
	for _, l := range lines {
		key := [2]int{l.Iteration, l.Rank}
		if l.At >= newest[key].At {
			newest[key] = l
		}
	}
	for i := range iterations {
		var got []int
		for rank := range enteredRanks {
			got = append(got, newest[[2]int{i, rank}].Samples...)
		}
		slices.Sort(got)
		want := make([]int, numbers)
		for k := range want {
			want[k] = i*numbers + k
		}
		if !slices.Equal(got, want) {
			bad = append(bad, fmt.Sprintf("iteration %d trained %v instead of %d to %d",
				i, got, want[0], want[numbers-1]))
		}
	}
	return bad
}

// The judge sees what is missing, what is trained twice, and counts what ran again once.
func TestEnteredJudge(t *testing.T) {
	line := func(at int64, iteration, rank int, samples ...int) enteredLine {
		return enteredLine{at, iteration, rank, samples}
	}
	right := []enteredLine{line(1, 0, 0, 0, 1), line(1, 0, 1, 2, 3), line(2, 1, 0, 4, 5), line(2, 1, 1, 6, 7)}
	for _, c := range []struct {
		name  string
		lines []enteredLine
		bad   int
	}{
		{"right", right, 0},
		{
			"an iteration again, dealt otherwise",
			append(slices.Clone(right), line(3, 1, 0, 6, 7), line(3, 1, 1, 4, 5)),
			0,
		},
		{"a rank's share is missing", right[:3], 1},
		{"a share twice", append(slices.Clone(right), line(3, 1, 1, 4, 5)), 1},
	} {
		if bad := judgeEntered(c.lines, 2, 4); len(bad) != c.bad {
			t.Errorf("%s: %v", c.name, bad)
		}
	}
}
