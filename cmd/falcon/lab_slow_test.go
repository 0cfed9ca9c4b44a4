package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
)

// namedWithin is how many iterations after its begin a slow GPU is to be named.
const namedWithin = 5

// torchJobs are the kinds of PyTorch jobs whose GPUs become slow. With one bucket gradients are
// reduced after the backward pass, with several during it.
var torchJobs = []struct{ name, backend, bucketMB string }{
	{"nccl", "nccl", "100"},
	{"nccl-overlap", "nccl", "0.3"},
	{"nccl2", "nccl2", "100"},
	{"nccl2-overlap", "nccl2", "0.3"},
}

// slowGPU is one GPU that became slow while a PyTorch job trained, and what was said of it.
type slowGPU struct {
	GPU         string  `json:"gpu"`
	Clock       float64 `json:"clock"` // share of the nominal one
	Verdict     string  `json:"verdict"`
	Iterations  int     `json:"iterations"` // of rank 0, that ended between the fault and the verdict
	Seconds     float64 `json:"seconds"`
	IterationMs float64 `json:"iteration_ms"` // before the fault, the median
}

func (g slowGPU) right() bool {
	return strings.Contains(g.Verdict, "GPU degradation on "+g.GPU+" ")
}

// endsOfIterations are the times at which the device of rank 0 ended its iterations.
func endsOfIterations(t *testing.T, file string) []time.Time {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []time.Time
	for line := range bytes.Lines(b) {
		ns, err := strconv.ParseInt(
			string(bytes.TrimSuffix(line, []byte("\n"))),
			10,
			64,
		)
		if err == nil && bytes.HasSuffix(line, []byte("\n")) { // else it is being written
			out = append(out, time.Unix(0, ns))
		}
	}
	return out
}

// awaitIterations waits until so many more iterations have ended.
func awaitIterations(t *testing.T, file string, more int) {
	t.Helper()
	last := len(endsOfIterations(t, file)) + more
	for deadline := time.Now().Add(
		5 * time.Minute,
	); len(endsOfIterations(t, file)) < last; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d iterations did not end", more)
		}
	}
}

// setClock makes a GPU of the lab slow, or fast again.
func setClock(t *testing.T, dir, gpu string, clock float64) {
	t.Helper()
	if _, err := lab.Ask(dir, lab.Request{
		Op:    "inject",
		Event: &lab.Event{GPU: gpu, Clock: clock},
	}); err != nil {
		t.Fatal(err)
	}
}

// slowDown makes one GPU slow at a random moment, until a verdict is given, and waits until it has
// cleared.
func slowDown(t *testing.T, s *storyLines, dir, marks string, seed int) slowGPU {
	t.Helper()
	r := rand.New(rand.NewPCG(1, uint64(seed)))
	rank := r.IntN(*torchSize)
	perNode := *torchSize / 2
	g := slowGPU{
		GPU:   fmt.Sprintf("n%d.g%d", rank/perNode, rank%perNode),
		Clock: float64(40+r.IntN(21)) / 100,
	}
	awaitIterations(t, marks, 3+r.IntN(8))
	time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond) // a moment of an iteration
	ends := endsOfIterations(t, marks)
	began := time.Now()
	setClock(t, dir, g.GPU, g.Clock)
	g.Verdict = s.awaitLine(", confidence ", 5*time.Minute)
	named := time.Now()
	g.Seconds = named.Sub(began).Seconds()
	g.IterationMs = medianStep(ends)
	ends = endsOfIterations(t, marks)
	g.Iterations = between(ends, began, named)
	setClock(t, dir, g.GPU, 0.999999) // the later of two faults holds
	s.awaitLine("the fault has cleared", 5*time.Minute)
	return g
}

func between(ends []time.Time, from, to time.Time) (n int) {
	for _, end := range ends {
		if end.After(from) && end.Before(to) {
			n++
		}
	}
	return n
}

// medianStep is the median of the newest iterations, in ms.
func medianStep(ends []time.Time) float64 {
	var steps []float64
	ends = ends[max(len(ends)-20, 0):]
	for i := 1; i < len(ends); i++ {
		steps = append(steps, float64(ends[i].Sub(ends[i-1]).Microseconds())/1000)
	}
	return falcon.Median(steps)
}

