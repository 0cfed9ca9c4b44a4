package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"
)

// Keep says which records stay for the audit when a snapshot takes the place of
// all others.
type Keep struct {
	Record func(Record) bool // nil = none
	Most   int               // the newest ones; 0 = none
}

// Compact replaces all records by a snapshot, in one transaction: its parts, in
// order, say what the records have come to. The file does not become smaller;
// what was freed is used again. After an error nothing has changed, or all has:
// the journal goes on in either case.
func (j *Journal) Compact(atNs int64, parts [][]byte, keep Keep) error {
	batch := make([]Record, 1, len(parts)+1)
	for _, p := range parts {
		batch = append(batch, Record{AtNs: atNs, Kind: KindPart, Body: p})
		if err := batch[len(batch)-1].check(); err != nil {
			return err
		}
	}
	var body snapshotBody
	batch[0] = Record{AtNs: atNs, Kind: KindSnapshot}
	points := [...]string{PointBeforeCompact, PointCompacted, PointReplaced}
	err := j.commit(points, func(tx *bbolt.Tx, head *Head) error {
		body = snapshotBody{
			Replaces: head.Seq,
			Hash:     hex.EncodeToString(head.Hash[:]),
			Parts:    len(parts),
		}
		return compactTx(tx, &body, batch, keep, head)
	})
	if err != nil {
		return err
	}
	j.compacted(body, batch)
	return nil
}

func (j *Journal) compacted(body snapshotBody, batch []Record) {
	from, _ := body.head() // made by Compact
	r := &j.report
	r.From = from
	r.Records = uint64(len(batch))
	r.Kept = body.Kept
	r.TailLost = false
	r.Snapshot = 0
	r.Since = 0
	for _, p := range batch {
		r.Snapshot += int64(headBytes + len(p.Kind) + len(p.Body))
	}
}

func compactTx(tx *bbolt.Tx, body *snapshotBody, batch []Record, keep Keep, head *Head) error {
	if err := keepTx(tx, body, keep); err != nil {
		return err
	}
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("journal: encode snapshot: %w", err)
	}
	batch[0].Body = b
	if err := tx.DeleteBucket([]byte(logBucket)); err != nil {
		return err
	}
	if _, err := tx.CreateBucket([]byte(logBucket)); err != nil {
		return err
	}
	if err := tx.Bucket([]byte(metaBucket)).Delete([]byte(tailKey)); err != nil {
		return err
	}
	return put(tx, batch, head)
}

// keepTx makes the audit tail from the older one and the log.
func keepTx(tx *bbolt.Tx, body *snapshotBody, keep Keep) error {
	var kept [][]byte
	for _, name := range []string{tailBucket, logBucket} {
		err := tx.Bucket([]byte(name)).ForEach(func(_, v []byte) error {
			r, err := decode(v)
			if err != nil {
				return err
			}
			if keep.Record != nil &&
				r.Kind != KindSnapshot &&
				r.Kind != KindPart &&
				keep.Record(r) {
				kept = append(kept, bytes.Clone(v))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := tx.DeleteBucket([]byte(tailBucket)); err != nil {
		return err
	}
	tail, err := tx.CreateBucket([]byte(tailBucket))
	if err != nil {
		return err
	}
	sum := sha256.New()
	for _, v := range kept[max(0, len(kept)-keep.Most):] {
		k := bytes.Clone(v[sha256.Size : sha256.Size+8])
		if binary.BigEndian.Uint64(k) > body.Replaces {
			return fmt.Errorf("%w: record %d is newer than the newest", ErrRecord, binary.BigEndian.Uint64(k))
		}
		digest(sum, k, v)
		body.Kept++
		if err := tail.Put(k, v); err != nil {
			return err
		}
	}
	body.Digest = hex.EncodeToString(sum.Sum(nil))
	return nil
}
