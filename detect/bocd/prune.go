package bocd

import "math"

// Pruning keeps what could matter later. A run length that is improbable now
// may explain the series best after a slow shift, so that plain dropping makes
// P(r ≤ w) jump; therefore improbable run lengths are merged into a neighbour
// only while their neighbours stay dense: no gap wider than 1/coverShare of
// the run length, up to coverMost.
const (
	dust       = 1e-8 // probability at which a run length is dropped outright
	coverShare = 5
	coverMost  = 128
	coverEnd   = 0.05 // bound from which the number of run lengths matters more
	pruneEvery = 4    // observations between prunings, unless MaxRuns is passed
)

// prune merges improbable run lengths, then, while it does not leave room for
// pruneEvery more below MaxRuns, goes on with twice the bound. The loop ends: beyond a bound of 1 only the
// newest Window+1, the oldest and the most probable are left, which MaxRuns
// always admits.
func (f *Filter) prune() {
	if f.seen%pruneEvery != 0 && len(f.run) <= f.cfg.MaxRuns {
		return
	}
	f.merge(f.cfg.Prune)
	room := f.cfg.MaxRuns - pruneEvery
	for bound := 2 * f.cfg.Prune; len(f.run) > room && bound < 4; bound *= 2 {
		f.merge(bound)
	}
}

func (f *Filter) merge(bound float64) {
	best := f.top
	keep, lost := 0, 0.0
	for i, r := range f.run {
		switch p := f.prob[i]; {
		case r <= f.cfg.Window || i == best || p >= bound && bound <= 1:
		case p < dust:
			lost += p
			continue
		case keep > 0 && f.covered(keep-1, i, bound):
			f.give(keep-1, i)
			continue
		}
		if i == best {
			f.top = keep
		}
		f.move(keep, i)
		keep++
	}
	f.truncate(keep)
	if lost > 0 {
		f.scale(1 / (1 - lost))
	}
}

// covered says that the neighbours of entry i are close enough without it.
// The newest entries are never merged, so that there is one after i.
func (f *Filter) covered(older, i int, bound float64) bool {
	if f.run[i] > coverMost || bound > coverEnd {
		return true
	}
	return coverShare*(f.run[older]-f.run[i+1]) <= f.run[i+1]
}

// give moves entry i's mass to the nearer neighbour.
func (f *Filter) give(older, i int) {
	to := older
	if f.run[older]-f.run[i] > f.run[i]-f.run[i+1] {
		to = i + 1
	}
	f.prob[to] += f.prob[i]
	f.logw[to] = math.Log(f.prob[to])
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

func (f *Filter) summary() Step {
	best := f.top
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
