package engine

import (
	"time"

	"github.com/failslow/falcon/backend/journal"
)

// reserveBlock is how many command ids are promised in one record.
const reserveBlock = 1024

// batch is what the loop has for the next write to the journal: records, and
// what runs once they are durable. It gives out the ids of commands: a promised
// block of them is durable before one of the block is sent, so that no restart
// gives an id out twice.
type batch struct {
	state       *journalState
	records     []pendingRecord
	sends       []func()      // once the records are durable
	whenDurable []func(error) // nil error: durable; else the disk refused the batch

	nextID   uint64 // of commands
	promised uint64 // ids below are in this batch or in the journal
	durable  uint64 // ids below are in the journal
	applied  uint64 // records that were applied: while it stays, the journal's state does
}

// pendingRecord is a record that is not durable yet.
type pendingRecord struct {
	journal.Record
	applied bool // the journal's state has it already
}

func newBatch(state *journalState) *batch {
	return &batch{
		state:    state,
		nextID:   max(state.Reserved, 1),
		promised: state.Reserved,
	}
}

// addRecords adds records that are applied to the journal's state when the turn's
// batch is written.
func (b *batch) addRecords(records ...journal.Record) {
	for _, r := range records {
		b.records = append(b.records, pendingRecord{Record: r})
	}
}

// apply adds a record and applies it at once: what follows in this turn is
// decided on it. Nothing is sent before it is durable. What can't be applied is
// tried once more, and then refused, before the batch is written.
func (b *batch) apply(r journal.Record) {
	err := b.applyNow(r)
	b.records = append(b.records, pendingRecord{Record: r, applied: err == nil})
}

// applyNow applies a record to the journal's state.
func (b *batch) applyNow(r journal.Record) error {
	b.applied++
	return b.state.apply(r)
}

func (b *batch) empty() bool {
	return len(b.records) == 0 && len(b.sends) == 0
}

// whenDurableDo runs f when the batch, and all that follows from it in this turn, is durable.
func (b *batch) whenDurableDo(f func(error)) {
	b.whenDurable = append(b.whenDurable, f)
}

// sendDurable runs f once the batch is durable, however long the disk refuses it.
func (b *batch) sendDurable(f func()) {
	b.sends = append(b.sends, f)
}

// take empties the batch.
func (b *batch) take() (records []pendingRecord, sends []func()) {
	records, sends = b.records, b.sends
	b.records, b.sends = nil, nil
	return records, sends
}

// written notes that all records taken so far are durable.
func (b *batch) written(reserved uint64) {
	b.durable = reserved
}

// settled runs what waits for durability; err is why the disk refused.
func (b *batch) settled(err error) {
	waiting := b.whenDurable
	b.whenDurable = nil
	for _, f := range waiting {
		f(err)
	}
}

// reserve promises another block of command ids.
func (b *batch) reserve(now time.Time) {
	b.promised = b.nextID + reserveBlock
	b.addRecords(record(now, kindReserve, reserveRecord{Below: b.promised}))
}

// skipTo leaves out ids that another engine may have given out.
func (b *batch) skipTo(now time.Time, id uint64) {
	if id > b.nextID {
		b.nextID = id
		b.reserve(now)
	}
}

// commandID gives out the next id.
func (b *batch) commandID(now time.Time) uint64 {
	id := b.nextID
	b.nextID++
	if b.nextID >= b.promised {
		b.reserve(now)
	}
	return id
}
