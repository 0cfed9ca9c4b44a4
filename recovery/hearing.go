package recovery

import "time"

// hearing is how well the console itself hears. While it is blind (most nodes
// are not heard at once, or no node at all) or late (it works off words of long ago) nobody is
// judged by silence: a hold begins, and when it ends all clocks start again.
type hearing struct {
	blind bool      // most nodes are not heard now
	began time.Time // of the hold; zero = there is none
	grace time.Time // after blindness, until then: for those who are not back yet
	late  time.Time // until then the console catches up
	since time.Time // when all clocks began again; zero = never
	noted time.Time // when it was last said that the console is late
}

// lateNote is how often it is said that the console is late.
const lateNote = time.Minute

// holds reports whether nobody may be judged by silence now.
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

// open begins with a hold: nobody was heard before.
func (h *hearing) open(now time.Time, grace time.Duration) {
	h.start(now)
	h.grace = now.Add(grace)
}

// lag takes the word that the console is late; true = it is worth a line.
func (h *hearing) lag(now time.Time, beat time.Duration) bool {
	h.start(now)
	h.late = now.Add(beat)
	fresh := h.noted.IsZero() || now.Sub(h.noted) >= lateNote
	if fresh {
		h.noted = now
	}
	return fresh
}

// see takes how many nodes are missed: not heard now, and not heard yet; deaf is
// that no node at all is heard, be it a spare or fenced. It reports for how long
// all held still when that ends: the clocks start again at this moment.
func (h *hearing) see(now time.Time, unheard, unmet, nodes int, deaf bool, grace time.Duration) (held time.Duration, over bool) {
	if h.blind = deaf || unheard > 1 && 2*unheard > nodes; h.blind {
		h.start(now)
		h.grace = now.Add(grace)
	}
	if unheard+unmet == 0 {
		h.grace = time.Time{}
	}
	if !h.holds() || h.blind || now.Before(h.grace) || now.Before(h.late) {
		return 0, false
	}
	held, h.began = now.Sub(h.began), time.Time{}
	return held, true
}

// listen judges the console's own hearing before that of anybody else.
func (m *Machine) listen(now time.Time) {
	unheard, unmet, leaving, of := 0, 0, 0, 0
	for _, n := range m.sorted {
		if m.isFenced(n) {
			continue // it speaks neither for the console's hearing nor against it
		}
		of++
		switch h := m.host(n, now); {
		case m.unheard(now, h):
			unheard++
			if h.leaves(now, m.cfg.Leave) {
				leaving++
			}
		case !h.met:
			unmet++
		}
	}
	blind := m.hear.blind
	held, over := m.hear.see(now, unheard, unmet, of, unheard > 0 && m.deaf(now), m.cfg.Grace)
	if m.hear.blind && !blind && unheard > max(leaving, 1) && !m.ends.finished {
		m.note("fault", 2, "%d of %d nodes are silent at once: nothing is fenced, the console's own network may be at fault", unheard, of)
	}
	if over {
		m.listenAnew(now, held)
	}
}

// deaf reports whether no node at all is heard.
func (m *Machine) deaf(now time.Time) bool {
	for _, h := range m.nodes {
		if h.met && !m.unheard(now, h) {
			return false
		}
	}
	return len(m.nodes) > 1
}

// listenAnew starts all clocks again after a time in which the console could not
// judge by silence.
func (m *Machine) listenAnew(now time.Time, held time.Duration) {
	for _, h := range m.nodes {
		if h.heard.Before(now) {
			h.heard, h.suspect = now, false
		}
	}
	for r := range m.ends.open {
		m.ends.open[r] = now
	}
	m.pace.moved, m.at.moved, m.hear.since = now, now, now
	m.postpone(held)
}

// postpone gives the present state of a recovery the time back in which its
// deadline did not run.
func (m *Machine) postpone(by time.Duration) {
	if m.deadlineRests() {
		m.at.until = m.at.until.Add(by)
		m.cur.DeadlineNs = m.at.until.UnixNano()
		m.dirty()
	}
}

// deadlineRests reports whether the deadline of the present state does not run
// while the console is blind or late. A whole restart that waits for agents has
// said for how long it does.
func (m *Machine) deadlineRests() bool {
	return m.recovering() && !m.cur.Whole && !m.at.until.IsZero()
}

// onLate has nobody judged by silence until the engine has caught up.
func (m *Machine) onLate(now time.Time) {
	if m.hear.lag(now, m.cfg.Beat) {
		m.note("fault", 1, "the console is late itself: nobody is judged by silence until it has caught up")
	}
}

// deadlineHeld reports whether the deadline of the present state waits until the
// console hears again; not for ever.
func (m *Machine) deadlineHeld(now time.Time) bool {
	return m.hear.holds() && m.deadlineRests() && !m.hear.exhausted(now, m.cfg.HangMin)
}
