package triage

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// Verb is what a person says of an incident.
type Verb string

// The verbs of an Entry.
const (
	Ack    Verb = "ack"    // I have seen it
	Snooze Verb = "snooze" // no alerts of it for some time
	Wake   Verb = "wake"   // ends a snooze
	Assign Verb = "assign" // it is To's from now on
	Note   Verb = "note"   // Text, for whoever comes next
)

// Bounds of what is kept.
const (
	NotesMost  = 64             // of one incident; the oldest make way
	TextMost   = 512            // bytes of a text
	NameMost   = 64             // bytes of a name
	SnoozeMost = 24 * time.Hour // a snooze is for a shift, not for good
)

// Worse is the growth of an incident's iteration time that ends a snooze, as a share of what
// it was.
const Worse = 0.1

// ErrInvalid is wrapped by a refusal of what lacks something; ErrStale by one of what does not
// fit the incident.
var (
	ErrInvalid = errors.New("triage: invalid")
	ErrStale   = errors.New("triage: not as it was seen")
)

// Entry is what one person said of one incident, as the journal has it.
type Entry struct {
	Incident string  `json:"incident"`
	Verb     Verb    `json:"verb"`
	To       string  `json:"to,omitempty"`            // Assign: whose it is
	UntilNs  int64   `json:"until_unix_ns,omitempty"` // Snooze
	Ms       float64 `json:"ms,omitempty"`            // Snooze: iteration time at that moment
	Severity int     `json:"severity,omitempty"`      // Snooze: severity at that moment
	Text     string  `json:"text,omitempty"`
	By       string  `json:"by"`
	AtNs     int64   `json:"at_unix_ns"`
}

// NoteLine is one note.
type NoteLine struct {
	By   string `json:"by"`
	AtNs int64  `json:"at_unix_ns"`
	Text string `json:"text"`
}

// Status is what is known of one incident.
type Status struct {
	Incident string     `json:"incident"`
	Owner    string     `json:"owner,omitempty"`
	Assigned int64      `json:"assigned_unix_ns,omitempty"`
	AckedBy  string     `json:"acked_by,omitempty"`
	AckedNs  int64      `json:"acked_unix_ns,omitempty"`
	Snoozed  Entry      `json:"snoozed,omitzero"` // the newest snooze; none where UntilNs is 0
	Notes    []NoteLine `json:"notes,omitempty"`  // oldest first
}

// Quiet reports whether alerts of the incident are left out now: it is snoozed, and has not
// become worse since. A closed incident is never snoozed.
func (s *Status) Quiet(now time.Time, v falcon.Incident) bool {
	return s.Snoozed.UntilNs > now.UnixNano() && s.Woke(now, v) == ""
}

// Why a snooze ends before its time.
const (
	WokeOver  = "over"  // the incident is
	WokeWorse = "worse" // the incident is
)

// Woke is why a snooze has ended before its time, "" where it has not.
func (s *Status) Woke(now time.Time, v falcon.Incident) string {
	z := s.Snoozed
	switch {
	case z.UntilNs <= now.UnixNano():
		return ""
	case !v.Open():
		return WokeOver
	case z.Ms > 0 && v.SlowMs > z.Ms*(1+Worse), v.Verdict.Severity > z.Severity && z.Severity != 0:
		return WokeWorse
	}
	return ""
}

// Book holds the status of the incidents of which anybody has said something, by id.
type Book map[string]*Status

// Check says in one sentence why an entry about an incident can't be taken.
func (b Book) Check(now time.Time, e Entry, v falcon.Incident) error {
	switch {
	case len(e.Text) > TextMost:
		return fmt.Errorf("%w: the text has %d bytes, at most %d are kept", ErrInvalid, len(e.Text), TextMost)
	case len(e.To) > NameMost:
		return fmt.Errorf("%w: the name has %d bytes, at most %d are possible",
			ErrInvalid, len(e.To), NameMost)
	}
	switch e.Verb {
	case Ack, Wake, Snooze:
		return b.checkOpen(now, e, v)
	case Assign:
		if e.To == "" {
			return fmt.Errorf("%w: name the person whose %s is to be", ErrInvalid, e.Incident)
		}
		return nil
	case Note:
		if e.Text == "" {
			return fmt.Errorf("%w: a note needs a text", ErrInvalid)
		}
		return nil
	}
	return fmt.Errorf("%w: %q is none of ack, snooze, wake, assign, note", ErrInvalid, e.Verb)
}

// checkOpen is about what an incident must be open for.
func (b Book) checkOpen(now time.Time, e Entry, v falcon.Incident) error {
	s := b[e.Incident]
	span := time.Duration(e.UntilNs - now.UnixNano())
	switch {
	case !v.Open():
		return fmt.Errorf("%w: %s is %s, it alerts nobody", ErrStale, v.ID, v.State)
	case e.Verb == Wake && (s == nil || !s.Quiet(now, v)):
		return fmt.Errorf("%w: %s is not snoozed", ErrStale, v.ID)
	case e.Verb == Snooze && (span <= 0 || span > SnoozeMost):
		return fmt.Errorf("%w: a snooze is for a time up to %s, not for %s", ErrInvalid, SnoozeMost, span)
	}
	return nil
}

// Apply takes an entry that Check let pass, or one of the journal.
func (b Book) Apply(e Entry) {
	s := b[e.Incident]
	if s == nil {
		s = &Status{Incident: e.Incident}
		b[e.Incident] = s
	}
	switch e.Verb {
	case Ack:
		s.AckedBy, s.AckedNs = e.By, e.AtNs
	case Snooze: // who silences an incident has seen it
		s.Snoozed, s.AckedBy, s.AckedNs = e, e.By, e.AtNs
	case Wake:
		s.Snoozed = Entry{}
	case Assign:
		s.Owner, s.Assigned = e.To, e.AtNs
	}
	if e.Text != "" {
		s.Notes = append(s.Notes, NoteLine{By: e.By, AtNs: e.AtNs, Text: e.Text})
		s.Notes = slices.Delete(s.Notes, 0, max(0, len(s.Notes)-NotesMost))
	}
}
