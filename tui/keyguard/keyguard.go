// Package keyguard judges whether a key that confirms something is a person's, pressed at
// what they saw.
//
// Two questions have to be answered. Has the dialog been on the terminal? A report of the
// cursor's position is asked for behind the dialog's bytes; its answer comes back through
// the same link, behind whatever was typed before the dialog was drawn. Where a terminal
// never answers, letters that only the dialog shows have to be typed. And is it a person
// who types? A confirmation counts only without stray keys and with a pause before it, not
// among keys that come faster than a person types, and only if no key follows at once. A
// slow stream of characters has a person's speed; what gives it away is that it goes on,
// and that most of its characters mean nothing where they arrive.
//
// Guarantees: pure, takes time as an argument, bounded memory. It must not read the clock,
// draw, or know what is decided.
package keyguard

import (
	"time"
)

// The bounds of a person's keys.
const (
	Look   = 400 * time.Millisecond  // a dialog is on the screen for so long before a key counts
	Gap    = 50 * time.Millisecond   // the least between a confirmation and the key before it
	Most   = 14                      // keys in a second; a person types at most 12
	Pause  = 400 * time.Millisecond  // without keys, after what was typed ahead or pasted
	Rest   = 1500 * time.Millisecond // without keys, after stray keys; a stream of 1 B/s never rests
	Settle = 200 * time.Millisecond  // no key may follow a confirmation for so long
	Coded  = 2 * time.Second         // the letters are shown for so long where no report is answered
)

// Kind is what a key means where it is pressed.
type Kind int

// The kinds.
const (
	KeyStep    Kind = iota // it does something
	KeyStray               // it does nothing
	KeyText                // it is text for an entry
	KeyConfirm             // it confirms what the open dialog asks
	KeyClose               // it closes the dialog, and decides nothing
)

// Reason is why a key does not count.
type Reason int

// The reasons; Counts is none.
const (
	Counts   Reason = iota
	Unseen          // no report says that the dialog is on the terminal
	Fresh           // it has been there for less than Look
	Ahead           // keys came before that; a pause ends it
	Strayed         // keys came that mean nothing here; a rest ends it
	Pasted          // text was pasted; a pause ends it
	Fast            // keys come faster than a person types
	Followed        // keys came right behind the confirmation; a rest ends it
	Held            // it is a confirmation, and counts if no key follows
)

// Guard is the state of one console. Use New.
type Guard struct {
	reports reports

	keys   [Most + 1]time.Time // the newest keys, a ring
	next   int
	last   time.Time // the newest key
	run    time.Time // since when no two keys were Rest apart
	typed  time.Time // the newest text
	reason Reason    // why a pause is asked for
	pause  time.Duration
	since  time.Time // when it was asked for last

	open   time.Time // when the dialog was opened, zero = none is
	seen   time.Time // when a report said that it is drawn, zero = none did
	coded  time.Time // when its letters were offered
	held   time.Time // when the confirmation counts, zero = there is none
	settle time.Duration
	failed bool // a confirmation did not count since the dialog was opened, or since a rest
}

// New makes a guard; the seed makes its reports' places and letters hard to guess.
func New(seed uint64) *Guard {
	return &Guard{reports: newReports(seed)}
}

// Open notes that a dialog was opened. It is unseen until a report says otherwise.
func (g *Guard) Open(now time.Time) {
	g.open = now
	g.held = time.Time{}
	g.failed = false
	g.Repaint()
	g.reports.newCode()
}

// Repaint notes that the dialog is drawn again: it is unseen again.
func (g *Guard) Repaint() {
	g.seen = time.Time{}
	g.coded = time.Time{}
	g.reports.current = 0
}

// Close notes that no dialog is open.
func (g *Guard) Close() {
	g.open = time.Time{}
	g.held = time.Time{}
}

// Press judges a key: Counts, or why it does not. A confirmation that may count is Held. Who reads that
// a confirmation did not count presses it again; a stream goes on with text.
func (g *Guard) Press(now time.Time, kind Kind) Reason {
	gap := g.noteKey(now, kind)
	why := g.judge(now, kind, gap)
	switch {
	case kind == KeyConfirm && why != Held:
		g.failed = true
	case kind == KeyText && g.failed:
		g.demandPause(Followed, Rest)
	}
	return why
}

// judge judges a key that came a gap after the one before.
func (g *Guard) judge(now time.Time, kind Kind, gap time.Duration) Reason {
	switch {
	case !g.held.IsZero():
		return g.pressHeld(now, kind)
	case kind == KeyStray:
		g.demandPause(Strayed, Rest)
	case g.open.IsZero():
		return Counts
	}
	why := g.unreadable(now)
	if why != Counts && (kind != KeyText || g.coded.IsZero()) {
		g.demandPause(Ahead, Pause)
		return why
	}
	switch {
	case kind == KeyStray:
		return Strayed
	case kind == KeyText || kind == KeyClose:
		return Counts
	case g.reason != Counts:
		return g.reason
	case kind == KeyStep:
		return Counts
	case gap < Gap || g.isRushed(now):
		return Fast
	}
	g.settle = g.settleTime(gap)
	g.held = now.Add(g.settle)
	return Held
}

