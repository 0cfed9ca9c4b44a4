package flow

import "math"

// Use is how often a flow crosses a link: a ring that leaves a port twice takes
// twice its rate there.
type Use struct {
	Link  int
	Times float64
}

// Unbounded is the capacity of a link that never limits a flow.
var Unbounded = math.Inf(1)

// Rates are the max-min fair rates of flows: no flow's rate can grow without
// that of one which has no more becoming less. A flow on no link, or on
// unbounded links alone, has an infinite rate.
func Rates(capacity []float64, flows [][]Use) []float64 {
	s := newSharing(capacity)
	s.flows = append(s.flows, flows...)
	return s.fillRates()
}

// sharing is one problem of fair rates; its slices by link are kept between problems.
type sharing struct {
	capacity []float64
	flows    [][]Use
	rates    []float64
	links    []int     // that the flows use
	left     []float64 // by link: capacity beyond the flows that are settled
	weight   []float64 // by link: uses by flows that are not settled
	known    []bool    // by link: it is in links
	settled  []bool
}

func newSharing(capacity []float64) *sharing {
	n := len(capacity)
	return &sharing{
		capacity: capacity,
		left:     make([]float64, n),
		weight:   make([]float64, n),
		known:    make([]bool, n),
	}
}

// fillRates raises the rates of all flows alike until a link is full, settles the
// flows on it, and goes on with the others.
func (s *sharing) fillRates() []float64 {
	s.prepareLinks()
	for open := len(s.flows); open > 0; {
		level := s.lowestLevel()
		before := open
		for i, uses := range s.flows {
			if !s.settled[i] && (math.IsInf(level, 1) || s.isHeld(uses, level)) {
				s.settleFlow(i, level)
				open--
			}
		}
		if open == before {
			panic("flow: no link is full at the level at which one is")
		}
	}
	for _, l := range s.links {
		s.known[l], s.weight[l] = false, 0
	}
	return s.rates
}

func (s *sharing) prepareLinks() {
	s.links, s.rates, s.settled = s.links[:0], s.rates[:0], s.settled[:0]
	for _, uses := range s.flows {
		s.rates, s.settled = append(s.rates, 0), append(s.settled, false)
		for _, u := range uses {
			if !s.known[u.Link] {
				s.known[u.Link] = true
				s.links = append(s.links, u.Link)
				s.left[u.Link] = s.capacity[u.Link]
			}
			s.weight[u.Link] += u.Times
		}
	}
}

// lowestLevel is the rate at which the first link is full.
func (s *sharing) lowestLevel() float64 {
	level := math.Inf(1)
	for _, l := range s.links {
		if s.weight[l] > weightZero {
			level = min(level, max(0, s.left[l])/s.weight[l])
		}
	}
	return level
}

// weightZero is what sums and differences of uses may leave of nothing.
const weightZero = 1e-9

// sameLevel is the relative difference of two levels that are one.
const sameLevel = 1e-12

func (s *sharing) isHeld(uses []Use, level float64) bool {
	for _, u := range uses {
		if s.weight[u.Link] > weightZero &&
			max(0, s.left[u.Link])/s.weight[u.Link] <= level*(1+sameLevel) {
			return true
		}
	}
	return false
}

// settleFlow fixes a flow's rate. A link that was full at this level is so for
// the flows after it too: capacity and weight go down in the same proportion.
func (s *sharing) settleFlow(i int, level float64) {
	s.settled[i], s.rates[i] = true, level
	for _, u := range s.flows[i] {
		if !math.IsInf(level, 1) {
			s.left[u.Link] -= level * u.Times
		}
		s.weight[u.Link] -= u.Times
	}
}
