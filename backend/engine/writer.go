package engine

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/failslow/falcon/backend/journal"
)

// journalWriter makes batches durable, folds them into what the journal says,
// and publishes their lines. A batch that the disk refuses is held.
type journalWriter struct {
	*shared

	arbiter *arbiter
	hub     *hub

	held   heldRound // a batch that the disk did not take
	unmade int64     // size of the journal at which no snapshot could be made
}

// fold folds a batch into memory before it is written, and returns what is to be
// written: what a fold refuses is never stored, as the next start would refuse it
// too. Without a record that carries safety the engine can't go on, and the error
// says so; any other is left out and logged.
func (jw *journalWriter) fold(pending []pendingRecord) ([]pendingRecord, error) {
	kept := pending[:0]
	for _, r := range pending {
		err := jw.foldPending(&r)
		if err != nil && carriesSafety(r.Kind) {
			return nil, fmt.Errorf(
				"%w: it is not stored, and nothing was sent that depends on it; the engine ends: start it again",
				err,
			)
		}
		if err != nil {
			jw.log.Error("a record was left out of the journal", slog.Any("err", err))
			jw.oplog.logf("journal", 2, "",
				"a record of kind %s was left out of the journal: %s; report this to Falcon's developers",
				r.Kind, err)
			continue
		}
		kept = append(kept, r)
	}
	return kept, nil
}

// foldPending folds one record, but for an event line: its place in the journal is
// known once it is written, and it can always be added if it can be read.
func (jw *journalWriter) foldPending(r *pendingRecord) error {
	switch {
	case r.applied:
		return nil
	case r.Kind == kindEvent:
		return decodeInto(r.Record, func(eventRecord) {})
	}
	err := jw.batch.applyNow(r.Record)
	r.applied = err == nil
	return err
}

// save folds records and makes them durable.
func (jw *journalWriter) save(pending []pendingRecord) error {
	pending, err := jw.fold(pending)
	if err != nil {
		return err
	}
	return jw.persist(pending)
}

// persist writes a batch that was folded. Events reach watchers only from here.
func (jw *journalWriter) persist(pending []pendingRecord) error {
	if len(pending) == 0 {
		return nil
	}
	if err := jw.cfg.Fault(PointBeforeWrite); err != nil {
		return err
	}
	batch := make([]journal.Record, len(pending))
	for i, r := range pending {
		batch[i] = r.Record
	}
	if err := jw.cfg.Journal.Append(batch); err != nil {
		return err
	}
	if err := jw.cfg.Fault(PointAfterWrite); err != nil {
		return err
	}
	for i, r := range batch {
		if pending[i].applied {
			continue
		}
		if err := jw.batch.applyNow(r); err != nil {
			return err
		}
		jw.hub.publish(jw.state.events[len(jw.state.events)-1])
	}
	jw.batch.written(jw.state.Reserved)
	return nil
}

// publishUnrecorded publishes a line that is in no journal: the one about the journal.
func (jw *journalWriter) publishUnrecorded(now time.Time, severity int32, text string) {
	jw.state.addEvent(
		eventRecord{
			Iteration: jw.det.Steady().Iteration,
			Kind:      "journal",
			Severity:  severity,
			Text:      clean(text),
		},
		journal.Record{AtNs: now.UnixNano()},
	)
	jw.hub.publish(jw.state.events[len(jw.state.events)-1])
}
