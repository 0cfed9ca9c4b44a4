package triage

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

var start = time.Unix(1000, 0)

func slow(ms float64, severity int) falcon.Incident {
	return falcon.Incident{
		ID:        "INC-0001",
		State:     falcon.IncidentLocated,
		HealthyMs: 100,
		SlowMs:    ms,
		Verdict:   falcon.Verdict{Severity: severity},
	}
}

func snooze(d time.Duration, v falcon.Incident) Entry {
	return Entry{
		Incident: v.ID,
		Verb:     Snooze,
		UntilNs:  start.Add(d).UnixNano(),
		Ms:       v.SlowMs,
		Severity: v.Verdict.Severity,
		By:       "dana",
		AtNs:     start.UnixNano(),
	}
}

// A snooze never outlasts what it was said of.
func TestSnoozeEndsByItself(t *testing.T) {
	was := slow(200, 3)
	b := Book{}
	b.Apply(snooze(time.Hour, was))
	s := b[was.ID]
	closed := was
	closed.State = falcon.IncidentClosed
	for name, c := range map[string]struct {
		at    time.Duration
		now   falcon.Incident
		quiet bool
	}{
		"as it was":               {time.Minute, was, true},
		"a little worse":          {time.Minute, slow(215, 3), true},
		"better":                  {time.Minute, slow(120, 1), true},
		"its time is over":        {time.Hour, was, false},
		"slower than it was":      {time.Minute, slow(221, 3), false},
		"more severe than it was": {time.Minute, slow(200, 4), false},
		"it is closed":            {time.Minute, closed, false},
	} {
		if got := s.Quiet(start.Add(c.at), c.now); got != c.quiet {
			t.Errorf("%s: quiet %v", name, got)
		}
	}
	b.Apply(Entry{
		Incident: was.ID,
		Verb:     Wake,
		By:       "lee",
		AtNs:     start.UnixNano(),
	})
	if s.Quiet(start, was) {
		t.Error("it was woken, and is still quiet")
	}
}

func TestSnoozeOfAnIncidentWithoutAVerdict(t *testing.T) {
	b := Book{}
	b.Apply(snooze(time.Hour, slow(200, 0)))
	if s := b["INC-0001"]; !s.Quiet(start, slow(200, 4)) {
		t.Error("its verdict came: that is no news of how bad it is")
	}
}

func TestRefusals(t *testing.T) {
	open := slow(200, 3)
	closed := slow(200, 3)
	closed.State = falcon.IncidentClosed
	b := Book{}
	for name, c := range map[string]struct {
		e    Entry
		v    falcon.Incident
		want error
	}{
		"ack":                    {Entry{Verb: Ack}, open, nil},
		"ack of a closed one":    {Entry{Verb: Ack}, closed, ErrStale},
		"wake of no snooze":      {Entry{Verb: Wake}, open, ErrStale},
		"snooze":                 {snooze(time.Hour, open), open, nil},
		"snooze for no time":     {snooze(0, open), open, ErrInvalid},
		"snooze for good":        {snooze(25*time.Hour, open), open, ErrInvalid},
		"snooze of a closed one": {snooze(time.Hour, open), closed, ErrStale},
		"assign":                 {Entry{Verb: Assign, To: "lee"}, closed, nil},
		"assign to nobody":       {Entry{Verb: Assign}, open, ErrInvalid},
		"long name": {
			Entry{Verb: Assign, To: strings.Repeat("x", NameMost+1)},
			open,
			ErrInvalid,
		},
		"note":       {Entry{Verb: Note, Text: "a fan"}, closed, nil},
		"empty note": {Entry{Verb: Note}, open, ErrInvalid},
		"long note": {
			Entry{Verb: Note, Text: strings.Repeat("x", TextMost+1)},
			open,
			ErrInvalid,
		},
		"anything else": {Entry{Verb: "close"}, open, ErrInvalid},
	} {
		c.e.Incident = c.v.ID
		err := b.Check(start, c.e, c.v)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Notes are bounded, and the newest stay.
func TestNotes(t *testing.T) {
	b := Book{}
	for i := range NotesMost + 10 {
		b.Apply(Entry{
			Incident: "INC-0002",
			Verb:     Note,
			Text:     fmt.Sprint(i),
			By:       "dana",
			AtNs:     int64(i),
		})
	}
	b.Apply(Entry{
		Incident: "INC-0001",
		Verb:     Assign,
		To:       "lee",
		Text:     "night shift",
		By:       "dana",
		AtNs:     5,
	})
	notes := b["INC-0002"].Notes
	if len(notes) != NotesMost ||
		notes[0].Text != "10" ||
		notes[NotesMost-1].Text != fmt.Sprint(NotesMost+9) {
		t.Errorf("%d notes, from %q", len(notes), notes[0].Text)
	}
	s := b["INC-0001"]
	if s.Owner != "lee" ||
		s.Assigned != 5 ||
		len(s.Notes) != 1 ||
		s.Notes[0].By != "dana" {
		t.Errorf("%+v", s)
	}
}
