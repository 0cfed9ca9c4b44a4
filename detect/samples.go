package detect

import (
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/bocd"
)

// sampleLog holds the newest iteration times of every rank and of the job.
type sampleLog struct {
	clock   *clock
	job     *jobState
	ranks   []*series
	slowest *series // slowest rank of each iteration
	fold    iterationFold
	times   iterationTimes
	newest  int64 // newest iteration seen from any rank, -1 before the first
}

// stillSlow reports whether most of the newest iterations are.
func (l *sampleLog) stillSlow(s *incidentState) bool {
	slow := 0
	for _, ms := range l.slowest.newestValues(lastOver) {
		if ms > (s.HealthyMs+s.SlowMs)/2 {
			slow++
		}
	}
	return slow > lastOver/2
}

// firstSlow moves a placement past a hiccup before the change: to the first
// iteration that is slow together with the one after it.
func (l *sampleLog) firstSlow(at int64, middle float64) int64 {
	return l.firstTwo(at, func(ms float64) bool { return ms > middle })
}

// firstFast moves a placement past what is still slow: to the first iteration
// that is fast together with the one after it.
func (l *sampleLog) firstFast(at int64, middle float64) int64 {
	return l.firstTwo(at, func(ms float64) bool { return ms <= middle })
}

// firstTwo is the first iteration from one on that is so together with the next.
func (l *sampleLog) firstTwo(at int64, is func(ms float64) bool) int64 {
	for i := max(l.slowest.indexOfIteration(at), l.slowest.oldest()); i+1 < l.slowest.seen; i++ {
		if is(l.slowest.valueAt(i)) && is(l.slowest.valueAt(i+1)) {
			return l.slowest.iteration(i)
		}
	}
	return at
}

// peakAround is the largest value around a change that did not last.
func (l *sampleLog) peakAround(c bocd.Change) float64 {
	top := c.AfterMs
	for i := max(c.Index-2, l.slowest.oldest(), 0); i < l.slowest.seen; i++ {
		top = max(top, l.slowest.valueAt(i))
	}
	return top
}

// backSince begins the newest run below a level; a single hiccup does not end it.
func (l *sampleLog) backSince(ms float64) int64 {
	i, oldest := l.slowest.seen-1, l.slowest.oldest()
	for i > oldest {
		switch {
		case l.slowest.valueAt(i-1) <= ms:
			i--
		case i-3 >= oldest &&
			l.slowest.valueAt(i-2) <= ms &&
			l.slowest.valueAt(i-3) <= ms:
			i -= 2
		default:
			return l.slowest.iteration(i)
		}
	}
	return l.slowest.iteration(i)
}

// silentNodes are the nodes with a rank that the others have left far behind and
// that was not heard of for some time, in order.
func (l *sampleLog) silentNodes() []falcon.Node {
	var out []falcon.Node
	for r, s := range l.ranks {
		if l.newest-s.newest <= foldLag ||
			l.clock.now.Sub(s.heardAt) < silentFor ||
			r >= len(l.job.desc.Placement) {
			continue
		}
		if n := l.job.desc.Placement[r].Node(); !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// currentLevel is the median of the job's last iterations, ms.
func (l *sampleLog) currentLevel() float64 {
	return falcon.Median(l.slowest.newestValues(levelOver))
}

// levelOver is how many iterations make the present level.
const levelOver = 5

// dipOver is how many iterations give the noise that a dip must exceed.
const dipOver = 32

// lastOver is how many of the newest iterations show whether a slowdown lasts.
const lastOver = 3

// allButOneBelow reports whether all of values but one are at or below a level.
func allButOneBelow(values []float64, ms float64) bool {
	above := 0
	for _, v := range values {
		if v > ms {
			above++
		}
	}
	return above <= 1
}

// startEpoch begins with no iteration of any rank.
func (l *sampleLog) startEpoch(cfg *Config) {
	l.ranks = newRankSeries(cfg, l.job.desc.Layout.World())
	for _, s := range l.ranks {
		s.heardAt = l.clock.now
	}
	l.slowest = newSeries(cfg)
	l.fold = iterationFold{}
	l.times = iterationTimes{}
	l.newest = -1
}

// settleRange marks that changes at some iterations belong to an action, but not those to a
// level above most.
func (l *sampleLog) settleRange(from, to int64, most float64) {
	l.slowest.settleRange(from, to, most)
	for _, r := range l.ranks {
		r.settleRange(from, to, most)
	}
}

// heard notes that a rank reported an iteration.
func (l *sampleLog) heard(r *series, iteration int64) {
	l.newest, r.heardAt = max(l.newest, iteration), l.clock.now
}

// nextIteration is the next iteration of the job that is complete; ok is false where none is.
func (l *sampleLog) nextIteration() (c cell, ok bool) {
	return l.fold.nextComplete(len(l.ranks), l.newest)
}

// lastIteration is the newest iteration of all ranks, -1 before the first.
func (l *sampleLog) lastIteration() int64 {
	return l.slowest.lastIteration()
}

// isLearning reports whether the job's warm-up is not over.
func (l *sampleLog) isLearning() bool {
	return l.slowest.tracker.Learning()
}

// changeProbability is the present P(r ≤ w) of the job's series.
func (l *sampleLog) changeProbability() float64 {
	return l.slowest.tracker.PRecent()
}
