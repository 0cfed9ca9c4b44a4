package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

var dana = Actor{Name: "dana", Role: "operator", From: "10.0.0.8"}

// What people say of an incident is durable, is sent to consoles and to the audit, and ends
// with a snooze's time; it decides nothing.
func TestTriage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		a := b.proposed()
		id := a.GetIncident()
		say := func(q *falconv1.TriageRequest) (*falconv1.Triage, error) {
			r, err := Triage(context.Background(), b.engine, dana, q)
			if err != nil {
				return nil, err
			}
			return r.GetTriage()[0], nil
		}
		must := func(q *falconv1.TriageRequest) *falconv1.Triage {
			t.Helper()
			v, err := say(q)
			if err != nil {
				t.Fatalf("%v: %v", q, err)
			}
			return v
		}
		must(&falconv1.TriageRequest{Incident: id, Verb: "ack"})
		must(&falconv1.TriageRequest{
			Incident: id,
			Verb:     "note",
			Text:     "fan of n1\x1b[31m replaced",
		})
		must(&falconv1.TriageRequest{
			Verb: "handover",
			To:   "lee",
			Text: "watch n1",
		})
		v := must(&falconv1.TriageRequest{
			Incident: id,
			Verb:     "snooze",
			ForNs:    int64(time.Hour),
		})
		if !v.GetQuiet() ||
			v.GetOwner() != "lee" ||
			v.GetAckedBy() != "dana" ||
			len(v.GetNotes()) != 2 ||
			v.GetNotes()[0].GetText() != "fan of n1[31m replaced" {
			t.Errorf("%v", v)
		}
		began := time.Unix(0, b.incidents().GetIncidents()[0].GetOnsetUnixNs())
		late := b.engine.cfg.Now().Sub(began)
		if late <= 0 || late > time.Minute {
			t.Errorf("the incident began %s ago", late)
		}
		if got := b.action().GetState(); got != a.GetState() {
			t.Errorf("the proposal is %s: a snooze decides nothing", got)
		}
		b.again()
		s, err := b.engine.Latest(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		seen := s.For(dana, nil).GetTriage()
		if len(seen) != 1 ||
			!seen[0].GetQuiet() ||
			seen[0].GetNoteCount() != 2 ||
			len(seen[0].GetNotes()) != 1 ||
			seen[0].GetNotes()[0].GetText() != "watch n1" {
			t.Errorf("after a restart: %v", seen)
		}
		if lines := b.triageAudit(); lines != "ack INC-0001; note INC-0001: fan of n1[31m replaced; handover 1 open incidents: to lee: watch n1; snooze INC-0001: for 1h0m0s" {
			t.Errorf("audit: %s", lines)
		}
		must(&falconv1.TriageRequest{Incident: id, Verb: "wake"})
		for _, c := range []struct {
			q    *falconv1.TriageRequest
			want error
		}{
			{&falconv1.TriageRequest{Incident: id, Verb: "wake"}, ErrStale},
			{&falconv1.TriageRequest{Incident: "INC-0099", Verb: "ack"}, ErrNotFound},
			{&falconv1.TriageRequest{Verb: "ack"}, ErrNotFound},
			{&falconv1.TriageRequest{Incident: id, Verb: "close"}, ErrInvalid},
			{&falconv1.TriageRequest{Incident: id, Verb: "handover"}, ErrInvalid},
			{&falconv1.TriageRequest{Incident: id, Verb: "note", Text: strings.Repeat("x", 513)}, ErrInvalid},
		} {
			if _, err := say(c.q); !errors.Is(err, c.want) {
				t.Errorf("%v: %v, want %v", c.q, err, c.want)
			}
		}
	})
}

// triageAudit is what dana did, oldest first.
func (b *bench) triageAudit() string {
	var out []string
	b.inLoop(func() {
		for _, e := range b.engine.state.events {
			if d := e.GetAudit(); d.GetActor() == "dana" {
				line := d.GetVerb() + " " + d.GetAbout()
				if d.GetReason() != "" {
					line += ": " + d.GetReason()
				}
				out = append(out, line)
			}
		}
	})
	return strings.Join(out, "; ")
}
