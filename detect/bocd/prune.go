package bocd

import "math"

// Pruning keeps what could matter later. A run length that is improbable now
// may explain the series best after a slow shift, so mass is no measure of what
// may go: run lengths are merged where their neighbours predict alike. How much
// alike depends on what the series does (see tolerance).
const (
	dust    = 1e-12 // probability at which a run length is dropped outright
	weighty = 0.01  // probability from which a run length is left alone
	// run length from which neighbours may be twice as far apart, and four times from four of it on
	farOff     = 512
	exactFor   = 8   // run lengths kept as they are, at least
	pruneEvery = 4   // observations between prunings, unless MaxRuns is passed
	forced     = 1e3 // tolerance from which the number of run lengths matters more

	tolStirred = 3e-4 // while a change may be under way
	tolCalm    = 5e-3 // else
	tolSteady  = 0.2

	stirredAt  = 0.1 // P(r ≤ w) that may be a change under way
	stirredFor = 64  // observations for which it may be
	oddAt      = 4.5 // standard deviations that normal noise does not reach
	oddFor     = 256 // observations for which one beyond speaks against it
	steadyFrom = 128 // most probable run length that can be steady
	steadyCorr = 0.2 // correlation of neighbours that independent noise does not reach
	corrOver   = 128 // observations over which it is averaged
)

// mood is what the series was like of late, which says how freely run lengths
// are merged and, to Tracker, how much a median is worth.
type mood struct {
	stirred int     // observation after which a change may be under way
	odd     int     // newest observation that was no normal noise
	z       float64 // the newest, in standard deviations of the most probable run
	corr    float64 // mean of the product of neighbouring z
}

// trackFit notes how an observation fits the most probable run before it joins.
func (f *Filter) trackFit(x float64) {
	i := f.top
	alpha := f.cfg.Prior.Alpha + 0.5*float64(f.run[i])
	z := (x - f.mu[i]) * math.Sqrt(alpha/f.beta[i])
	if !(math.Abs(z) < oddAt) {
		f.mood.odd = f.seen
		z = 0
	}
	f.mood.corr += (z*f.mood.z - f.mood.corr) / corrOver
	f.mood.z = z
}

// tolerance is how unlike run lengths may be that are merged. On independent
// normal noise next to nothing is lost by few of them; drifts, heavy tails and
// changes, which real series have, are what the many are for.
func (f *Filter) tolerance() float64 {
	m := f.mood
	switch {
	case f.seen-m.odd > oddFor &&
		math.Abs(m.corr) < steadyCorr &&
		f.run[f.top] > steadyFrom:
		return tolSteady * f.cfg.Prune
	case f.seen-m.stirred > stirredFor:
		return tolCalm * f.cfg.Prune
	}
	return tolStirred * f.cfg.Prune
}

// pruneRuns merges run lengths that predict alike, then, while it does not leave
// room for pruneEvery more below MaxRuns, goes on with twice the tolerance.
// The loop ends: from forced on only the newest, the oldest and the most
// probable are left, which MaxRuns always admits.
func (f *Filter) pruneRuns() {
	if f.last.PRecent > stirredAt {
		f.mood.stirred = f.seen
	}
	if f.seen%pruneEvery != 0 && len(f.run) <= f.cfg.MaxRuns {
		return
	}
	tolerance := f.tolerance()
	f.mergeRuns(tolerance)
	for len(f.run) > f.cfg.MaxRuns-pruneEvery && tolerance < 4*forced {
		tolerance = max(2*tolerance, tolStirred)
		f.mergeRuns(tolerance)
	}
}

