package detect

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/bocd"
)

// series is one stream of iteration times with its tracker and the newest of its values.
type series struct {
	timeRing

	tracker *bocd.Tracker
	newest  int64     // newest iteration heard of, left out or not; -1 before the first
	heardAt time.Time // when that was
}

// newSeries is the job's series. The states of its filter are kept, as consoles draw them.
func newSeries(cfg *Config) *series {
	tracker := cfg.Tracker
	tracker.Keep = cfg.History
	return &series{
		timeRing: timeRing{limit: cfg.History},
		tracker:  bocd.NewTracker(tracker),
		newest:   -1,
	}
}

// newRankSeries are one series for each rank. They keep the paper's rule, which needs a tenth
// of the memory: under lockstep what is small shows in the job's series as soon.
func newRankSeries(cfg *Config, ranks int) []*series {
	tracker := cfg.Tracker
	tracker.Verification = bocd.VerifyPaper
	tracker.Rest = !cfg.Restless
	first := bocd.NewTracker(tracker)
	all, out := make([]series, ranks), make([]*series, ranks)
	for i := range all {
		all[i] = series{
			timeRing: timeRing{limit: cfg.History, isThin: true},
			tracker:  first.Another(),
			newest:   -1,
		}
		out[i] = &all[i]
	}
	return out
}

// lastIteration is the newest iteration, origin-independent; -1 before the first.
func (s *series) lastIteration() int64 {
	if s.seen == 0 {
		return -1
	}
	return s.iteration(s.seen - 1)
}

// skipIteration notes an iteration that is left out, as Falcon held the job in it.
func (s *series) skipIteration(iteration int64) {
	s.newest = max(s.newest, iteration)
}

// observe takes in one value. Values that are no positive finite time are
// dropped: they say nothing about the job's pace.
func (s *series) observe(iteration int64, ms float64) []bocd.Change {
	s.newest = max(s.newest, iteration)
	if math.IsNaN(ms) || math.IsInf(ms, 0) || ms <= 0 {
		return nil
	}
	changes, err := s.tracker.Observe(ms)
	if err != nil {
		return nil
	}
	s.push(iteration, ms)
	return changes
}

// iteration is that of an observation, also of one that is still to come.
func (s *series) iteration(index int) int64 {
	if index = max(index, 0); index >= s.seen {
		return s.iteration(s.seen-1) + int64(index-s.seen+1)
	}
	return s.timeRing.iteration(index)
}

// indexOfIteration is the index that iteration has or will have, if none is skipped.
func (s *series) indexOfIteration(iteration int64) int {
	return max(0, s.seen+int(iteration-s.lastIteration()-1))
}

// newestValues are the newest n values, oldest first.
func (s *series) newestValues(n int) []float64 {
	n = min(n, s.held())
	out := make([]float64, 0, n)
	for i := s.seen - n; i < s.seen; i++ {
		out = append(out, s.valueAt(i))
	}
	return out
}

// newestColumns are the newest n observations without a posterior, oldest first.
func (s *series) newestColumns(n int) []Column {
	n = min(n, s.held())
	out := make([]Column, 0, n)
	for i := s.seen - n; i < s.seen; i++ {
		out = append(out, Column{Iteration: s.iteration(i), Ms: s.valueAt(i)})
	}
	return out
}

// settleRange marks in the tracker that changes at some iterations belong to an action, but
// not those to a level above most.
func (s *series) settleRange(from, to int64, most float64) {
	if s.seen > 0 {
		s.tracker.Settle(s.indexOfIteration(from), int(to-from), most)
	}
}

// foldKeep bounds how many iterations wait for their last rank, foldLag how
// long: after it an iteration counts with the ranks that reported.
const (
	foldKeep = 64
	foldLag  = 8
)

