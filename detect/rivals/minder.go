package rivals

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// Minder is a rule like Minder's: for one metric after the other, the machine whose
// window of samples is furthest from those of all others, if it is for long enough.
type Minder struct {
	Window    int     // samples
	Threshold float64 // least score of a candidate
	Lasting   int     // windows running in which the candidate must be the same machine
	Pulled    int     // samples that set the range of a metric
}

// DefaultMinder has the paper's window of 8 samples, four minutes of samples that are
// so many seconds apart, and the 15 minutes that each call pulls. The paper gives no
// threshold: 3 robust standard deviations are ours.
func DefaultMinder(secondsApart float64) Minder {
	return Minder{Window: 8, Threshold: 3, Lasting: max(1, int(240/secondsApart)), Pulled: max(16, int(900/secondsApart))}
}

// Watcher is a Minder at work.
type Watcher struct {
	set     Minder
	metrics [][][]float64 // by metric and machine: newest samples
	seen    int
	ranges  [][2]float64 // by metric: least and greatest of the samples pulled
	last    []int        // by metric: the candidate of the window before
	running []int
}

// NewWatcher watches so many machines by so many metrics, in order of priority.
func NewWatcher(set Minder, metrics, machines int) *Watcher {
	w := &Watcher{set: set, metrics: make([][][]float64, metrics), ranges: make([][2]float64, metrics), last: make([]int, metrics), running: make([]int, metrics)}
	for m := range w.metrics {
		w.metrics[m] = make([][]float64, machines)
	}
	return w
}

// Observe takes in one sample of each metric and machine and returns the machine that
// is named by the first metric that names one, −1 for none.
func (w *Watcher) Observe(samples [][]float64) int {
	named := -1
	w.seen++
	for m := range w.metrics {
		for k := range w.metrics[m] {
			kept := append(w.metrics[m][k], samples[m][k])
			if len(kept) > w.set.Pulled {
				kept = kept[1:]
			}
			w.metrics[m][k] = kept
		}
		if w.seen%rangeEvery == 0 || w.seen <= rangeEvery {
			w.ranges[m] = rangeOf(w.metrics[m])
		}
		if w.confirm(m, w.candidate(w.metrics[m], w.ranges[m])) && named < 0 {
			named = w.last[m]
		}
	}
	return named
}

// rangeEvery is after how many samples a metric's range is taken anew.
const rangeEvery = 30

func rangeOf(machines [][]float64) [2]float64 {
	least, most := machines[0][0], machines[0][0]
	for _, samples := range machines {
		least, most = min(least, slices.Min(samples)), max(most, slices.Max(samples))
	}
	return [2]float64{least, most}
}

// confirm counts the windows running with the same candidate.
func (w *Watcher) confirm(metric, candidate int) bool {
	switch {
	case candidate < 0:
		w.running[metric] = 0
	case w.running[metric] > 0 && candidate == w.last[metric]:
		w.running[metric]++
	default:
		w.last[metric], w.running[metric] = candidate, 1
	}
	return w.running[metric] >= w.set.Lasting
}

// candidate is the machine with the greatest score, −1 where it is below the threshold.
func (w *Watcher) candidate(machines [][]float64, bounds [2]float64) int {
	if len(machines) < 3 || len(machines[0]) < w.set.Window {
		return -1
	}
	width := bounds[1] - bounds[0]
	if width <= 0 {
		return -1
	}
	smooth := make([][]float64, len(machines))
	for k, samples := range machines {
		smooth[k] = denoise(samples[len(samples)-w.set.Window:])
		floats.Scale(1/width, smooth[k])
	}
	scores := apartness(smooth)
	at := floats.MaxIdx(scores)
	if scores[at] < w.set.Threshold {
		return -1
	}
	return at
}

// denoise is the straight line of least squares through a window: what stands in for
// the reconstruction by Minder's LSTM-VAE, which is trained on ByteDance's own records.
func denoise(window []float64) []float64 {
	n := float64(len(window))
	mean, slope := floats.Sum(window)/n, 0.0
	for i, v := range window {
		slope += (float64(i) - (n-1)/2) * v
	}
	slope /= n * (n*n - 1) / 12
	out := make([]float64, len(window))
	for i := range out {
		out[i] = mean + slope*(float64(i)-(n-1)/2)
	}
	return out
}

// apartness is each window's sum of Euclidean distances to all others, as robust
// standard deviations above the median sum; of equal sums 0.
func apartness(windows [][]float64) []float64 {
	sums := make([]float64, len(windows))
	for i := range windows {
		for k := range i {
			d := floats.Distance(windows[i], windows[k], 2)
			sums[i] += d
			sums[k] += d
		}
	}
	middle := median(slices.Clone(sums))
	off := make([]float64, len(sums))
	for i, s := range sums {
		off[i] = math.Abs(s - middle)
	}
	scale := 1.4826 * median(slices.Clone(off))
	out := make([]float64, len(sums))
	for i, s := range sums {
		if scale > 0 {
			out[i] = (s - middle) / scale
		}
	}
	return out
}