// TestTorchWithoutAdapter: of an unchanged script the iterations are found by its calls
// alone, and so is the GPU that slows them, with both of PyTorch's NCCL backends.
func TestTorchWithoutAdapter(t *testing.T) {
	if *labTorch == "" {
		t.Skip("needs a python with torch: run make torch-lab")
	}
	var table strings.Builder
	for _, job := range torchJobs {
		played := make([]slowGPU, 0, *torchSeeds)
		t.Run(job.name, func(t *testing.T) {
			played = playSlowGPUs(t, job.name, job.backend+" "+job.bucketMB)
			for seed, g := range played {
				if !g.right() {
					t.Errorf("seed %d: %s is slow: %s", seed, g.GPU, g.Verdict)
				}
			}
		})
		tableLine(&table, job.name, played)
	}
	text := fmt.Sprintf(
		"## Slow GPUs, without an adapter\n\nBy `make torch-lab TORCH_RANKS=%d TORCH_SEEDS=%d`. %s\n\nAn unchanged script (`native/python/examples/plain_ddp.py`) of %d ranks; one GPU after the other falls to 40 to 60 %% of its clock at a random moment. Iterations are those of rank 0 that ended between the fault and its verdict.\n\n| Job | Slow GPUs | Right one named | Within %d iterations | Iterations: median, most | Seconds: median, most | Iteration, ms |\n|---|---|---|---|---|---|---|\n%s",
		*torchSize, *torchSeeds, machine(), *torchSize, namedWithin, table.String(),
	)
	writePage(t, "torch-lab", text)
	t.Log(text)
}

// playSlowGPUs plays a kind of job with all its seeds, without those that were played before.
func playSlowGPUs(t *testing.T, name, arguments string) []slowGPU {
	example, err := filepath.Abs("../../native/python/examples/plain_ddp.py")
	if err != nil {
		t.Fatal(err)
	}
	marked, err := filepath.Abs("testdata/torch/marked.py")
	if err != nil {
		t.Fatal(err)
	}
	marks := filepath.Join(t.TempDir(), "marks")
	var played []slowGPU
	var s *storyLines
	var dir string
	for seed := range *torchSeeds {
		file := filepath.Join(*labOut, fmt.Sprintf("slow-%s-%d-%d.json", name, *torchSize, seed))
		var g slowGPU
		if b, err := os.ReadFile(file); err == nil && *labOut != "" && json.Unmarshal(b, &g) == nil {
			played = append(played, g)
			continue
		}
		if s == nil {
			s, dir = startTraining(t, marked+" "+marks+" "+example+" "+
				arguments, lab.Shape{TP: 1, DP: *torchSize, PP: 1})
			s.awaitLine(
				fmt.Sprintf("Healthy profile of %d of %d ranks stored", *torchSize, *torchSize),
				5*time.Minute,
			)
		}
		g = slowDown(t, s, dir, marks, seed)
		t.Logf("%s at %.2f: named %v after %d iterations of %.0f ms before, %.1f s: %s",
			g.GPU, g.Clock, g.right(), g.Iterations, g.IterationMs, g.Seconds, g.Verdict)
		if !g.right() {
			t.Log(strings.Join(s.seen, "\n"))
		}
		if b, err := json.Marshal(g); err == nil && *labOut != "" {
			writeFile(t, file, string(b))
		}
		played = append(played, g)
	}
	return played
}

func tableLine(b *strings.Builder, name string, played []slowGPU) {
	var iterations, seconds, lengths []float64
	right, within := 0, 0
	for _, g := range played {
		iterations = append(iterations, float64(g.Iterations))
		seconds = append(seconds, g.Seconds)
		lengths = append(lengths, g.IterationMs)
		if g.right() {
			right++
			if g.Iterations <= namedWithin {
				within++
			}
		}
	}
	if len(played) == 0 {
		fmt.Fprintf(b, "| %s | 0 | | | | | |\n", name)
		return
	}
	fmt.Fprintf(b, "| %s | %d | %d | %d | %.0f, %.0f | %.1f, %.1f | %.0f |\n",
		name, len(played), right, within,
		falcon.Median(iterations), slices.Max(iterations), falcon.Median(seconds),
		slices.Max(seconds), falcon.Median(lengths))
}
