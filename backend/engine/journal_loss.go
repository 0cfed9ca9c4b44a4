package engine

import (
	"errors"
	"time"

	"github.com/failslow/falcon/backend/journal"
)

// lossReserve is how many command ids are left out after a loss: more than any
// engine has given out since the newest record that is left.
const lossReserve = 1 << 40

// MarkLoss notes in a journal that no engine has open that its newest records
// are missing. Commands of those may have been carried out: their ids are not
// given out again, as agents would answer them from memory. Open ones keep
// theirs for the same reason.
func MarkLoss(path string, now time.Time, text string) error {
	j, err := journal.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(markLoss(j, now, text), j.Close())
}

func markLoss(j *journal.Journal, now time.Time, text string) error {
	m, _, err := restore(j)
	if err != nil {
		return err
	}
	return j.Append([]journal.Record{
		record(now, kindReserve, reserveRecord{Below: m.Reserved + lossReserve}),
		record(now, kindEvent, eventRecord{
			Kind:     "journal",
			Severity: 3,
			Text:     clean(text),
		}),
	})
}
