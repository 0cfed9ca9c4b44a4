package bocd

import (
	"fmt"
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// SlideWindow is the paper's first baseline (FALCON §7.2: a report "if there's a
// >10 % performance change in the sliding window from the current median") read
// point by point: it reports a change where an observation differs from the
// median of the last Size by more than Verify, and keeps quiet until
// observations are back or the window has followed. So read it misses no step
// above 10 % and fires on every spike, unlike the paper's, which has no false
// positive at one node and misses 2 jobs of 6; SlideMean is the other reading.
type SlideWindow struct {
	Size   int     // observations in the window, 10 when 0
	Verify float64 // share that makes a change, 0.10 when 0

	window []float64
	next   int
	off    bool
}

const defaultSlide = 10

// Observe takes in one observation; index is set when found.
func (s *SlideWindow) Observe(ms float64) (index int, found bool, err error) {
	if math.IsNaN(ms) || math.IsInf(ms, 0) {
		return 0, false, fmt.Errorf("%w: %v", ErrNotFinite, ms)
	}
	size, verify := s.Size, s.Verify
	if size <= 0 {
		size = defaultSlide
	}
	if verify == 0 {
		verify = 0.10
	}
	index = s.next
	s.next++
	if len(s.window) == size {
		level := falcon.Median(append([]float64(nil), s.window...))
		off := relative(level, ms) > verify
		found, s.off = off && !s.off, off
		s.window = append(s.window[:0], s.window[1:]...)
	}
	s.window = append(s.window, ms)
	return index, found, nil
}

// SlideMean is the paper's first baseline in its other reading: it reports a
// change where the mean of the last Size observations differs by more than
// Verify from the median of all so far, and keeps quiet until it is back.
type SlideMean struct {
	Size   int     // observations in the window, 10 when 0
	Verify float64 // share that makes a change, 0.10 when 0

	window []float64
	sorted []float64 // all observations, in order of size: grows with the series
	off    bool
}

// Observe takes in one observation; index, where the window begins, is set
// when found.
func (s *SlideMean) Observe(ms float64) (index int, found bool, err error) {
	if math.IsNaN(ms) || math.IsInf(ms, 0) {
		return 0, false, fmt.Errorf("%w: %v", ErrNotFinite, ms)
	}
	size, verify := s.Size, s.Verify
	if size <= 0 {
		size = defaultSlide
	}
	if verify == 0 {
		verify = 0.10
	}
	at, _ := slices.BinarySearch(s.sorted, ms)
	s.sorted = slices.Insert(s.sorted, at, ms)
	s.window = append(s.window, ms)
	if len(s.window) > size {
		s.window = append(s.window[:0], s.window[1:]...)
	}
	if len(s.sorted) < 2*size {
		return 0, false, nil
	}
	mean := 0.0
	for _, x := range s.window {
		mean += x / float64(len(s.window))
	}
	off := relative(s.sorted[len(s.sorted)/2], mean) > verify
	found, s.off = off && !s.off, off
	return len(s.sorted) - len(s.window), found, nil
}

// Plain is the paper's second baseline: BOCD without verification. It reports
// the most probable change point whenever P(r ≤ w) comes to exceed the
// threshold, on the series standardised as Tracker's is by its first points.
type Plain struct {
	filter        *Filter
	warm          []float64
	centre, scale float64
	next          int
	alarmed       bool
}

// NewPlain returns the baseline with a filter's configuration.
func NewPlain(cfg Config) *Plain { return &Plain{filter: New(cfg)} }

// Observe takes in one observation; index is the change point when found.
func (p *Plain) Observe(ms float64) (index int, found bool, err error) {
	if math.IsNaN(ms) || math.IsInf(ms, 0) {
		return 0, false, fmt.Errorf("%w: %v", ErrNotFinite, ms)
	}
	p.next++
	if p.next <= defaultWarmUp {
		p.warm = append(p.warm, ms)
		if p.next == defaultWarmUp {
			p.learn()
		}
		return 0, false, nil
	}
	if err := p.feed(ms); err != nil {
		return 0, false, err
	}
	alarm := p.filter.Alarm()
	found, p.alarmed = alarm && !p.alarmed, alarm
	return p.next - p.filter.Last().MAP, found, nil
}

func (p *Plain) learn() {
	p.centre = falcon.Median(append([]float64(nil), p.warm...))
	p.scale = spreadOf(p.warm, p.centre)
	for _, ms := range p.warm {
		_ = p.feed(ms) // finite: Observe checked it
	}
	p.warm = nil
}

func (p *Plain) feed(ms float64) error {
	x := ms/p.scale - p.centre/p.scale
	_, err := p.filter.Observe(min(max(x, -Limit), Limit))
	return err
}