// inParts splits what came at once into parts that the fold holds: more iterations than
// that, rank by rank, are put in the order in which they ran.
func inParts(samples []falcon.Sample) [][]falcon.Sample {
	const most = foldKeep / 2
	if len(samples) == 0 {
		return nil
	}
	byIteration := func(a, b falcon.Sample) int {
		return cmp.Compare(a.Iteration, b.Iteration)
	}
	first := slices.MinFunc(samples, byIteration).Iteration
	last := slices.MaxFunc(samples, byIteration).Iteration
	if last-first < most {
		return [][]falcon.Sample{samples}
	}
	sorted := slices.SortedStableFunc(slices.Values(samples), byIteration)
	var parts [][]falcon.Sample
	from := 0
	for i := range sorted {
		if sorted[i].Iteration-sorted[from].Iteration >= most {
			parts = append(parts, sorted[from:i])
			from = i
		}
	}
	return append(parts, sorted[from:])
}

// iterationFold joins the ranks' samples to the job's iteration: its slowest rank.
type iterationFold struct {
	cells [foldKeep]cell
	next  int64 // first iteration that is not done
	open  bool
	first int64 // first iteration of the epoch that was seen
}

type cell struct {
	iteration int64
	ranks     int
	ms        float64
	endNs     int64 // by the clock of the node that ended last, 0 = unknown
	paused    bool  // Falcon held a rank in it
}

// addSample takes in one rank's sample.
func (f *iterationFold) addSample(iteration int64, ms float64, endNs int64, paused bool) {
	if !f.open {
		f.open = true
		f.next = iteration
		f.first = iteration
		for i := range f.cells {
			f.cells[i].iteration = -1
		}
	}
	if iteration < f.next {
		return
	}
	if iteration-f.next >= foldKeep {
		f.next = iteration - foldLag
	}
	c := &f.cells[iteration%foldKeep]
	if c.iteration != iteration {
		*c = cell{iteration: iteration}
	}
	c.ranks++
	c.ms = math.Max(c.ms, ms)
	c.endNs = max(c.endNs, endNs)
	c.paused = c.paused || paused
}

// nextComplete hands out the next iteration that all ranks reported, or that waited
// long enough; newest is the newest one seen from any rank.
func (f *iterationFold) nextComplete(world int, newest int64) (cell, bool) {
	for f.open && f.next <= newest {
		c := f.cells[f.next%foldKeep]
		known := c.iteration == f.next
		late := newest-f.next > foldLag
		if !late && (!known || c.ranks < world) {
			return cell{}, false
		}
		f.next++
		if known {
			return c, true
		}
	}
	return cell{}, false
}

// iterationTimes remembers when the newest iterations were seen, by the engine's clock.
type iterationTimes struct {
	ring [1024]struct {
		iteration int64
		at        time.Time
		endNs     int64
	}
	n int
}

func (t *iterationTimes) addIteration(c cell, at time.Time) {
	e := &t.ring[t.n%len(t.ring)]
	e.iteration = c.iteration
	e.at = at
	e.endNs = c.endNs
	t.n++
}

// startOfIteration is when iteration began: when the one before it was seen. The zero
// time where that is forgotten or was never seen.
func (t *iterationTimes) startOfIteration(iteration int64) time.Time {
	var at time.Time
	for i := t.n - 1; i >= max(0, t.n-len(t.ring)); i-- {
		e := t.ring[i%len(t.ring)]
		at = e.at
		if e.iteration < iteration {
			return at
		}
	}
	return at
}

// shippedLate bounds how many iterations may have ended before a moment and
// been seen after it: agents ship samples in batches, and nodes' clocks differ.
const shippedLate = 16

// firstAfter is the first iteration that ended after a moment, ok false where none
// did. The moment is given by the engine's clock, and by a node's as Unix ns
// (0 = unknown): what was seen before it had ended before it, what was seen
// after it may have.
func (t *iterationTimes) firstAfter(after time.Time, afterNs int64) (iteration int64, ok bool) {
	i := t.n
	for i > max(0, t.n-len(t.ring)) && t.ring[(i-1)%len(t.ring)].at.After(after) {
		i--
	}
	for range shippedLate {
		if i >= t.n {
			break
		}
		e := &t.ring[i%len(t.ring)]
		if afterNs == 0 || e.endNs == 0 || e.endNs > afterNs {
			break
		}
		i++
	}
	if i >= t.n {
		return 0, false
	}
	return t.ring[i%len(t.ring)].iteration, true
}
