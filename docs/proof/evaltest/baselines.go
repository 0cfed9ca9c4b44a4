package evaltest

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/bocd"
)

// baselineSlide is how many observations the windows hold, baselineVerify the
// share that makes a change, baselineWarmUp how many observations set the scale.
const (
	baselineSlide  = 10
	baselineVerify = 0.10
	baselineWarmUp = 10
	scaleFloor     = 0.01 // of the level
)

// slideWindow is the paper's first baseline (FALCON §7.2: a report "if there's a
// >10 % performance change in the sliding window from the current median") read
// point by point: it reports a change where an observation differs from the
// median of the last baselineSlide by more than baselineVerify, and keeps quiet until
// observations are back or the window has followed. So read it misses no step
// above 10 % and fires on every spike, unlike the paper's, which has no false
// positive at one node and misses 2 jobs of 6; slideMean is the other reading.
type slideWindow struct {
	over   float64 // the share that makes a change
	window []float64
	next   int
	off    bool
}

// Observe takes in one observation; index is set when found.
func (s *slideWindow) Observe(ms float64) (index int, found bool) {
	index = s.next
	s.next++
	if len(s.window) == baselineSlide {
		level := falcon.Median(append([]float64(nil), s.window...))
		off := relativeChange(level, ms) > s.over
		found, s.off = off && !s.off, off
		s.window = append(s.window[:0], s.window[1:]...)
	}
	s.window = append(s.window, ms)
	return index, found
}

// slideMean is the paper's first baseline in its other reading: it reports a
// change where the mean of the last baselineSlide observations differs by more than
// baselineVerify from the median of all so far, and keeps quiet until it is back.
type slideMean struct {
	over   float64 // the share that makes a change
	window []float64
	sorted []float64 // all observations, in order of size: grows with the series
	off    bool
}

// Observe takes in one observation; index, where the window begins, is set
// when found.
func (s *slideMean) Observe(ms float64) (index int, found bool) {
	at, _ := slices.BinarySearch(s.sorted, ms)
	s.sorted = slices.Insert(s.sorted, at, ms)
	s.window = append(s.window, ms)
	if len(s.window) > baselineSlide {
		s.window = append(s.window[:0], s.window[1:]...)
	}
	if len(s.sorted) < 2*baselineSlide {
		return 0, false
	}
	off := relativeChange(s.sorted[len(s.sorted)/2], stat.Mean(s.window, nil)) > s.over
	found, s.off = off && !s.off, off
	return len(s.sorted) - len(s.window), found
}

// plainBOCD is the paper's second baseline: BOCD without verification. It reports
// the most probable change point whenever P(r ≤ w) comes to exceed the
// threshold, on the series standardised as Tracker's is by its first points.
type plainBOCD struct {
	filter        *bocd.Filter
	warm          []float64
	centre, scale float64
	next          int
	alarmed       bool
}

// newPlainBOCD returns the baseline with a filter's configuration.
func newPlainBOCD(cfg bocd.Config) *plainBOCD {
	return &plainBOCD{filter: bocd.New(cfg)}
}

// Observe takes in one observation; index is the change point when found.
func (p *plainBOCD) Observe(ms float64) (index int, found bool) {
	p.next++
	if p.next <= baselineWarmUp {
		p.warm = append(p.warm, ms)
		if p.next == baselineWarmUp {
			p.learn()
		}
		return 0, false
	}
	p.feed(ms)
	alarm := p.filter.Alarm()
	found, p.alarmed = alarm && !p.alarmed, alarm
	return p.next - p.filter.Last().MAP, found
}

func (p *plainBOCD) learn() {
	p.centre = falcon.Median(append([]float64(nil), p.warm...))
	off := make([]float64, len(p.warm))
	for i, ms := range p.warm {
		off[i] = math.Abs(ms - p.centre)
	}
	p.scale = max(1.4826*falcon.Median(off), scaleFloor*math.Abs(p.centre))
	for _, ms := range p.warm {
		p.feed(ms)
	}
	p.warm = nil
}

func (p *plainBOCD) feed(ms float64) {
	x := ms/p.scale - p.centre/p.scale
	_, _ = p.filter.Observe(min(max(x, -bocd.Limit), bocd.Limit)) // finite
}

// relativeChange is |after − before| over the lesser of the two.
func relativeChange(before, after float64) float64 {
	return math.Abs(after-before) / min(math.Abs(before), math.Abs(after))
}
