package journal

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
)

// Bounds of one record.
const (
	KindBytesMax = 32
	BodyBytesMax = 32 << 20 // the description of a job of 262,144 ranks
)

// Hash is the chain's link: SHA-256 over the previous hash and the record.
type Hash [sha256.Size]byte

// Kind names what a record's body holds.
type Kind string

// Record is one entry. Seq and Hash are given by Append; AtNs is Unix ns.
type Record struct {
	Seq  uint64
	AtNs int64
	Kind Kind
	Body []byte
	Hash Hash
}

// The encoding: hash (32) · seq (8) · at (8) · kind length (1) · kind · body.
// Everything after the hash is hashed together with the previous hash. The
// sequence number stands in the value too, so that a swapped key shows.
const headBytes = sha256.Size + 8 + 8 + 1

func (r Record) check() error {
	if len(r.Kind) == 0 || len(r.Kind) > KindBytesMax {
		return fmt.Errorf("%w: a kind has 1 to %d bytes, not %d", ErrRecord, KindBytesMax, len(r.Kind))
	}
	if len(r.Body) > BodyBytesMax {
		return fmt.Errorf("%w: %s body of %d bytes is over the limit of %d",
			ErrRecord, r.Kind, len(r.Body), BodyBytesMax)
	}
	return nil
}

// seal fills the hash and returns the bytes to store.
func (r *Record) seal(prev Hash) []byte {
	b := make([]byte, headBytes, headBytes+len(r.Kind)+len(r.Body))
	binary.BigEndian.PutUint64(b[sha256.Size:], r.Seq)
	binary.BigEndian.PutUint64(b[sha256.Size+8:], uint64(r.AtNs))
	b[sha256.Size+16] = byte(len(r.Kind))
	b = append(b, r.Kind...)
	b = append(b, r.Body...)
	r.Hash = link(prev, b[sha256.Size:])
	copy(b, r.Hash[:])
	return b
}

func link(prev Hash, payload []byte) Hash {
	h := sha256.New()
	h.Write(prev[:])
	h.Write(payload)
	var out Hash
	h.Sum(out[:0])
	return out
}

// decode reads a stored record without trusting it. The body is copied. It
// does not check the chain; follows does.
func decode(b []byte) (Record, error) {
	if len(b) < headBytes {
		return Record{}, fmt.Errorf("%w: %d bytes are fewer than a record's head", ErrRecord, len(b))
	}
	kind := int(b[headBytes-1])
	if kind == 0 || kind > KindBytesMax || len(b) < headBytes+kind {
		return Record{}, fmt.Errorf("%w: a kind of %d bytes in a record of %d", ErrRecord, kind, len(b))
	}
	at := binary.BigEndian.Uint64(b[sha256.Size+8:])
	body := b[headBytes+kind:]
	if len(body) > BodyBytesMax {
		return Record{}, fmt.Errorf("%w: a body of %d bytes", ErrRecord, len(body))
	}
	r := Record{
		Seq:  binary.BigEndian.Uint64(b[sha256.Size:]),
		AtNs: int64(at),
		Kind: Kind(b[headBytes : headBytes+kind]),
		Body: append([]byte(nil), body...),
	}
	if r.Seq == math.MaxUint64 {
		return Record{}, fmt.Errorf("%w: a number that no journal reaches", ErrRecord)
	}
	copy(r.Hash[:], b)
	return r, nil
}

// follows decodes the record stored under key and checks that it is the one
// after (seq, prev).
func follows(key, value []byte, seq uint64, prev Hash) (Record, error) {
	r, err := decode(value)
	if err != nil {
		return r, err
	}
	if len(key) != 8 || binary.BigEndian.Uint64(key) != seq+1 || r.Seq != seq+1 {
		return r, fmt.Errorf("%w: record %d stands where %d should", ErrRecord, r.Seq, seq+1)
	}
	if r.Hash != link(prev, value[sha256.Size:]) {
		return r, fmt.Errorf("%w: its hash does not follow from record %d", ErrRecord, seq)
	}
	return r, nil
}

func seqKey(seq uint64) []byte {
	if seq == math.MaxUint64 {
		panic("journal: sequence numbers used up")
	}
	return binary.BigEndian.AppendUint64(nil, seq)
}
