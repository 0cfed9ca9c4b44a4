package journal

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// OpenTimeout is how long Open waits for another process to let the file go.
const OpenTimeout = 2 * time.Second

const (
	logBucket  = "log"
	metaBucket = "meta"
	headKey    = "head"
)

// Head is the newest record's place in the chain; zero for an empty journal.
type Head struct {
	Seq  uint64
	Hash Hash
}

func (h Head) String() string {
	return fmt.Sprintf("%d:%s", h.Seq, hex.EncodeToString(h.Hash[:]))
}

// Journal is an open log.
type Journal struct {
	db   *bbolt.DB
	path string
	head Head
}

// Open opens or creates the journal at path (mode 0600) and takes its lock.
// The whole chain is checked: an engine must not act on a past that was
// tampered with. Errors wrap ErrLocked or ErrCorrupt.
func Open(path string) (*Journal, error) {
	db, err := openDB(path, false)
	if err != nil {
		return nil, err
	}
	j := &Journal{db: db, path: path}
	if err := j.prepare(); err != nil {
		_ = db.Close()
		return nil, err
	}
	return j, nil
}

func (j *Journal) prepare() error {
	err := guarded(func() error { return j.db.Update(createBuckets) })
	if err != nil {
		return corrupt(j.path, err)
	}
	head, err := walk(j.db, nil)
	if err != nil {
		return corrupt(j.path, err)
	}
	j.head = head
	return nil
}

func createBuckets(tx *bbolt.Tx) error {
	for _, name := range []string{logBucket, metaBucket} {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	return nil
}

// Head is the newest record's place in the chain.
func (j *Journal) Head() Head { return j.head }

// Path is the file's name as it was opened.
func (j *Journal) Path() string { return j.path }

// Append stores the batch durably, in order, all or nothing, and fills Seq and
// Hash. An empty batch costs nothing. After an error the journal's state on
// disk is unchanged, and so is its head.
func (j *Journal) Append(batch []Record) error {
	if len(batch) == 0 {
		return nil
	}
	for _, r := range batch {
		if err := r.check(); err != nil {
			return err
		}
	}
	head := j.head
	err := guarded(func() error {
		return j.db.Update(func(tx *bbolt.Tx) error { return put(tx, batch, &head) })
	})
	if err != nil {
		return fmt.Errorf("journal: write to %s: %w", j.path, err)
	}
	j.head = head
	return nil
}

func put(tx *bbolt.Tx, batch []Record, head *Head) error {
	log := tx.Bucket([]byte(logBucket))
	log.FillPercent = 0.95 // keys only grow
	for i := range batch {
		r := &batch[i]
		r.Seq = head.Seq + 1
		value := r.seal(head.Hash)
		if err := log.Put(seqKey(r.Seq), value); err != nil {
			return err
		}
		*head = Head{Seq: r.Seq, Hash: r.Hash}
	}
	return tx.Bucket([]byte(metaBucket)).Put([]byte(headKey), head.encode())
}

func (h Head) encode() []byte {
	return append(binary.BigEndian.AppendUint64(nil, h.Seq), h.Hash[:]...)
}

func decodeHead(b []byte) (Head, error) {
	var h Head
	if len(b) == 0 {
		return h, nil
	}
	if len(b) != 8+len(h.Hash) {
		return h, fmt.Errorf("%w: the head has %d bytes", ErrRecord, len(b))
	}
	h.Seq = binary.BigEndian.Uint64(b)
	copy(h.Hash[:], b[8:])
	return h, nil
}

// Each calls f for every record in order, checking the chain on the way.
func (j *Journal) Each(f func(Record) error) error {
	_, err := walk(j.db, f)
	return err
}

// Close gives the file back.
func (j *Journal) Close() error { return j.db.Close() }

// Verify checks a journal that nobody has open: it returns the head, or an
// error that names the first broken record.
func Verify(path string) (Head, error) { return Read(path, nil) }

// Read is Verify that hands every record to f on the way, oldest first; f may
// be nil. An error of f ends it.
func Read(path string, f func(Record) error) (Head, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return Head{}, fmt.Errorf("%w: %s; name the journal.db of the engine's state directory", ErrAbsent, path)
	}
	db, err := openDB(path, true)
	if err != nil {
		return Head{}, err
	}
	defer db.Close()
	var failed error
	head, err := walk(db, func(r Record) error {
		if f != nil {
			failed = f(r)
		}
		return failed
	})
	switch {
	case failed != nil:
		return head, failed
	case err != nil:
		return head, corrupt(path, err)
	}
	return head, nil
}

func openDB(path string, readOnly bool) (*bbolt.DB, error) {
	if err := precheck(path); err != nil {
		return nil, err
	}
	var db *bbolt.DB
	err := guarded(func() (err error) {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout: OpenTimeout, ReadOnly: readOnly, FreelistType: bbolt.FreelistMapType,
		})
		return err
	})
	switch {
	case err == nil:
		return db, nil
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("%w: %s; stop the other falcon that uses this state directory, or choose another state_dir", ErrLocked, path)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("journal: open %s: %w", path, err)
	}
	return nil, corrupt(path, err)
}

// walk reads the log in order and compares its end with the stored head.
func walk(db *bbolt.DB, f func(Record) error) (Head, error) {
	var head Head
	err := guarded(func() error {
		return db.View(func(tx *bbolt.Tx) error { return walkTx(tx, &head, f) })
	})
	return head, err
}

func walkTx(tx *bbolt.Tx, head *Head, f func(Record) error) error {
	log, meta := tx.Bucket([]byte(logBucket)), tx.Bucket([]byte(metaBucket))
	if log == nil || meta == nil {
		return fmt.Errorf("%w: this is no Falcon journal", ErrRecord)
	}
	c := log.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		r, err := follows(k, v, head.Seq, head.Hash)
		if err != nil {
			return fmt.Errorf("record %d is the first broken one: %w", head.Seq+1, err)
		}
		*head = Head{Seq: r.Seq, Hash: r.Hash}
		if f != nil {
			if err := f(r); err != nil {
				return err
			}
		}
	}
	return endsAt(meta.Get([]byte(headKey)), *head)
}

func endsAt(stored []byte, found Head) error {
	want, err := decodeHead(stored)
	if err != nil {
		return err
	}
	if want != found {
		return fmt.Errorf("%w: the log ends at record %d and its head says %d", ErrRecord, found.Seq, want.Seq)
	}
	return nil
}

func corrupt(path string, err error) error {
	return fmt.Errorf("%w: %s: %w; keep the file for the inquiry and start with an empty state_dir", ErrCorrupt, path, err)
}

// guarded turns what bbolt does on a damaged file (a panic, or a fault on a
// page that the file no longer holds) into an error.
func guarded(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrRecord, p)
		}
	}()
	return f()
}

// precheck refuses what bbolt would answer with a riddle.
func precheck(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("journal: open %s: %w", path, err)
	case info.IsDir():
		return fmt.Errorf("journal: %s is a directory, not a journal file", path)
	case info.Size() > 0 && info.Size() < 4*int64(os.Getpagesize()):
		return corrupt(path, fmt.Errorf("%w: the file was cut to %d bytes", ErrRecord, info.Size()))
	}
	return nil
}
