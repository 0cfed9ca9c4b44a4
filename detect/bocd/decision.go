package bocd

import (
	"cmp"
	"slices"
)

// By is what decided a change.
type By string

// The values of By.
const (
	ByPosterior By = "bocd" // an alarm of the filter, verified or turned down
	// the level, held against what it was: a drift, a ladder, a level that is back
	ByReference By = "reference"
	ByShift     By = "shift" // the small-shift detector's proof; no posterior decided
)

// Run is one run length of a posterior with its probability.
type Run struct {
	Length int
	P      float64
}

// State is the filter after one observation, as it was then.
type State struct {
	Step
	Runs  []Run // kept run lengths, oldest first; empty while the filter rested or learned
	Seen  int   // observations that the filter had been fed since it was last started over
	Alarm bool  // an alarm waited for its verification
}

// Removed is an observation that the filter was not fed as it came.
type Removed struct {
	Index int
	Ms    float64 // as it came
	As    float64 // as it was fed: the level that a burst left
}

// Decision is what decided a change, at that moment: the filter's state, what its numbers are
// scaled by and what it was fed. With the observations and it the state can be computed again.
type Decision struct {
	By       By
	State    State
	CentreMs float64 // an observation is fed as (ms − CentreMs)/ScaleMs
	ScaleMs  float64
	From     int       // first observation that the filter was fed since it was last started over
	Removed  []Removed // of those from From on
	Points   int       // observations behind the change that were compared with those before
	Drift    bool      // ByShift: it was gradual
}

// states is a ring of the newest states of the filter, by observation.
type states struct {
	ring []State
	next int // index of the observation after the newest kept
}

// noteState keeps the filter's state after the newest observation, before what is decided on it
// starts the filter over.
func (t *Tracker) noteState() {
	if t.cfg.Keep == 0 {
		return
	}
	if t.states == nil {
		t.states = &states{ring: make([]State, t.cfg.Keep)}
	}
	k := t.states
	s := &k.ring[(t.next-1)%len(k.ring)]
	t.fillState(s)
	k.next = t.next
}

func (t *Tracker) fillState(s *State) {
	*s = State{Runs: s.Runs[:0]}
	if t.atRest() || t.filter.Seen() == 0 {
		return
	}
	s.Step, s.Seen, s.Alarm = t.filter.Last(), t.filter.Seen(), t.alarm.raised
	t.filter.Runs(func(length int, p float64) bool {
		s.Runs = append(s.Runs, Run{length, p})
		return true
	})
}

// StateAt is the filter's state after an observation, where it is kept (TrackerConfig.Keep). Its
// Runs are valid until the next observation.
func (t *Tracker) StateAt(index int) (State, bool) {
	k := t.states
	if k == nil || index < 0 || index >= k.next || index < k.next-len(k.ring) {
		return State{}, false
	}
	s := k.ring[index%len(k.ring)]
	return s, len(s.Runs) > 0
}

// RecentOf is P(r ≤ w) in a state, 0 while every run length was that short: see PRecent.
func (t *Tracker) RecentOf(s State) float64 {
	if s.Seen <= cmp.Or(t.cfg.Filter.Window, DefaultWindow) {
		return 0
	}
	return s.PRecent
}

// decide describes what decides a change now.
func (t *Tracker) decide(by By, points int) *Decision {
	d := &Decision{
		By:       by,
		CentreMs: t.centre,
		ScaleMs:  t.scale,
		From:     t.fedFrom,
		Points:   points,
	}
	t.fillState(&d.State)
	for _, r := range t.removed {
		if r.Index >= d.From {
			d.Removed = append(d.Removed, r)
		}
	}
	return d
}

// remove replaces an observation by a level.
func (t *Tracker) remove(index int, level float64) {
	ms := &t.past[index%history]
	was := *ms
	i := slices.IndexFunc(t.removed, func(r Removed) bool { return r.Index == index })
	if i >= 0 {
		t.removed[i].As = level
	} else {
		t.removed = append(t.removed, Removed{index, was, level})
	}
	*ms = level
}

// forgetRemoved drops what the filter is not fed any more.
func (t *Tracker) forgetRemoved() {
	t.removed = slices.DeleteFunc(t.removed, func(r Removed) bool {
		return r.Index < t.fedFrom
	})
}

// Binned writes the state's posterior into out: P(r = i) for each i but the last, which holds the tail.
func (s State) Binned(out []float64) {
	clear(out)
	for _, r := range s.Runs {
		out[min(r.Length, len(out)-1)] += r.P
	}
}
