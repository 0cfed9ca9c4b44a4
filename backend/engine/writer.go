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

	held   waits // a batch that the disk did not take
	unmade int64 // size of the journal at which no snapshot could be made
}

// persist writes the batch and folds it into memory. Events reach watchers
// only from here.
func (jw *journalWriter) persist(batch []journal.Record) error {
	if len(batch) == 0 {
		return nil
	}
	if err := jw.cfg.Fault(PointBeforeWrite); err != nil {
		return err
	}
	if err := jw.cfg.Journal.Append(batch); err != nil {
		return err
	}
	if err := jw.cfg.Fault(PointAfterWrite); err != nil {
		return err
	}
	for _, r := range batch {
		if err := jw.mem.apply(r); err != nil {
			return err
		}
		if r.Kind == kindEvent {
			jw.hub.publish(jw.mem.events[len(jw.mem.events)-1])
		}
	}
	jw.batch.written(jw.mem.reserved)
	return nil
}

// show publishes a line that is in no journal: the one about the journal.
func (jw *journalWriter) show(now time.Time, severity int32, text string) {
	jw.mem.addEvent(eventRecord{Iteration: jw.det.Steady().Iteration, Kind: "journal", Severity: severity, Text: clean(text)}, journal.Record{AtNs: now.UnixNano()})
	jw.hub.publish(jw.mem.events[len(jw.mem.events)-1])
}
