package evaltest

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/failslow/falcon/backend/sim/tabletest"
)

var (
	jobsFlag = flag.Int("eval-jobs", 150, "generated jobs of each of the two mixes with a target")
	baseFlag = flag.Int("eval-baselines", 2000, "of which the baselines see the first so many")
	nFlag    = flag.Int("eval-iterations", 1000, "iterations per generated job")
	seedFlag = flag.Uint64("eval-seed", 1, "seed of everything generated")
	outFlag  = flag.String("eval-out", "",
		"Markdown file whose part between the eval marks is replaced by the tables")
)

// inParallel calls do for 0 … n−1 on all processors and waits.
func inParallel(n int, do func(i int)) {
	var next atomic.Int64
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wait.Wait()
}

// judged is a mix's tally; blocks keep it the same on any number of processors.
func judged(m Mix, jobs int) Tally {
	const block = 25
	parts := make([]Tally, (jobs+block-1)/block)
	inParallel(len(parts), func(i int) {
		parts[i] = Run(
			m,
			*seedFlag,
			uint64(i*block),
			uint64(min((i+1)*block, jobs)),
			uint64(*baseFlag),
			*nFlag,
		)
	})
	total := Tally{Mix: m}
	for _, p := range parts {
		total.Add(p)
	}
	return total
}

// TestEval holds the detector to its targets on generated jobs and on shapes,
// and writes the tables where -eval-out says.
func TestEval(t *testing.T) {
	var out strings.Builder
	start := time.Now()
	for _, m := range []struct {
		mix      Mix
		jobs     int
		accuracy float64
		false    int
	}{
		{SingleNode(), *jobsFlag, 0.999, 0},
		{FourNode(), *jobsFlag, 0.995, -1},
		{AtScale(), *jobsFlag / 5, 0, -1},
	} {
		y := judged(m.mix, m.jobs)
		out.WriteString(y.Markdown() + "\n")
		s := &y.By[Ours]
		if s.Accuracy() < m.accuracy ||
			m.false >= 0 && s.FalsePositive > m.false ||
			m.accuracy > 0 && s.FNR() > 0.005 {
			t.Errorf("%s: accuracy %.4f, %d false positives, FNR %.4f; wrong jobs %v",
				m.mix.Name, s.Accuracy(), s.FalsePositive, s.FNR(), s.Misses)
		}
		if d := quantile(s.Delays, 0.5); m.accuracy > 0 && d > 3 {
			t.Errorf("%s: median delay %d", m.mix.Name, d)
		}
	}
	out.WriteString(tryShapes(t) + "\n" + sweep() + "\n" + realRecords(t))
	t.Logf("%.0f s\n%s", time.Since(start).Seconds(), out.String())
	if *outFlag != "" {
		write(t, *outFlag, out.String(), time.Since(start))
	}
}

// tryShapes holds single steps and ladders to the targets.
func tryShapes(t *testing.T) string {
	jobs := max(20, *jobsFlag/50)
	steps := Steps(0.05, 0.08, 0.10, 0.11, 0.12, 0.15, 0.20, 0.30, 0.50, 1)
	single, ladders := make([]Trial, len(steps)), make([]Trial, len(Ladders()))
	inParallel(len(steps), func(i int) {
		single[i] = steps[i].Try(0.02, *seedFlag, jobs)
	})
	inParallel(len(ladders), func(i int) {
		ladders[i] = Ladders()[i].Try(0.02, *seedFlag, jobs)
	})
	for _, s := range single {
		found, delay := part(s.Found[Ours], jobs), quantile(s.Delays[Ours], 0.5)
		if d := s.Shape.Level(s.Shape.From) - 1; d >= 0.2 && (found < 0.995 || delay > 3) ||
			d < 0.09 && found > 0.005 {
			t.Errorf("a step of %s: found in %.3f, median delay %d", s.Shape.Name, found, delay)
		}
	}
	for _, s := range ladders {
		none := s.Shape.Cross == s.Shape.N
		if found := part(s.Found[Ours], jobs); !none && found < 0.995 || none && found > 0.005 {
			t.Errorf("%s: found in %.3f", s.Shape.Name, found)
		}
	}
	return Trials(
		fmt.Sprintf("Single steps, %d jobs each: share found, delay median / 95 %%", jobs),
		single,
	) +
		"\n" +
		Trials(
			fmt.Sprintf("No step of 10 %%, %d jobs each: share found, delay since 10 %% were crossed", jobs),
			ladders,
		)
}

func sweep() string {
	ps, cs := []float64{0.05, 0.1, 0.2, 0.5, 0.8, 1}, []int{1, 2, 3, 5, 10, 20}
	cells := make([][]Blips, len(ps))
	for i, p := range ps {
		cells[i] = make([]Blips, len(cs))
		inParallel(len(cs), func(k int) {
			cells[i][k] = Sweep(p, cs[k], max(25, *jobsFlag/50), 1000, *seedFlag)
		})
	}
	return SweepTable(cells)
}

// write writes the part of the page that is about make eval.
func write(t *testing.T, path, tables string, took time.Duration) {
	t.Helper()
	stamp, err := tabletest.Stamp("../../..", "results/benchmarks.md", "eval")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(
		"## Quality of detection\n\n`go -C docs/proof test ./evaltest -run TestEval -eval-jobs %d -eval-baselines %d -eval-iterations %d -eval-seed %d` (`make eval`), %.0f s on %d cores of %s, %s, %s. Jobs and truth are generated; `go doc ./detect/evaltest` says from what. Delays are in iterations after a spell's first. %s\n\n%s",
		*jobsFlag, *baseFlag, *nFlag, *seedFlag, took.Seconds(), runtime.GOMAXPROCS(0),
		tabletest.Processor(), runtime.Version(), time.Now().UTC().Format(time.DateOnly), stamp,
		tables,
	)
	if err := tabletest.WritePart(path, "eval", "make eval", text); err != nil {
		t.Fatal(err)
	}
}
