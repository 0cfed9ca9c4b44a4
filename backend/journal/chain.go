package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"

	"go.etcd.io/bbolt"
)

// Kinds of records that this package writes itself. A snapshot takes the place
// of all records before it; its parts follow it.
const (
	KindSnapshot Kind = "snapshot"
	KindPart     Kind = "part"
)

// snapshotBody is the body of a snapshot's first record.
type snapshotBody struct {
	Replaces uint64 `json:"replaces"`      // number of the newest record that it takes the place of
	Hash     string `json:"replaces_hash"` // of that record, hex
	Parts    int    `json:"parts"`         // records of KindPart that follow
	Kept     uint64 `json:"audit_records"` // older records that stay for the audit
	Digest   string `json:"audit_digest"`  // SHA-256 over their keys and values, hex
}

func (b snapshotBody) head() (Head, error) {
	h := Head{Seq: b.Replaces}
	raw, err := hex.DecodeString(b.Hash)
	if err != nil || len(raw) != len(h.Hash) {
		return h, fmt.Errorf("%w: the snapshot names no head that it replaces", ErrRecord)
	}
	copy(h.Hash[:], raw)
	return h, nil
}

func decodeSnapshot(r Record) (snapshotBody, Head, error) {
	var b snapshotBody
	if r.Kind != KindSnapshot {
		return b, Head{}, fmt.Errorf("%w: records before %d are missing, and it is no snapshot",
			ErrRecord, r.Seq)
	}
	if err := json.Unmarshal(r.Body, &b); err != nil {
		return b, Head{}, fmt.Errorf("%w: snapshot %d can't be read: %w", ErrRecord, r.Seq, err)
	}
	head, err := b.head()
	if err != nil {
		return b, head, err
	}
	if b.Replaces+1 != r.Seq || b.Parts < 0 {
		return b, head, fmt.Errorf("%w: snapshot %d replaces the records up to %d",
			ErrRecord, r.Seq, b.Replaces)
	}
	return b, head, nil
}

// Report is what was found in a journal.
type Report struct {
	Head     Head   // newest record
	From     Head   // newest record that the snapshot has replaced; zero = none was
	Records  uint64 // from the snapshot on
	Kept     uint64 // older ones, kept for the audit
	TailLost bool   // those were given up by a repair
	Version  int    // format
	By       string // falcon that wrote the file's format
	Anchored bool   // a head file was compared
	Snapshot int64  // bytes of the snapshot's records
	Since    int64  // bytes of the records after it
}

// walker reads a journal from its oldest record to its newest.
type walker struct {
	Report
	anchor *Head // that must be in the chain, or be ahead of it; nil = not known
	forked bool  // another record has the anchor's number
	noTail bool  // what was kept for the audit is not looked at
	parts  int   // of the snapshot, still to come
	digest string
	audit  func(Record) error // may be nil
	each   func(Record) error // may be nil
}

// walk checks everything that a journal holds.
func walk(db *bbolt.DB, w *walker) error {
	return guarded(func() error { return db.View(w.walkTx) })
}

func (w *walker) walkTx(tx *bbolt.Tx) error {
	log := tx.Bucket([]byte(logBucket))
	meta := tx.Bucket([]byte(metaBucket))
	if log == nil && meta == nil && !hasBuckets(tx) {
		return nil // made, and nothing written yet
	}
	if log == nil || meta == nil {
		return fmt.Errorf("%w: this is no Falcon journal", ErrRecord)
	}
	f, err := readFormat(meta)
	if err != nil {
		return err
	}
	w.Version, w.By = f.Version, f.By
	if err := w.walkTail(tx.Bucket([]byte(tailBucket)), meta); err != nil {
		return err
	}
	if err := w.walkLog(log); err != nil {
		return err
	}
	return endsAt(meta.Get([]byte(headKey)), w.Head)
}

func hasBuckets(tx *bbolt.Tx) bool {
	k, _ := tx.Cursor().First()
	return k != nil
}

// walkTail reads the older records that were kept. Each one's own hash can't be
// computed again, as the record before it is gone: their digest in the snapshot
// proves them.
func (w *walker) walkTail(tail, meta *bbolt.Bucket) error {
	w.TailLost = w.noTail || meta.Get([]byte(tailKey)) != nil
	if tail == nil || w.noTail {
		return nil
	}
	sum := sha256.New()
	c := tail.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		r, err := decode(v)
		if err != nil {
			return fmt.Errorf("audit record %x: %w", k, err)
		}
		if !bytes.Equal(k, seqKey(r.Seq)) {
			return fmt.Errorf("%w: audit record %d has another one's place", ErrRecord, r.Seq)
		}
		digest(sum, k, v)
		w.Kept++
		if w.audit != nil {
			if err := w.audit(r); err != nil {
				return err
			}
		}
	}
	w.digest = hex.EncodeToString(sum.Sum(nil))
	return nil
}