// pressHeld is a key while a confirmation waits: the same key again waits on, and any other
// ends it.
func (g *Guard) pressHeld(now time.Time, kind Kind) Reason {
	switch kind {
	case KeyConfirm:
		g.held = now.Add(g.settle)
		return Held
	case KeyClose:
		g.held = time.Time{}
		return Counts
	case KeyStep, KeyStray, KeyText:
	}
	g.held = time.Time{}
	g.demandPause(Followed, Rest)
	return Followed
}

// settleTime is how long a confirmation waits for what may follow. A stream goes on at its
// own pace: where the run of keys reaches back to the one that opened the dialog, or to text,
// it waits for longer than the last gap.
func (g *Guard) settleTime(gap time.Duration) time.Duration {
	if gap < Rest && (!g.open.Before(g.run) || !g.typed.Before(g.run)) {
		return max(Settle, gap+gap/4)
	}
	return Settle
}

// Paste notes that text was pasted.
func (g *Guard) Paste(now time.Time) {
	g.noteKey(now, KeyText)
	if !g.held.IsZero() {
		g.pressHeld(now, KeyText)
	}
	g.demandPause(Pasted, Pause)
}

// Interrupt notes the key that leaves where it is pressed twice, and reports whether a person
// pressed it: it needs no picture.
func (g *Guard) Interrupt(now time.Time) bool {
	gap := g.noteKey(now, KeyStep)
	return gap >= Gap &&
		!g.isRushed(now) &&
		(g.reason == Counts || g.reason == Ahead)
}

// Due reports whether a confirmation counts by now; once.
func (g *Guard) Due(now time.Time) bool {
	if g.held.IsZero() || now.Before(g.held) {
		return false
	}
	g.held = time.Time{}
	return true
}

// Wait is how long a confirmation waits to be due.
func (g *Guard) Wait(now time.Time) time.Duration { return g.held.Sub(now) }

// Block is what stands between the dialog and a confirmation at this moment, and for how
// long if no key is pressed; without an end that is known, 0.
func (g *Guard) Block(now time.Time) (Reason, time.Duration) {
	switch why := g.unreadable(now); {
	case g.open.IsZero():
		return Counts, 0
	case !g.held.IsZero():
		return Held, g.held.Sub(now)
	case why == Unseen:
		return Unseen, 0
	case why == Fresh:
		return Fresh, g.readableAt().Sub(now)
	}
	if left := g.pause - g.rested(now); g.reason != Counts && left > 0 {
		return g.reason, left
	}
	return Counts, 0
}

// unreadable returns why the dialog can't have been read yet, or Counts.
func (g *Guard) unreadable(now time.Time) Reason {
	switch at := g.readableAt(); {
	case at.IsZero():
		return Unseen
	case now.Before(at):
		return Fresh
	}
	return Counts
}

// readableAt is from when on the dialog may have been read; zero = not known.
func (g *Guard) readableAt() time.Time {
	switch {
	case !g.seen.IsZero():
		return g.seen.Add(Look)
	case !g.coded.IsZero():
		return g.coded.Add(Coded)
	}
	return time.Time{}
}

// noteKey keeps a key's time, ends a pause that was long enough, and returns the gap before it.
func (g *Guard) noteKey(now time.Time, kind Kind) time.Duration {
	gap := now.Sub(g.last)
	if g.last.IsZero() || gap >= Rest {
		g.run, g.failed = now, false
	}
	if g.reason != Counts && g.rested(now) >= g.pause {
		g.reason, g.pause = Counts, 0
	}
	if kind == KeyText {
		g.typed = now
	}
	g.last, g.keys[g.next] = now, now
	g.next = (g.next + 1) % len(g.keys)
	return gap
}

// rested is for how long there was the pause that is asked for: without keys, but after a
// paste, which is distinguished from them.
func (g *Guard) rested(now time.Time) time.Duration {
	if g.reason == Pasted {
		return now.Sub(g.since)
	}
	return now.Sub(g.last)
}

// isRushed reports whether more than Most keys came within a second.
func (g *Guard) isRushed(now time.Time) bool {
	oldest := g.keys[g.next]
	return !oldest.IsZero() && now.Sub(oldest) < time.Second
}

// demandPause asks for a pause; the longest that is asked for counts.
func (g *Guard) demandPause(why Reason, d time.Duration) {
	if d >= g.pause {
		g.reason, g.pause = why, d
		g.since = g.last
	}
}
