package rivals

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/floats"

	"github.com/failslow/falcon/detect/bocd"
)

// KernelCase is a case on the data that NVRx is made for: the runs of a job's kernels on
// every rank, report after report.
type KernelCase struct {
	Name    string
	Speed   float64 // of the slow rank
	Start   int     // first report in which it is slow; −1 = never
	Waiting bool    // NCCL's kernels are long on all ranks but one, as they are where ranks wait
}

// KernelCases are the cases, the slow rank's speed as a share of the others'.
func KernelCases() []KernelCase {
	return []KernelCase{
		{"GPU at 0.6", 0.6, 5, true},
		{"GPU at 0.6 from the start", 0.6, 0, true},
		{"GPU at 0.9", 0.9, 5, true},
		{"healthy, uneven waits", 1, -1, true},
	}
}

// Size of the tables of kernels.
const (
	kernelRanks   = 16
	kernelReports = 10
	kernelRuns    = 20 // of each kernel in a report
	kernelSlow    = 11 // rank
)

// kernelMs are kernels of a transformer's layer with their healthy time, ms; NCCL's are
// the two medians that NVRx's source gives for a slow and a fast rank.
var kernelMs = map[string]float64{
	"gemm":      1.8,
	"attention": 0.9,
	"layernorm": 0.12,
	"gelu":      0.15,
	"copy":      0.05,
}

const (
	ncclKernel  = "ncclDevKernel_AllReduce_Sum"
	ncclShortMs = 0.256
	ncclLongMs  = 3.369
)

// Tables are the case's reports: one KernelTimes per rank each.
func (c KernelCase) Tables(seed uint64) [][]KernelTimes {
	rng := rand.New(rand.NewPCG(seed, 18))
	var out [][]KernelTimes
	for report := range kernelReports {
		ranks := make([]KernelTimes, kernelRanks)
		for r := range ranks {
			ranks[r] = KernelTimes{}
			for _, name := range []string{"attention", "copy", "gelu", "gemm", "layernorm"} {
				ms := kernelMs[name]
				if r == kernelSlow && c.Start >= 0 && report >= c.Start {
					ms /= c.Speed
				}
				ranks[r][name] = logNormal(rng, ms)
			}
			wait := ncclShortMs
			if c.Waiting && r != kernelSlow {
				wait = ncclLongMs
			}
			ranks[r][ncclKernel] = logNormal(rng, wait)
		}
		out = append(out, ranks)
	}
	return out
}

// logNormal are the runs of one kernel in a report, with a spread of 3 %.
func logNormal(rng *rand.Rand, ms float64) []float64 {
	out := make([]float64, kernelRuns)
	for i := range out {
		out[i] = ms * math.Exp(0.03*rng.NormFloat64())
	}
	return out
}

// kernelTotal is the time of run i of a rank's compute kernels.
func kernelTotal(k KernelTimes, i int) float64 {
	sum := 0.0
	for name := range kernelMs {
		sum += k[name][i]
	}
	return sum
}

// KernelNames are who is named by NVRx or by Megatron's rule over a case's reports.
func KernelNames(method RankMethod, setting float64, tables [][]KernelTimes) []string {
	throughput := func(k KernelTimes) float64 {
		sum := 0.0
		for i := range kernelRuns {
			sum += kernelTotal(k, i)
		}
		return 1 / sum
	}
	return nameByReport(method, setting, tables, throughput)
}

