package page

import (
	"cmp"
	"slices"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/history"
	"github.com/failslow/falcon/tui/roster"
)

// Measure is one thing whose course is kept.
type Measure int

// The measures, in the order in which charts show them.
const (
	IterationTime Measure = iota // ms, of each iteration
	Throughput                   // iterations a minute
	SelfRatio                    // self time against peers, of all ranks
	WaitMs                       // wait for others, of all ranks
	ClockMHz                     // SM clock, of all GPUs
	TemperatureC                 // of all GPUs
	Change                       // P(change) of the job
	Measures
)

// courseStep is how often what is measured of all ranks is added: with the first picture of a second.
const courseStep = time.Second

// CourseStep numbers the steps of the course by an engine's clock.
func CourseStep(snap *falconv1.SnapshotReply) int64 {
	return snap.GetAtUnixNs() / int64(courseStep)
}

// Course is how the run went, as far as this console has seen it: from the iterations that it was
// sent first on. It is a picture of what engines have said, kept in bounded memory, and no truth of
// its own. Pictures of an earlier time, as a recording shows that is played back, begin it again.
type Course struct {
	series [Measures]history.Series

	at        time.Time // of the newest picture taken
	step      int64     // of that
	epoch     uint64    // of the job
	iteration int64     // newest of which the time was added
	last      time.Time // when that was
	moved     time.Time // when the newest iteration was reported
	moves     int64     // that iteration
}

// Of is the course of one measure.
func (c *Course) Of(m Measure) *history.Series { return &c.series[m] }

// Span is the time of which anything is known.
func (c *Course) Span() (from, to time.Time, ok bool) {
	for i := range c.series {
		a, b, known := c.series[i].Span()
		switch {
		case !known:
		case !ok:
			from = a
			to = b
			ok = true
		default:
			from, to = earlier(from, a), later(to, b)
		}
	}
	return from, to, ok
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// take adds what a picture says.
func (c *Course) take(snap *falconv1.SnapshotReply, ranks *roster.Roster) {
	if snap.GetAtUnixNs() == 0 {
		return
	}
	at := time.Unix(0, snap.GetAtUnixNs())
	if at.Before(c.at) {
		*c = Course{}
	}
	if step := CourseStep(snap); c.at.IsZero() || step != c.step {
		c.step = step
	} else {
		return
	}
	c.takeIterations(snap, at)
	c.takeThroughput(snap.GetJob(), at)
	c.at = at
	spreads := ranks.Spreads()
	c.spread(SelfRatio, at, spreads.SelfRatio)
	c.spread(WaitMs, at, spreads.WaitMs)
	c.spread(ClockMHz, at, spreads.ClockMHz)
	c.spread(TemperatureC, at, spreads.TemperatureC)
}

func (c *Course) spread(m Measure, at time.Time, s roster.Spread) {
	if s.N > 0 {
		c.series[m].AddSpread(at, s.Least, s.Mean, s.Greatest)
	}
}

// takeIterations adds the iterations that are new: all ranks wait for each other, so that one's times
// are the job's. Those of a new job epoch may have numbers that were seen before.
func (c *Course) takeIterations(snap *falconv1.SnapshotReply, now time.Time) {
	s := snap.GetSeries()
	if len(s.GetMs()) == 0 {
		return
	}
	again := snap.GetJob().GetEpoch() != c.epoch
	c.epoch = snap.GetJob().GetEpoch()
	for place, ms := range s.GetMs() {
		i := s.GetFirstIteration() + int64(place)
		if !again && i <= c.iteration {
			continue
		}
		at := time.Unix(0, TimeOf(s, i))
		if at.UnixNano() == 0 || at.After(now) {
			at = now
		}
		switch {
		case again && !at.After(c.last):
			continue
		case at.Before(c.last): // what is not known to the moment is not earlier than the one before
			at = c.last
		}
		c.iteration, c.last = i, at
		if ms > 0 {
			c.series[IterationTime].Add(at, float64(ms))
		}
		if s.GetOfJob() && place < len(s.GetProbability()) {
			c.series[Change].Add(at, min(1, float64(s.GetProbability()[place])))
		}
	}
}

// standFor is how many usual iteration times without an iteration are a throughput of none.
const standFor = 3

// takeThroughput adds how fast iterations came since one was last reported.
func (c *Course) takeThroughput(j *falconv1.Job, now time.Time) {
	moved := time.Unix(0, j.GetIterationUnixNs())
	i := j.GetIteration()
	// an engine that does not say knows the age of its data
	if j.GetIterationUnixNs() == 0 && j.GetDataAgeMs() >= 0 && i > 0 {
		moved = now.Add(-time.Duration(j.GetDataAgeMs()) * time.Millisecond)
	}
	usual := time.Duration(cmp.Or(j.GetUsualMs(), j.GetIterationMs()) * float64(time.Millisecond))
	switch {
	case moved.UnixNano() == 0:
	case c.moved.IsZero() || i < c.moves || moved.Before(c.moved):
		c.moved, c.moves = moved, i
	case i > c.moves && moved.Sub(c.moved) >= courseStep:
		c.series[Throughput].Add(now, float64(i-c.moves)/moved.Sub(c.moved).Minutes())
		c.moved, c.moves = moved, i
	case i == c.moves && usual > 0 && now.Sub(moved) > standFor*usual+courseStep:
		c.series[Throughput].Add(now, 0)
	}
}

// TimeOf is when an iteration was complete, Unix ns: between two that have a time in
// proportion, after the newest of them by the iterations' own times; 0 where that is not known.
func TimeOf(s *falconv1.Series, iteration int64) int64 {
	m := s.GetMoments()
	i, found := slices.BinarySearchFunc(m, iteration, func(m *falconv1.Moment, i int64) int {
		return cmp.Compare(m.GetIteration(), i)
	})
	switch {
	case found:
		return m[i].UnixNs
	case i == 0:
		return 0
	case i < len(m):
		share := float64(iteration-m[i-1].Iteration) / float64(m[i].Iteration-m[i-1].Iteration)
		return m[i-1].UnixNs + int64(share*float64(m[i].UnixNs-m[i-1].UnixNs))
	}
	at := float64(m[i-1].UnixNs)
	last := s.GetFirstIteration() + int64(len(s.GetMs())) - 1
	for k := m[i-1].Iteration + 1; k <= iteration && k <= last; k++ {
		at += 1e6 * float64(s.GetMs()[max(0, int(k-s.GetFirstIteration()))])
	}
	return int64(at)
}
