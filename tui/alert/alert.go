// Package alert decides when the console may make itself heard: the terminal's
// bell, and desktop notifications while no one looks at the terminal.
//
// It guarantees that the bell rings at most once in BellGap and notes come at
// most once in NoteGap, that a cause is reported once, that what was there when
// the console opened is not news, and that what the limits held back is reported
// later if it still holds. It is pure: state and time in, alerts out; no I/O,
// no goroutines. Encode turns them into bytes.
package alert

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/statements"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/phrase"
)

// The limits.
const (
	BellGap      = 30 * time.Second
	NoteGap      = 10 * time.Second
	NearEnd      = 15 * time.Second // a countdown this near its end is reported again
	causesMax    = 64               // looked at, of what the engine sends
	announcedMax = 1024             // remembered
)

// Cause is one thing that wants a look. ID distinguishes it from others; a cause that
// is reported is not reported again under the same ID.
type Cause struct {
	ID    string
	Title string
	Body  string
}

// Note is one desktop notification, clean and short.
type Note struct {
	ID    string // a later note with it replaces this one, where the terminal can
	Title string
	Body  string
}

// Alert is what to do now.
type Alert struct {
	Bell bool
	Note *Note
}

// Core remembers what was reported, and when. The zero value is ready.
type Core struct {
	primed    bool
	heard     map[string]bool // jobs of several that were heard of
	announced map[string]bool
	order     []string // of reported, oldest first
	ring      []string // causes that wait for the bell
	note      []Cause  // causes that wait for a note
	lastBell  time.Time
	lastNote  time.Time
}

// Input is what the decision rests on.
type Input struct {
	State   *feed.State
	Focused bool    // the terminal has the focus, or does not report it
	Job     string  // named in titles, where a console shows several
	Price   float64 // GPU-hours that a minor slowdown must have cost to be a cause
	Muted   bool    // no bell
	Silent  bool    // no notes
}

// Step decides. A cause that ends before the limits allow its report is not reported.
func (c *Core) Step(now time.Time, in Input) Alert {
	causes := Causes(in.State, now, in.Price)
	for i := range causes {
		causes[i].Title = named(causes[i].Title, in.Job)
	}
	return c.decide(now, c.newCauses(causes, in.State), causes, in)
}

// decide lets the limits pass what is fresh, of all causes that stand.
func (c *Core) decide(now time.Time, fresh, causes []Cause, in Input) Alert {
	for _, x := range fresh {
		c.ring = append(c.ring, x.ID)
		if !in.Focused {
			c.note = append(c.note, x)
		}
	}
	c.forgetEnded(causes)
	var out Alert
	if len(c.ring) > 0 && isDue(now, c.lastBell, BellGap) {
		out.Bell = !in.Muted
		c.ring, c.lastBell = nil, now
	}
	if in.Focused || in.Silent {
		c.note = nil // seen, or not wanted
	}
	if len(c.note) > 0 && isDue(now, c.lastNote, NoteGap) {
		out.Note = joinCauses(c.note)
		c.note, c.lastNote = nil, now
	}
	return out
}

func isDue(now, last time.Time, gap time.Duration) bool {
	return last.IsZero() || now.Sub(last) >= gap || now.Before(last)
}

// untold are the causes not reported yet; now they count as reported, of which at most most
// are remembered.
func (c *Core) unannounced(causes []Cause, s *feed.State, most int) []Cause {
	if s.Conn == feed.Connecting {
		return nil
	}
	var out []Cause
	for _, x := range causes {
		if !c.announced[x.ID] {
			c.rememberCause(x.ID, most)
			out = append(out, x)
		}
	}
	return out
}

// newCauses are the causes not reported yet; the first picture primes.
func (c *Core) newCauses(causes []Cause, s *feed.State) []Cause {
	out := c.unannounced(causes, s, announcedMax)
	if s.Conn == feed.Connecting {
		return nil
	}
	if !c.primed {
		c.primed = true
		return nil
	}
	return out
}