// nameByReport are the ranks that are named in any report, in the order of naming.
func nameByReport(
	method RankMethod,
	setting float64,
	tables [][]KernelTimes,
	throughput func(KernelTimes) float64,
) []string {
	var out []string
	scores, line := &Nvrx{}, DefaultStraggler()
	line.Below = setting
	for _, ranks := range tables {
		var slow []int
		if method.Name == nvrxName {
			slow = scores.Report(ranks).Stragglers(setting, true)
		} else {
			all := make([]float64, len(ranks))
			for r := range ranks {
				all[r] = throughput(ranks[r])
			}
			slow = []int{line.Line(all)}
		}
		for _, r := range slow {
			if name := fmt.Sprint(r); r >= 0 && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// KernelWorkers are who is flagged by Falcon's rule for tables of workers, which reads
// the sum of each step's compute kernels by rank.
func KernelWorkers(tables [][]KernelTimes) []string {
	watch := bocd.NewWorkers(bocd.DefaultTrackerConfig())
	for _, ranks := range tables {
		for i := range kernelRuns {
			for r := range ranks {
				_ = watch.Observe(fmt.Sprint(r), kernelTotal(ranks[r], i)) // finite and positive
			}
		}
	}
	var out []string
	for _, f := range watch.Flagged() {
		out = append(out, f.Worker)
	}
	return slices.Compact(out)
}

// StreamCase is a case on the data that Minder is made for: metrics of machines, a sample
// a second.
type StreamCase struct {
	Name    string
	Faulty  int // machines at fault
	Seconds int // for which a machine is at fault
	Jitter  bool
}

// StreamCases are the cases of Minder's paper: most faults last over five minutes, jitter
// is short, and several machines at once are hard.
func StreamCases() []StreamCase {
	return []StreamCase{
		{"one machine for 8 minutes", 1, 480, true},
		{"one machine for 2 minutes", 1, 120, true},
		{"jitter only", 0, 0, true},
		{"half of the machines at once", streamMachines / 2, 480, true},
	}
}

// Size of the streams.
const (
	streamMachines = 32
	streamSeconds  = 1500
	streamFrom     = 600
	streamMetrics  = 3
)

// Samples is the case's stream, by second, metric and machine; the machines at fault are
// the first ones.
func (c StreamCase) Samples(seed uint64) [][][]float64 {
	rng := rand.New(rand.NewPCG(seed, 19))
	level := make([]float64, streamMetrics)
	jitter := make([][]int, streamMetrics) // seconds left, by machine
	for m := range jitter {
		jitter[m] = make([]int, streamMachines)
	}
	metric := rng.IntN(streamMetrics) // in which the fault shows
	out := make([][][]float64, streamSeconds)
	for t := range out {
		out[t] = make([][]float64, streamMetrics)
		for m := range streamMetrics {
			// shared by all machines: the iteration's phases
			level[m] = 0.95*level[m] + 0.02*rng.NormFloat64()
			out[t][m] = make([]float64, streamMachines)
			for k := range streamMachines {
				v := 0.7 + level[m] + 0.02*rng.NormFloat64()
				if c.Jitter && jitter[m][k] == 0 && rng.Float64() < 1.0/8000 {
					jitter[m][k] = 5 + rng.IntN(40)
				}
				if jitter[m][k] > 0 {
					jitter[m][k]--
					v -= 0.3
				}
				if m == metric && k < c.Faulty && t >= streamFrom && t < streamFrom+c.Seconds {
					v -= 0.3
				}
				out[t][m][k] = v
			}
		}
	}
	return out
}

// StreamNames are the machines that a Minder names in a stream, by threshold.
func StreamNames(set Minder, thresholds []float64, samples [][][]float64) [][]string {
	d := NewDistances(set, len(samples[0]), len(samples[0][0]))
	var watchers []*Watcher
	for _, t := range thresholds {
		set.Threshold = t
		watchers = append(watchers, NewWatcher(set, len(samples[0])))
	}
	out := make([][]string, len(thresholds))
	for _, s := range samples {
		furthest := d.Observe(s)
		for i, w := range watchers {
			if k := w.Name(furthest); k >= 0 && !slices.Contains(out[i], fmt.Sprint(k)) {
				out[i] = append(out[i], fmt.Sprint(k))
			}
		}
	}
	return out
}

// LevelSeries is a case on the data that the change-point models assume: one to three
// levels that differ by 15 to 60 %, in normal noise of 2 %.
func LevelSeries(seed uint64) (ms []float64, changes []int) {
	rng := rand.New(rand.NewPCG(seed, 20))
	level := 1000.0
	for piece := range 1 + rng.IntN(3) {
		if piece > 0 {
			changes = append(changes, len(ms))
			by := 1.15 + 0.45*rng.Float64()
			if piece == 2 {
				by = 1 / by
			}
			level *= by
		}
		for range 150 + rng.IntN(100) {
			ms = append(ms, level*(1+0.02*rng.NormFloat64()))
		}
	}
	return ms, changes
}

// WorkerTable is a table of workers' times: rows by worker, of one or more columns.
type WorkerTable struct {
	Workers []string
	Rows    [][][]float64 // by worker, row and column
}

// least is the number of rows that all workers have.
func (t WorkerTable) least() int {
	n := len(t.Rows[0])
	for _, r := range t.Rows {
		n = min(n, len(r))
	}
	return n
}

// named are the workers of numbers, sorted.
func (t WorkerTable) named(numbers []string) []string {
	var out []string
	for _, n := range numbers {
		k, _ := strconv.Atoi(n) // written by this package
		out = append(out, t.Workers[k])
	}
	slices.Sort(out)
	return out
}

// Names are who is named by NVRx, to which each column is a kernel, or by Megatron's
// rule, to which the first one is the forward pass, with so many rows to a report.
func (t WorkerTable) Names(method RankMethod, setting float64, report int) []string {
	var tables [][]KernelTimes
	for from := 0; from+report <= t.least(); from += report {
		ranks := make([]KernelTimes, len(t.Rows))
		for w := range t.Rows {
			ranks[w] = KernelTimes{}
			for _, row := range t.Rows[w][from : from+report] {
				for k, ms := range row {
					name := fmt.Sprint(k)
					ranks[w][name] = append(ranks[w][name], ms)
				}
			}
		}
		tables = append(tables, ranks)
	}
	forward := func(k KernelTimes) float64 { return 1 / floats.Sum(k["0"]) }
	return t.named(nameByReport(method, setting, tables, forward))
}

// StreamNames are who is named by a Minder whose one metric is the sum of a row.
func (t WorkerTable) StreamNames(set Minder) []string {
	samples := make([][][]float64, t.least())
	for i := range samples {
		one := make([]float64, len(t.Rows))
		for w := range t.Rows {
			one[w] = floats.Sum(t.Rows[w][i])
		}
		samples[i] = [][]float64{one}
	}
	return t.named(StreamNames(set, []float64{set.Threshold}, samples)[0])
}
