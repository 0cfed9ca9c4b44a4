package bocd

import "math"

// prune drops improbable run lengths longer than the window, then, while more
// than MaxRuns are left, drops with a bound ten times higher. The loop ends:
// the bound passes 1 after a few rounds and then only the newest Window+1 and
// the most probable are left, which MaxRuns always admits.
func (f *Filter) prune() {
	f.drop(f.cfg.Prune)
	for bound := 10 * f.cfg.Prune; len(f.run) > f.cfg.MaxRuns; bound *= 10 {
		f.drop(bound)
	}
}

func (f *Filter) drop(bound float64) {
	best := f.best()
	keep, lost := 0, 0.0
	for i, r := range f.run {
		if r > f.cfg.Window && i != best && f.prob[i] < bound {
			lost += f.prob[i]
			continue
		}
		f.move(keep, i)
		keep++
	}
	f.truncate(keep)
	if lost > 0 {
		f.scale(1 / (1 - lost))
	}
}

func (f *Filter) move(to, from int) {
	if to == from {
		return
	}
	f.run[to], f.mu[to], f.beta[to] = f.run[from], f.mu[from], f.beta[from]
	f.logb[to], f.logw[to], f.prob[to] = f.logb[from], f.logw[from], f.prob[from]
}

func (f *Filter) truncate(n int) {
	f.run, f.mu, f.beta = f.run[:n], f.mu[:n], f.beta[:n]
	f.logb, f.logw, f.prob = f.logb[:n], f.logw[:n], f.prob[:n]
}

func (f *Filter) scale(by float64) {
	shift := math.Log(by)
	for i := range f.logw {
		f.logw[i] += shift
		f.prob[i] *= by
	}
}

// best is the entry of the most probable run length, the shortest of equals.
func (f *Filter) best() int {
	best := len(f.prob) - 1
	for i := len(f.prob) - 2; i >= 0; i-- {
		if f.prob[i] > f.prob[best] {
			best = i
		}
	}
	return best
}

func (f *Filter) summary() Step {
	best := f.best()
	s := Step{MAP: f.run[best], PMAP: f.prob[best], Runs: len(f.run)}
	for i := len(f.run) - 1; i >= 0 && f.run[i] <= f.cfg.Window; i-- {
		s.PRecent += f.prob[i]
	}
	s.PRecent = min(s.PRecent, 1)
	return s
}

// Posterior appends P(r = 0), P(r = 1), … to dst[:0] up to the longest run
// length kept and returns it; run lengths that were pruned read 0.
func (f *Filter) Posterior(dst []float64) []float64 {
	longest := f.run[0]
	dst = dst[:0]
	for range longest + 1 {
		dst = append(dst, 0)
	}
	for i, r := range f.run {
		dst[r] = f.prob[i]
	}
	return dst
}

// Binned fills dst with P(r = 0) … P(r = len-2); the last entry holds the
// mass of all longer run lengths. It costs the run lengths kept, however long
// the series is.
func (f *Filter) Binned(dst []float64) {
	clear(dst)
	for i, r := range f.run {
		if len(dst) > 0 {
			dst[min(r, len(dst)-1)] += f.prob[i]
		}
	}
}

// Runs calls yield with each run length kept and its probability, longest
// first, until yield returns false.
func (f *Filter) Runs(yield func(runLength int, probability float64) bool) {
	for i, r := range f.run {
		if !yield(r, f.prob[i]) {
			return
		}
	}
}