func (c *Core) rememberCause(id string, most int) {
	if c.announced == nil {
		c.announced = map[string]bool{}
	}
	if len(c.order) == most {
		delete(c.announced, c.order[0])
		c.order = c.order[1:]
	}
	c.announced[id] = true
	c.order = append(c.order, id)
}

// forgetEnded forgets what has ended. A lost connection may come back and be lost again.
func (c *Core) forgetEnded(causes []Cause) {
	stands := func(id string) bool {
		return slices.ContainsFunc(causes, func(x Cause) bool { return x.ID == id })
	}
	c.ring = slices.DeleteFunc(c.ring, func(id string) bool { return !stands(id) })
	c.note = slices.DeleteFunc(c.note, func(x Cause) bool {
		return !stands(x.ID)
	})
	c.order = slices.DeleteFunc(c.order, func(id string) bool {
		back := strings.HasSuffix(id, lostID) && !stands(id)
		if back {
			delete(c.announced, id)
		}
		return back
	})
}

// joinCauses makes one note of all that waits: the newest, and how many more.
func joinCauses(list []Cause) *Note {
	last := list[len(list)-1]
	n := &Note{ID: last.ID, Title: last.Title, Body: last.Body}
	if more := len(list) - 1; more > 0 {
		n.Body += fmt.Sprintf(" (and %d more)", more)
	}
	return n
}

const lostID = "engine-lost"

// Causes lists what wants a look in a state: a standstill, open incidents, proposals that
// wait, a recovery in progress, a countdown near its end, an engine that has
// gone. A minor slowdown is one once it has cost price GPU-hours.
func Causes(s *feed.State, now time.Time, price float64) []Cause {
	now = s.EngineTime(now)
	var out []Cause
	if s.Conn == feed.Lost {
		return []Cause{{
			lostID,
			"Falcon: engine unreachable",
			"The last picture is shown; nothing can be decided.",
		}}
	}
	for _, x := range statements.Of(statements.Picture{Snap: s.Snap, Now: now}) {
		out = append(out, standstill(&x, now)...)
	}
	for _, i := range s.Snap.GetIncidents() {
		if isOpen(i) &&
			!isSnoozed(s, i.GetId(), now) &&
			(!falcon.IsMinor(i.GetHealthyMs(), i.GetSlowMs()) || lostGPUHours(s, i.GetId()) >= price) {
			out = append(out, Cause{
				"inc-" + i.GetId() + afterSnooze(s, i.GetId()),
				"Falcon: " + i.GetId(),
				fmt.Sprintf("The job has been slow since iteration %d: %.0f ms instead of %.0f ms.",
					i.GetOnsetIteration(), i.GetSlowMs(), phrase.Before(i)),
			})
		}
		if len(out) == causesMax {
			break
		}
	}
	for _, l := range append([]*falconv1.Ladder{s.Snap.GetLadder()}, s.Snap.GetOthers()...) {
		p := l.GetProposal()
		if p.GetState() != string(falcon.ActionProposed) {
			continue
		}
		if !isSnoozed(s, p.GetIncident(), now) {
			out = append(out, Cause{
				"act-" + p.GetId() + "-" + p.GetPlanHash() + afterSnooze(s, p.GetIncident()),
				"Falcon: " + p.GetRung() + " proposed",
				fmt.Sprintf("%s: %.0f ms to %.0f ms an iteration.",
					p.GetIncident(), p.GetBeforeMs(), p.GetPredictedMs()),
			})
		}
		out = append(out, nearItsEnd(
			now,
			p.GetDeadlineUnixNs(),
			p.GetId(),
			p.GetRung()+" for "+p.GetIncident()+" is carried out",
		)...)
	}
	out = append(out, approvals(s, now)...)
	if r := s.Snap.GetRecovery(); feed.Recovering(r) {
		out = append(out, Cause{
			"rec-" + r.GetId(),
			"Falcon: " + r.GetId(),
			fmt.Sprintf("Ranks were lost; %s is in state %s.", r.GetId(), r.GetState()),
		})
		if r.GetState() == string(falcon.RecoveryProposed) {
			out = append(out, nearItsEnd(now, r.GetDeadlineUnixNs(), r.GetId(), r.GetId()+" begins")...)
		}
	}
	return out
}

