package journal

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/failslow/falcon/backend/api/version"
)

// Version is the format of the journals that this falcon writes. It is raised
// with every change after which an older falcon would misread a journal: of the
// buckets, of a record's encoding, or of the kinds of records there are.
//
//	1  one bucket of records, no format noted
//	2  format noted, head file, snapshots, audit tail, recoveries by difference
//	3  how long jobs were watched, and a history of incidents in snapshots
//	4  who looks after which incident
//	5  iteration times for charts, and when actions were proposed, in force and reverted
//	6  how time goes on from the machine's boot clock, and records that are passed over
const Version = 6

const (
	logBucket  = "log"   // records by number: from the beginning, or from a snapshot on
	tailBucket = "audit" // older records that a snapshot has kept, by number
	metaBucket = "meta"

	headKey   = "head"
	formatKey = "format"
	tailKey   = "audit-lost" // set where a repair has given up the audit tail
)

// format is what a journal says of itself.
type format struct {
	Version int    `json:"version"`
	By      string `json:"written_by"`
}

func ownFormat() format {
	return format{Version: Version, By: "falcon " + version.Own()}
}

func (f format) encode() []byte {
	b, err := json.Marshal(f)
	if err != nil {
		panic(fmt.Sprintf("journal: encode format: %v", err))
	}
	return b
}

// readFormat reads and judges a journal's format; one that notes none has 1.
func readFormat(meta *bbolt.Bucket) (format, error) {
	b := meta.Get([]byte(formatKey))
	if b == nil {
		return format{Version: 1, By: "an older falcon"}, nil
	}
	return decodeFormat(b)
}

func decodeFormat(b []byte) (format, error) {
	var f format
	if err := json.Unmarshal(b, &f); err != nil || f.Version < 1 {
		return f, fmt.Errorf("%w: its format can't be read: %q", ErrRecord, b)
	}
	if f.Version > Version {
		return f, fmt.Errorf(
			"%w: %q wrote it in format %d and this falcon knows %d; use that falcon or a newer one",
			ErrNewer, f.By, f.Version, Version,
		)
	}
	return f, nil
}

// Head is the newest record's place in the chain; zero for an empty journal.
type Head struct {
	Seq  uint64
	Hash Hash
}

func (h Head) String() string {
	return fmt.Sprintf("%d:%s", h.Seq, hex.EncodeToString(h.Hash[:]))
}

// headLen is the length of a head without its format.
const headLen = 8 + len(Hash{})

// encode ends with the format: a falcon of format 1 refuses a head of that
// length, as it would misread what else is new.
func (h Head) encode() []byte {
	return append(append(binary.BigEndian.AppendUint64(nil, h.Seq), h.Hash[:]...), Version)
}

func decodeHead(b []byte) (Head, error) {
	var h Head
	if len(b) == 0 {
		return h, nil
	}
	if len(b) != headLen && len(b) != headLen+1 {
		return h, fmt.Errorf("%w: the head has %d bytes", ErrRecord, len(b))
	}
	h.Seq = binary.BigEndian.Uint64(b)
	copy(h.Hash[:], b[8:])
	return h, nil
}

// prepareTx makes a new journal's buckets and converts an older journal. The
// records of format 1 are read as they are; what changes is what else the file
// says, so that an older falcon refuses it.
func prepareTx(tx *bbolt.Tx, head Head) error {
	for _, name := range []string{logBucket, tailBucket, metaBucket} {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	meta := tx.Bucket([]byte(metaBucket))
	if err := meta.Put([]byte(formatKey), ownFormat().encode()); err != nil {
		return err
	}
	return meta.Put([]byte(headKey), head.encode())
}
