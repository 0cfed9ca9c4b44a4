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
	return Minder{
		Window:    8,
		Threshold: 3,
		Lasting:   max(1, int(240/secondsApart)),
		Pulled:    max(16, int(900/secondsApart)),
	}
}

// Distances are the part of Minder before its thresholds: for each metric the machine
// that is furthest from all others.
type Distances struct {
	set     Minder
	metrics [][][]float64 // by metric and machine: newest samples
	ranges  [][2]float64  // by metric: least and greatest of the samples pulled
	seen    int
}

// NewDistances compares so many machines by so many metrics, in order of priority.
func NewDistances(set Minder, metrics, machines int) *Distances {
	d := &Distances{
		set:     set,
		metrics: make([][][]float64, metrics),
		ranges:  make([][2]float64, metrics),
	}
	for m := range d.metrics {
		d.metrics[m] = make([][]float64, machines)
	}
	return d
}

// Furthest is a machine and its score, −1 where nothing can be compared.
type Furthest struct {
	Machine int
	Score   float64
}

// Observe takes in one sample of each metric and machine and returns the furthest
// machine by metric.
func (d *Distances) Observe(samples [][]float64) []Furthest {
	d.seen++
	out := make([]Furthest, len(d.metrics))
	for m := range d.metrics {
		for k := range d.metrics[m] {
			kept := append(d.metrics[m][k], samples[m][k])
			if len(kept) > d.set.Pulled {
				kept = kept[1:]
			}
			d.metrics[m][k] = kept
		}
		if d.seen%rangeEvery == 0 || d.seen <= rangeEvery {
			d.ranges[m] = rangeOf(d.metrics[m])
		}
		out[m] = d.furthest(m)
	}
	return out
}

// Watcher names machines that stay furthest.
type Watcher struct {
	set     Minder
	last    []int // by metric: the candidate of the window before
	running []int
}

// NewWatcher watches so many metrics.
func NewWatcher(set Minder, metrics int) *Watcher {
	return &Watcher{
		set:     set,
		last:    make([]int, metrics),
		running: make([]int, metrics),
	}
}

// Name takes in the furthest machines by metric and returns the one that is named by the
// first metric that names one, −1 for none.
func (w *Watcher) Name(furthest []Furthest) int {
	named := -1
	for m, f := range furthest {
		if w.confirm(m, f) && named < 0 {
			named = w.last[m]
		}
	}
	return named
}

// confirm counts the windows running with the same candidate.
func (w *Watcher) confirm(metric int, f Furthest) bool {
	switch {
	case f.Machine < 0 || f.Score < w.set.Threshold:
		w.running[metric] = 0
	case w.running[metric] > 0 && f.Machine == w.last[metric]:
		w.running[metric]++
	default:
		w.last[metric], w.running[metric] = f.Machine, 1
	}
	return w.running[metric] >= w.set.Lasting
}

// rangeEvery is after how many samples a metric's range is computed again.
const rangeEvery = 30

func rangeOf(machines [][]float64) [2]float64 {
	least, most := machines[0][0], machines[0][0]
	for _, samples := range machines {
		least, most = min(least, slices.Min(samples)), max(most, slices.Max(samples))
	}
	return [2]float64{least, most}
}

// furthest scores the newest window of a metric.
func (d *Distances) furthest(metric int) Furthest {
	machines, bounds := d.metrics[metric], d.ranges[metric]
	width := bounds[1] - bounds[0]
	if len(machines) < 3 || len(machines[0]) < d.set.Window || !measured(width) {
		return Furthest{Machine: -1}
	}
	smooth := make([][]float64, len(machines))
	for k, samples := range machines {
		smooth[k] = denoise(samples[len(samples)-d.set.Window:])
		floats.Scale(1/width, smooth[k])
	}
	scores := apartness(smooth)
	at := floats.MaxIdx(scores)
	return Furthest{at, scores[at]}
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