func (f *Filter) mergeRuns(tolerance float64) {
	best, short := f.top, exactBelow(f.cfg.Window)
	dust := dust / f.scale
	weighty := weighty / f.scale
	keep, lost := 0, 0.0
	for i, r := range f.run {
		switch p := f.prob[i]; {
		case r <= short || i == best:
		case p < dust:
			lost += p
			continue
		case keep > 0 &&
			(tolerance >= forced || p < weighty && f.predictsAlike(keep-1, i, tolerance)):
			f.distributeMass(keep-1, i)
			continue
		}
		if i == best {
			f.top = keep
		}
		f.moveEntry(keep, i)
		keep++
	}
	f.truncate(keep)
	if lost > 0 {
		by := 1 / (1 - lost*f.scale)
		f.scale *= by
		f.shift += math.Log(by)
	}
}

// exactBelow is the run length up to which all are kept.
func exactBelow(window int) int { return max(exactFor, window+3) }

// predictsAlike reports whether entry i and its neighbours agree in age, mean and
// variance. The newest entries are never merged, so that there is one after i.
func (f *Filter) predictsAlike(older, i int, tolerance float64) bool {
	newer := i + 1
	a := float64(f.run[older])
	r := float64(f.run[newer])
	gap := (a - r) * (a - r)
	switch {
	case r >= 4*farOff:
		gap /= 16
	case r >= farOff:
		gap /= 4
	}
	if gap > tolerance*r*r {
		return false
	}
	far := max(math.Abs(f.mu[older]-f.mu[i]), math.Abs(f.mu[older]-f.mu[newer]))
	alpha := f.cfg.Prior.Alpha
	va := f.beta[older] / (alpha + 0.5*a)
	v := f.beta[i] / (alpha + 0.5*float64(f.run[i]))
	vr := f.beta[newer] / (alpha + 0.5*r)
	least := min(va, v, vr)
	spread := (max(va, v, vr) - least) / least
	return gap/(r*r)+far*far/least+4*spread*spread < tolerance
}

// distributeMass moves entry i's mass to both neighbours, keeping the mean run length.
func (f *Filter) distributeMass(older, i int) {
	newer := i + 1
	part := float64(f.run[i]-f.run[newer]) / float64(f.run[older]-f.run[newer])
	p := f.prob[i]
	f.prob[older] += p * part
	f.prob[newer] += p * (1 - part)
	f.logw[older] = f.logOf(f.prob[older])
	f.logw[newer] = f.logOf(f.prob[newer])
}

// logOf is the log weight of a weight.
func (f *Filter) logOf(weight float64) float64 {
	if weight < leastNormal {
		return math.Log(weight) + f.peak
	}
	return fastLog(weight) + f.peak
}

func (f *Filter) moveEntry(to, from int) {
	if to == from {
		return
	}
	f.run[to], f.mu[to], f.beta[to] = f.run[from], f.mu[from], f.beta[from]
	f.logv[to], f.logw[to], f.prob[to] = f.logv[from], f.logw[from], f.prob[from]
}

func (f *Filter) truncate(n int) {
	f.run, f.mu, f.beta = f.run[:n], f.mu[:n], f.beta[:n]
	f.logv, f.logw, f.prob = f.logv[:n], f.logw[:n], f.prob[:n]
}

func (f *Filter) currentStep() Step {
	best := f.top
	s := Step{
		MAP:  f.run[best],
		PMAP: f.prob[best] * f.scale,
		Runs: len(f.run),
	}
	for i := len(f.run) - 1; i >= 0 && f.run[i] <= f.cfg.Window; i-- {
		s.PRecent += f.prob[i]
	}
	s.PRecent = min(s.PRecent*f.scale, 1)
	return s
}

// Binned fills dst with P(r = 0) … P(r = len-2) and, last, the mass of all longer run
// lengths. Its cost grows with the run lengths kept, not with the series.
func (f *Filter) Binned(dst []float64) {
	clear(dst)
	for i, r := range f.run {
		if len(dst) > 0 {
			dst[min(r, len(dst)-1)] += f.prob[i] * f.scale
		}
	}
}

// Runs yields each run length kept with its probability, longest first.
func (f *Filter) Runs(yield func(runLength int, probability float64) bool) {
	for i, r := range f.run {
		if !yield(r, f.prob[i]*f.scale) {
			return
		}
	}
}
