package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon/backend/journal"
)

// A record that a fold refuses should not exist: what is written was folded before.
// An older falcon may have left one, or a damaged disk. Where what it says only
// concerns charts, texts and estimates, it is passed over with an alarm; anything
// else stops the start, until a person has it passed over by `falcon journal repair`.

// Refusal is a record that can't be folded.
type Refusal struct {
	Seq    uint64
	Kind   journal.Kind
	Reason string
	Safety bool // the engine does not start without a person's consent
}

// String is the refusal in a sentence.
func (r Refusal) String() string {
	return fmt.Sprintf("record %d (%s) can't be read: %s", r.Seq, r.Kind, r.Reason)
}

// asideRecord is a person's consent to pass records over.
type asideRecord struct {
	Records []uint64 `json:"records"`
}

// asideMost bounds what may be passed over.
const asideMost = 1024

// carriesSafety reports whether the engine might harm a job without records of a
// kind. A kind that it does not know carries safety.
func carriesSafety(kind journal.Kind) bool {
	switch kind {
	case kindPace, kindEvent, kindOverhead, kindSpeeds, kindImpact, kindWatched, kindTriage,
		kindBaseline, kindClock:
		return false
	}
	return true
}

// sectionCarriesSafety is carriesSafety for a section of a snapshot.
func sectionCarriesSafety(name string) bool {
	switch name {
	case "pace", "events", "overheads", "speeds", "impacts", "past", "triage", "baseline",
		"stamps", "opened", "clock":
		return false
	}
	return true
}

// folding folds a whole journal and keeps what it refuses.
type folding struct {
	state   *journalState
	refused []Refusal
}

func (f *folding) add(r journal.Record) error {
	err := f.state.apply(r)
	if err == nil {
		return nil
	}
	safety := carriesSafety(r.Kind) && !errors.Is(err, errPassable)
	f.refused = append(f.refused, Refusal{
		Seq:    r.Seq,
		Kind:   r.Kind,
		Reason: clean(err.Error()),
		Safety: safety,
	})
	if len(f.refused) > asideMost {
		return fmt.Errorf("%w: more than %d of its records can't be read, the first: %s",
			ErrJournal, asideMost, f.refused[0])
	}
	return nil
}

// stopping are the refusals that nobody has consented to pass over.
func (f *folding) stopping() []Refusal {
	return slices.DeleteFunc(slices.Clone(f.refused), func(r Refusal) bool {
		return !r.Safety || slices.Contains(f.state.aside, r.Seq)
	})
}

// ErrJournal is wrapped by what keeps an engine from using a journal.
var ErrJournal = errors.New("engine: the journal can't be used")

// errPassable is wrapped by the refusal of a snapshot's part that an engine can do without.
var errPassable = errors.New("engine: passable")

// restore folds the whole journal: its snapshot, and what came after it. It fails
// where a record is refused that the engine must not do without; what else is
// refused is returned.
func restore(j *journal.Journal) (*journalState, []Refusal, error) {
	f := folding{state: newJournalState()}
	if err := j.Each(f.add); err != nil {
		return nil, nil, err
	}
	if list := f.stopping(); len(list) > 0 {
		return nil, nil, fmt.Errorf(
			"%w: %s; falcon journal verify lists all %d of them, and falcon journal repair --accept-loss passes them over",
			ErrJournal, list[0], len(list),
		)
	}
	f.state.adoptPast()
	return f.state, f.refused, nil
}

// VerifyRecords folds the journal at a path, which no engine has open, and lists the
// records that are refused and not passed over yet.
func VerifyRecords(path string) ([]Refusal, error) {
	f := folding{state: newJournalState()}
	if _, err := journal.Read(path, f.add); err != nil {
		return nil, err
	}
	known := func(r Refusal) bool {
		return slices.Contains(f.state.aside, r.Seq)
	}
	return slices.DeleteFunc(f.refused, known), nil
}

// PassOver notes in a journal, which no engine has open, that refused records are passed
// over at every start.
func PassOver(path string, now time.Time, list []Refusal) error {
	var rec asideRecord
	for _, r := range list {
		rec.Records = append(rec.Records, r.Seq)
	}
	j, err := journal.Open(path)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%d records that can't be read are passed over, the first: %s", len(list), list[0])
	err = j.Append([]journal.Record{
		record(now, kindAside, rec),
		record(now, kindEvent, eventRecord{
			Kind:     "journal",
			Severity: 3,
			Text:     clean(text),
		}),
	})
	return errors.Join(err, j.Close())
}

// alarmRefused says what was passed over at this start.
func (s *shared) alarmRefused(list []Refusal) {
	for i, r := range list {
		if i == refusedShown {
			s.oplog.logf("journal", 2, "",
				"%d more records of the journal can't be read and were passed over",
				len(list)-i)
			return
		}
		s.log.Error(
			"a record of the journal was passed over",
			"record",
			r.Seq,
			"kind",
			string(r.Kind),
			"reason",
			r.Reason,
		)
		s.oplog.logf("journal", 2, "", "%s; it was passed over, and no decision depends on it", r)
	}
}

// refusedShown bounds the lines about refused records.
const refusedShown = 5
