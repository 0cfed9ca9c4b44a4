package keyguard

import (
	"math/rand/v2"
	"time"
)

// Bounds of the reports.
const (
	pendingMost = 8                // that wait for their answers; older ones are forgotten
	muteAfter   = 5 * time.Second  // a terminal that never answered is taken for one that can't
	lateAfter   = 20 * time.Second // one that has answered is waited for as long as links freeze
)

// Report is one question to the terminal: the cursor is moved to a cell and its position
// asked for. The cell tells answers apart; nobody who has not read it can answer.
type Report struct {
	Number uint32 // unlike that of any other console of this process, most likely
	X, Y   int    // the cell, counted from 0
	sent   time.Time
}

// reports are the questions to one terminal.
type reports struct {
	random  *rand.Rand
	number  uint32
	current uint32 // the one that proves what is drawn now, 0 = none was made
	pending []Report
	code    string

	answered bool          // the terminal has answered before
	silent   time.Time     // since when the oldest question is unanswered, zero = none is
	delay    time.Duration // of the newest answer
}

func newReports(seed uint64) reports {
	r := reports{random: rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15))} // no secret depends on it
	r.number = r.random.Uint32()
	return r
}

// Ask makes the report that proves what is drawn from now on, on a screen of w columns and h
// rows. Row 0 is left out: an answer from there reads like a key.
func (g *Guard) Ask(w, h int) Report {
	r := &g.reports
	r.number++
	q := Report{
		Number: r.number,
		X:      r.random.IntN(max(1, w-1)),
		Y:      1 + r.random.IntN(max(1, h-2)),
	}
	for r.isTaken(q) && w*h > 4*pendingMost {
		q.X, q.Y = r.random.IntN(w-1), 1+r.random.IntN(max(1, h-2))
	}
	if r.pending = append(r.pending, q); len(r.pending) > pendingMost {
		r.pending = r.pending[1:]
	}
	r.current = q.Number
	return q
}

func (r *reports) isTaken(q Report) bool {
	for _, p := range r.pending {
		if p.X == q.X && p.Y == q.Y {
			return true
		}
	}
	return false
}

// Sent notes that all that was drawn before a report was asked for is on its way, and the
// report behind it; ok is false for one of another console.
func (g *Guard) Sent(now time.Time, number uint32) (q Report, ok bool) {
	r := &g.reports
	for i := range r.pending {
		if r.pending[i].Number != number {
			continue
		}
		r.pending[i].sent = now
		if r.silent.IsZero() {
			r.silent = now
		}
		return r.pending[i], true
	}
	return Report{}, false
}

// Answer takes a cursor's position and reports whether it says that the open dialog is drawn.
// One that answers no report has no effect.
func (g *Guard) Answer(now time.Time, x, y int) bool {
	r := &g.reports
	for i, p := range r.pending {
		if p.X != x || p.Y != y || p.sent.IsZero() {
			continue
		}
		r.answered = true
		r.silent = time.Time{}
		r.delay = now.Sub(p.sent)
		r.pending = append(r.pending[:0], r.pending[i+1:]...) // what was asked before is overtaken
		for _, later := range r.pending {
			if r.silent.IsZero() {
				r.silent = later.sent
			}
		}
		if p.Number != r.current || g.open.IsZero() {
			return false
		}
		g.seen = now
		return true
	}
	return false
}

// Pending are the reports without an answer, oldest first.
func (g *Guard) Pending() []Report { return g.reports.pending }

// Awaits reports whether an answer is under way, as far as that is known.
func (g *Guard) Awaits(now time.Time) bool {
	for _, q := range g.reports.pending {
		if !q.sent.IsZero() && now.Sub(q.sent) < muteAfter {
			return true
		}
	}
	return false
}

// Delay is how far the terminal is behind: the time of an answer that is waited for, or of
// the newest that came.
func (g *Guard) Delay(now time.Time) time.Duration {
	if r := &g.reports; r.answered && !r.silent.IsZero() {
		return max(r.delay, now.Sub(r.silent))
	}
	return g.reports.delay
}

// IsMute reports whether the open dialog is unseen and the terminal does not seem to answer.
func (g *Guard) IsMute(now time.Time) bool {
	patience := muteAfter
	if g.reports.answered {
		patience = lateAfter
	}
	silent := g.reports.silent
	return !g.open.IsZero() &&
		g.seen.IsZero() &&
		!silent.IsZero() &&
		now.Sub(silent) >= patience
}

// OfferCode returns the letters that a person reads off the dialog and types, from now on.
func (g *Guard) OfferCode(now time.Time) string {
	if g.coded.IsZero() {
		g.coded = now
	}
	return g.reports.code
}

// codeLetters look unlike each other, and make no words.
const codeLetters = "bcdfghjkmnpqrtvwxz"

// newCode chooses the letters of a dialog.
func (r *reports) newCode() {
	b := make([]byte, 4)
	for i := range b {
		b[i] = codeLetters[r.random.IntN(len(codeLetters))]
	}
	r.code = string(b)
}
