package recovery

import "time"

// hearing is how well the console itself receives. While it is blind (most nodes
// are not heard at once, or no node at all) or late (it works off reports of some
// time ago) no node is judged by silence: a hold begins, and when it ends all
// clocks start again.
type hearing struct {
	blind bool      // most nodes are not heard now
	began time.Time // of the hold; zero = there is none
	grace time.Time // after blindness, until then: for those who are not back yet
	late  time.Time // until then the console catches up
	since time.Time // when all clocks began again; zero = never
	noted time.Time // when it was last logged that the console is late
}

// lateNote is how often it is logged that the console is late.
const lateNote = time.Minute

// holds reports whether no node may be judged by silence now.
func (h *hearing) holds() bool { return !h.began.IsZero() }

// exhausted reports whether the hold has lasted so long that the deadlines of a
// recovery run again: nothing may wait for ever.
func (h *hearing) exhausted(now time.Time, most time.Duration) bool {
	return h.holds() && now.Sub(h.began) >= most
}

func (h *hearing) start(now time.Time) {
	if !h.holds() {
		h.began = now
	}
}

// open begins with a hold: no node was heard before.
func (h *hearing) open(now time.Time, grace time.Duration) {
	h.start(now)
	h.grace = now.Add(grace)
}

// restart marks that all clocks begin again.
func (h *hearing) restart(now time.Time) { h.since = now }

// lag marks the console as late; true = it is worth a line.
func (h *hearing) lag(now time.Time, beat time.Duration) bool {
	h.start(now)
	h.late = now.Add(beat)
	fresh := h.noted.IsZero() || now.Sub(h.noted) >= lateNote
	if fresh {
		h.noted = now
	}
	return fresh
}

// count is how many nodes of the job are heard.
type count struct {
	nodes   int  // not fenced
	unheard int  // not heard now
	leaving int  // of them those whose agents said goodbye
	unmet   int  // not heard yet
	deaf    bool // no node at all is heard, be it a spare or fenced
}

// see takes how many nodes are heard. It reports for how long all clocks were held
// when the hold ends: they start again at this moment.
func (h *hearing) see(now time.Time, c count, grace time.Duration) (held time.Duration, over bool) {
	if h.blind = c.deaf || c.unheard > 1 && 2*c.unheard > c.nodes; h.blind {
		h.start(now)
		h.grace = now.Add(grace)
	}
	if c.unheard+c.unmet == 0 {
		h.grace = time.Time{}
	}
	if !h.holds() || h.blind || now.Before(h.grace) || now.Before(h.late) {
		return 0, false
	}
	held, h.began = now.Sub(h.began), time.Time{}
	return held, true
}
