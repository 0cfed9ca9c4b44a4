package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/triage"
)

// handOver is the verb that assigns all open incidents, or one, with the same note.
const handOver = "handover"

// triageStore takes down who looks after which incident.
type triageStore struct {
	*shared
}

// Triage acknowledges, snoozes, assigns or annotates an incident, or hands all open ones over.
// It answers once what was said is durable; of several incidents all are taken down or none.
// ErrInvalid and ErrStale as for Decide.
func Triage(
	ctx context.Context,
	e *Engine,
	who Actor,
	q *falconv1.TriageRequest,
) (*falconv1.TriageReply, error) {
	out := &falconv1.TriageReply{}
	err := e.decideInLoop(ctx, func() error {
		return e.triage.take(who, q)
	})
	if err != nil {
		return nil, err
	}
	err = e.readInLoop(ctx, func() {
		now := e.cfg.Now()
		out.AtUnixNs = now.UnixNano()
		for _, v := range e.state.incidents {
			if v.ID == q.GetIncident() || q.GetIncident() == "" && v.Open() {
				out.Triage = e.state.addTriage(out.Triage, now, v, triage.NotesMost)
			}
		}
	})
	return out, err
}

func (d *triageStore) take(who Actor, q *falconv1.TriageRequest) error {
	if n := len(q.GetText()); n > triage.TextMost { // clean would cut it
		return fmt.Errorf("%w: the text has %d bytes, at most %d are kept", ErrInvalid, n, triage.TextMost)
	}
	about, err := d.about(q)
	if err != nil {
		return err
	}
	now := d.cfg.Now()
	var said []triage.Entry
	for _, v := range about {
		e := entryOf(now, who, q, v)
		if err := d.state.triage.Check(now, e, v); err != nil {
			return refusedTriage(err)
		}
		said = append(said, e)
	}
	for _, e := range said {
		d.batch.addRecords(record(now, kindTriage, e))
	}
	d.oplog.audit(now, who, auditEntry{
		Verb:   clean(q.GetVerb()),
		About:  aboutText(q, len(about)),
		Reason: reasonOf(now, said[0]),
	})
	return nil
}

// about are the incidents that a request is about, at least one.
func (d *triageStore) about(q *falconv1.TriageRequest) ([]falcon.Incident, error) {
	if q.GetIncident() != "" || q.GetVerb() != handOver {
		v, known := d.state.incident(q.GetIncident())
		if !known {
			return nil, noIncident(q.GetIncident())
		}
		return []falcon.Incident{v}, nil
	}
	var open []falcon.Incident
	for _, v := range d.state.incidents {
		if v.Open() {
			open = append(open, v)
		}
	}
	if len(open) == 0 {
		return nil, fmt.Errorf("%w: no incident is open, there is nothing to hand over", ErrStale)
	}
	return open, nil
}

func entryOf(now time.Time, who Actor, q *falconv1.TriageRequest, v falcon.Incident) triage.Entry {
	e := triage.Entry{
		Incident: v.ID,
		Verb:     triage.Verb(clean(q.GetVerb())),
		To:       clean(q.GetTo()),
		Text:     clean(q.GetText()),
		By:       clean(who.Name),
		AtNs:     now.UnixNano(),
	}
	if e.Verb == handOver {
		e.Verb = triage.Assign
	}
	if e.Verb == triage.Snooze {
		e.UntilNs = now.Add(time.Duration(q.GetForNs())).UnixNano()
		e.Ms, e.Severity = v.SlowMs, v.Verdict.Severity
	}
	return e
}

func refusedTriage(err error) error {
	if errors.Is(err, triage.ErrStale) {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return fmt.Errorf("%w: %w", ErrInvalid, err)
}

func aboutText(q *falconv1.TriageRequest, incidents int) string {
	if q.GetIncident() != "" {
		return clean(q.GetIncident())
	}
	return fmt.Sprintf("%d open incidents", incidents)
}

// reasonOf is what the audit line says beside verb and incident.
func reasonOf(now time.Time, e triage.Entry) string {
	t := e.Text
	switch e.Verb {
	case triage.Assign:
		t = joined("to "+e.To, t)
	case triage.Snooze:
		t = joined("for "+time.Duration(e.UntilNs-now.UnixNano()).String(), t)
	}
	return t
}

func joined(first, second string) string {
	if second == "" {
		return first
	}
	return first + ": " + second
}

// addTriage adds what consoles see of an incident's status, with its newest notes, to a list;
// nothing where no one has said anything.
func (m *journalState) addTriage(
	list []*falconv1.Triage,
	now time.Time,
	v falcon.Incident,
	notes int,
) []*falconv1.Triage {
	s := m.triage[v.ID]
	if s == nil {
		return list
	}
	out := &falconv1.Triage{
		Incident:           s.Incident,
		Owner:              s.Owner,
		AssignedUnixNs:     s.Assigned,
		AckedBy:            s.AckedBy,
		AckedUnixNs:        s.AckedNs,
		SnoozedBy:          s.Snoozed.By,
		SnoozedUntilUnixNs: s.Snoozed.UntilNs,
		Quiet:              s.Quiet(now, v),
		Woke:               s.Woke(now, v),
		NoteCount:          int32(len(s.Notes)),
	}
	for _, n := range s.Notes[max(0, len(s.Notes)-notes):] {
		out.Notes = append(out.Notes, &falconv1.TriageNote{
			By:     n.By,
			UnixNs: n.AtNs,
			Text:   n.Text,
		})
	}
	return append(list, out)
}
