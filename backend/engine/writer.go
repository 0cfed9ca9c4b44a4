package engine

import (
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

// persist writes the batch and folds it into memory. Events reach watchers
// only from here.
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
		if r.Kind == kindEvent {
			jw.hub.publish(jw.state.events[len(jw.state.events)-1])
		}
	}
	jw.batch.written(jw.state.Reserved)
	return nil
}

// publishUnrecorded publishes a line that is in no journal: the one about the journal.
func (jw *journalWriter) publishUnrecorded(now time.Time, severity int32, text string) {
	jw.state.addEvent(eventRecord{Iteration: jw.det.Steady().Iteration, Kind: "journal", Severity: severity, Text: clean(text)}, journal.Record{AtNs: now.UnixNano()})
	jw.hub.publish(jw.state.events[len(jw.state.events)-1])
}