// standstill is the cause of a job that trains no more, or of a recovery that has come to wait for a
// person, with the statement's own words.
func standstill(x *statements.Statement, now time.Time) []Cause {
	body := phrase.Capital(phrase.Statement(x, now)) + "."
	switch x.Kind {
	case statements.Stopped, statements.Failed, statements.Gone, statements.Ended:
		return []Cause{{"end-" + string(x.Kind), "Falcon: the job has ended", body}}
	case statements.Standing:
		if x.Hang != nil {
			return []Cause{{
				fmt.Sprintf("hang-%d", x.Hang.GetSinceUnixNs()),
				"Falcon: the job stands still",
				body,
			}}
		}
		if x.Severity >= statements.Bad && !x.Since.IsZero() {
			return []Cause{{
				fmt.Sprintf("stands-%d", x.Since.UnixNano()),
				"Falcon: the job stands still",
				body,
			}}
		}
	case statements.Recovery:
		if x.Who != statements.Nobody && x.Recovery.GetState() != string(falcon.RecoveryProposed) {
			return []Cause{{"waits-" + x.Recovery.GetId(), "Falcon: " + x.Recovery.GetId() + " waits", body}}
		}
	}
	return nil
}

// isSnoozed reports whether an incident's alerts are left out. A countdown near its end is
// reported all the same: something is about to be done.
func isSnoozed(s *feed.State, incident string, now time.Time) bool {
	return phrase.Snoozed(feed.TriageOf(s.Snap, incident), now)
}

// afterSnooze distinguishes a cause that comes back after a snooze from the one that was reported before.
func afterSnooze(s *feed.State, incident string) string {
	if until := feed.TriageOf(s.Snap, incident).GetSnoozedUntilUnixNs(); until != 0 {
		return fmt.Sprintf("-after-%d", until)
	}
	return ""
}

func isOpen(i *falconv1.Incident) bool {
	return i.GetState() == string(falcon.IncidentVerified) ||
		i.GetState() == string(falcon.IncidentLocated)
}

// lostGPUHours is what an incident has cost so far, 0 where it is not priced.
func lostGPUHours(s *feed.State, id string) float64 {
	for _, l := range append([]*falconv1.Ladder{s.Snap.GetLadder()}, s.Snap.GetOthers()...) {
		if l.GetIncident() == id {
			return l.GetLostGpuHours()
		}
	}
	return 0
}

// approvals are the causes of what was approved and has not gone out.
func approvals(s *feed.State, now time.Time) []Cause {
	var out []Cause
	var actions []*falconv1.Action
	for _, l := range append([]*falconv1.Ladder{s.Snap.GetLadder()}, s.Snap.GetOthers()...) {
		actions = append(actions, l.GetActions()...)
	}
	for _, a := range actions {
		switch what := a.GetRung() + " for " + a.GetIncident(); {
		case phrase.Waits(a):
			out = append(out, Cause{
				"second-" + a.GetId(),
				"Falcon: a second approver is wanted",
				what + " is approved by " + phrase.Approvers(a) + ".",
			})
		case a.GetState() == string(falcon.ActionApproved) && !s.Snap.GetPolicy().GetFrozen():
			out = append(out, nearItsEnd(now, a.GetDeadlineUnixNs(), a.GetId(), what+" is carried out")...)
		}
	}
	return out
}

// nearItsEnd is the cause of a countdown near its end.
func nearItsEnd(now time.Time, deadlineNs int64, id, what string) []Cause {
	left := time.Unix(0, deadlineNs).Sub(now)
	if deadlineNs == 0 || left <= 0 || left > NearEnd {
		return nil
	}
	return []Cause{{
		"end-" + id,
		"Falcon: countdown ends",
		fmt.Sprintf("%s by itself in %d s unless you veto.", what, int(left.Seconds())),
	}}
}
