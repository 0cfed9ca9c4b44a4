package liveness

import "time"

// LocalHealth is how well the engine itself hears. While it is blind (half of the nodes or more
// unheard at once, or none heard at all) or late (its reports are old) no node is judged by
// silence: a hold begins, and when it ends all clocks start again.
type LocalHealth struct {
	blind bool      // half of the nodes or more are not heard now
	began time.Time // of the hold; zero = there is none
	grace time.Time // after blindness, until then: for those who are not back yet
	late  time.Time // until then the engine catches up
	since time.Time // when all clocks began again; zero = never
	noted time.Time // when it was last logged that the engine is late
}

// lateNote is how often it is logged that the engine is late.
const lateNote = time.Minute

// Holds reports whether no node may be judged by silence now.
func (h *LocalHealth) Holds() bool { return !h.began.IsZero() }

// Blind reports whether half of the nodes or more are not heard now.
func (h *LocalHealth) Blind() bool { return h.blind }

// Since is when all clocks began again, zero = never.
func (h *LocalHealth) Since() time.Time { return h.since }

// Exhausted reports whether the hold has lasted so long that the deadlines of a
// recovery run again: nothing may wait for ever.
func (h *LocalHealth) Exhausted(now time.Time, most time.Duration) bool {
	return h.Holds() && now.Sub(h.began) >= most
}

// SilenceCounts reports whether silence is evidence: nothing is held, or it has been for so
// long that nothing waits for it any more.
func (h *LocalHealth) SilenceCounts(now time.Time, most time.Duration) bool {
	return !h.Holds() || h.Exhausted(now, most)
}

// Open begins with a hold: no node was heard before.
func (h *LocalHealth) Open(now time.Time, grace time.Duration) {
	h.beginHold(now)
	h.grace = now.Add(grace)
}

func (h *LocalHealth) beginHold(now time.Time) {
	if !h.Holds() {
		h.began = now
	}
}

// Restart marks that all clocks begin again.
func (h *LocalHealth) Restart(now time.Time) {
	h.since = now
}

// Late marks the engine as late; true = it is worth a line.
func (h *LocalHealth) Late(now time.Time, beat time.Duration) bool {
	h.beginHold(now)
	h.late = now.Add(beat)
	fresh := h.noted.IsZero() || now.Sub(h.noted) >= lateNote
	if fresh {
		h.noted = now
	}
	return fresh
}

// Count is how many nodes of the job are heard.
type Count struct {
	Nodes   int  // not fenced
	Unheard int  // not heard now
	Leaving int  // of them those whose agents said goodbye
	Unmet   int  // not heard yet
	Deaf    bool // no node at all is heard, be it a spare or fenced
}

// Assess takes how many nodes are heard. It reports for how long all clocks were held
// when the hold ends: they start again at this moment.
func (h *LocalHealth) Assess(now time.Time, c Count, grace time.Duration) (held time.Duration, over bool) {
	if h.blind = c.Deaf || c.Unheard > 1 && 2*c.Unheard >= c.Nodes; h.blind {
		h.beginHold(now)
		h.grace = now.Add(grace)
	}
	if c.Unheard+c.Unmet == 0 {
		h.grace = time.Time{}
	}
	if !h.Holds() || h.blind || now.Before(h.grace) || now.Before(h.late) {
		return 0, false
	}
	held = now.Sub(h.began)
	h.began = time.Time{}
	return held, true
}