func digest(sum hash.Hash, k, v []byte) {
	sum.Write(k)
	sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(v))))
	sum.Write(v)
}

func (w *walker) walkLog(log *bbolt.Bucket) error {
	c := log.Cursor()
	k, v := c.First()
	if k != nil {
		if err := w.begin(k, v); err != nil {
			return err
		}
	} else if w.Kept > 0 {
		return fmt.Errorf("%w: there are audit records and no snapshot", ErrRecord)
	}
	for ; k != nil; k, v = c.Next() {
		r, err := follows(k, v, w.Head.Seq, w.Head.Hash)
		if err != nil {
			return fmt.Errorf("record %d is the first broken one: %w", w.Head.Seq+1, err)
		}
		if err := w.take(r, int64(len(v))); err != nil {
			return err
		}
	}
	if w.parts > 0 {
		return fmt.Errorf("%w: %d parts of the snapshot are missing", ErrRecord, w.parts)
	}
	return nil
}

// begin finds where the chain begins: with the first record of all, or with a
// snapshot.
func (w *walker) begin(k, v []byte) error {
	r, err := decode(v)
	if err != nil {
		return fmt.Errorf("record %x is the first broken one: %w", k, err)
	}
	if bytes.Equal(k, seqKey(1)) && r.Kind != KindSnapshot {
		if w.Kept > 0 {
			return fmt.Errorf("%w: there are audit records and no snapshot", ErrRecord)
		}
		return nil
	}
	if len(k) != 8 || binary.BigEndian.Uint64(k) != r.Seq {
		return fmt.Errorf("record %d is the first broken one: %w: record %d stands there",
			w.Head.Seq+1, ErrRecord, r.Seq)
	}
	body, from, err := decodeSnapshot(r)
	if err != nil {
		return fmt.Errorf("record %d is the first broken one: %w", w.Head.Seq+1, err)
	}
	if !w.TailLost && (body.Kept != w.Kept || body.Digest != w.digest) {
		return fmt.Errorf("%w: the %d audit records are not the %d that snapshot %d has kept",
			ErrRecord, w.Kept, body.Kept, r.Seq)
	}
	w.From = from
	w.Head = from
	w.parts = body.Parts + 1
	return nil
}

func (w *walker) take(r Record, size int64) error {
	switch {
	case w.parts > 0 && r.Seq == w.From.Seq+1:
	case w.parts > 0 && r.Kind != KindPart:
		return fmt.Errorf("%w: record %d is no part of the snapshot before it", ErrRecord, r.Seq)
	case w.parts == 0 && (r.Kind == KindPart || r.Kind == KindSnapshot):
		return fmt.Errorf("%w: record %d belongs to a snapshot that is not there", ErrRecord, r.Seq)
	}
	if w.parts > 0 {
		w.parts--
		w.Snapshot += size
	} else {
		w.Since += size
	}
	w.Head = Head{Seq: r.Seq, Hash: r.Hash}
	w.Records++
	if a := w.anchor; a != nil && a.Seq == r.Seq && a.Hash != r.Hash {
		w.forked = true
	}
	if w.each == nil {
		return nil
	}
	return w.each(r)
}

func endsAt(stored []byte, found Head) error {
	want, err := decodeHead(stored)
	if err != nil {
		return err
	}
	if want != found {
		return fmt.Errorf("%w: the log ends at record %d and its head says %d",
			ErrRecord, found.Seq, want.Seq)
	}
	return nil
}

// anchored compares what was found with the head file: a journal may be ahead
// of it by what was appended when the process ended, and never behind.
func (w *walker) anchored(path string, a *anchor) error {
	if a == nil {
		return nil
	}
	w.Anchored = true
	switch {
	case a.head.Seq > w.Head.Seq:
		return lost(path, w.Head, a.head)
	case w.forked:
		return fmt.Errorf(
			"%w: record %d of %s is not the one that %s names: one of the two is of another journal; bring a backup back with falcon journal restore, or take the journal as it is with falcon journal repair --accept-loss; %s",
			ErrLost, a.head.Seq, path, anchorPath(path), fencesLost,
		)
	case a.head.Seq < w.From.Seq, a.head.Seq == w.From.Seq && a.head != w.From:
		return fmt.Errorf(
			"%w: %s belongs to another state of %s (record %d, and the journal begins after %d); falcon journal verify checks the journal alone, falcon journal repair writes the head file again",
			ErrCorrupt, anchorPath(path), path, a.head.Seq, w.From.Seq,
		)
	}
	return nil
}
