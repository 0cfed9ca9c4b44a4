package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// OpenTimeout is how long Open waits for another process to let the file go.
const OpenTimeout = 2 * time.Second

// Options are for tests.
type Options struct {
	// Fault is asked at the points below; an error stops the work there, as the
	// end of the process would.
	Fault func(point string) error
	// NoSync leaves out the syncs: what is written outlives the process and not
	// the machine.
	NoSync bool
}

// Points at which Options.Fault is asked.
const (
	PointBeforeCommit  = "before commit"
	PointCommitted     = "committed, head file not written"
	PointAnchored      = "head file written"
	PointBeforeCompact = "before compaction"
	PointCompacted     = "compacted, head file not written"
	PointReplaced      = "compacted, head file written"
)

// Points lists all of them.
func Points() []string {
	return []string{
		PointBeforeCommit, PointCommitted, PointAnchored, PointBeforeCompact, PointCompacted,
		PointReplaced,
	}
}

// Journal is an open log.
type Journal struct {
	path string
	opt  Options

	lock   sync.RWMutex // of db, which a failed write replaces: for Backup
	db     *bbolt.DB    // nil after a failed write, until the next one
	anchor *anchor
	report Report
	behind bool // the file may hold records after head that were not acknowledged
	closed bool
}

// Open opens or creates the journal at path (mode 0600) and takes its lock.
// The whole chain is checked, and its end against the head file: an engine must
// not act on a past that was tampered with or cut off. A journal of an older
// format is converted. Errors wrap one of this package's.
func Open(path string) (*Journal, error) {
	return OpenWith(path, Options{})
}

// OpenWith is Open with options.
func OpenWith(path string, opt Options) (*Journal, error) {
	if opt.Fault == nil {
		opt.Fault = func(string) error { return nil }
	}
	j := &Journal{path: path, opt: opt}
	if err := j.open(); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// open reads before it writes: a journal that is refused stays as it was.
func (j *Journal) open() error {
	a, err := readAnchor(j.path)
	if err != nil {
		return err
	}
	if _, err := os.Stat(j.path); errors.Is(err, fs.ErrNotExist) && a != nil && a.head.Seq > 0 {
		return lost(j.path, Head{}, a.head)
	}
	if j.db, err = openDB(j.path, false, j.opt.NoSync); err != nil {
		return err
	}
	w := &walker{}
	if a != nil {
		w.anchor = &a.head
	}
	if err := walk(j.db, w); err != nil {
		return failed(j.path, err)
	}
	if err := w.anchored(j.path, a); err != nil {
		return err
	}
	if w.Version < Version {
		if err := j.update(func(tx *bbolt.Tx) error {
			return prepareTx(tx, w.Head)
		}); err != nil {
			return failed(j.path, err)
		}
	}
	j.report = w.Report
	j.report.Version = Version
	j.report.Anchored = a != nil
	j.anchor, err = openAnchor(j.path, w.Head, !j.opt.NoSync)
	return err
}

// Head is the newest record's place in the chain.
func (j *Journal) Head() Head { return j.report.Head }

// Report is what Open has found, with what was written since.
func (j *Journal) Report() Report { return j.report }

// Path is the file's name as it was opened.
func (j *Journal) Path() string { return j.path }

// Append stores the batch durably, in order, all or nothing, and fills Seq and
// Hash. An empty batch costs nothing. After an error Head is as before, and the
// same batch may be appended again; see Transient.
func (j *Journal) Append(batch []Record) error {
	if len(batch) == 0 {
		return nil
	}
	size := int64(0)
	for _, r := range batch {
		if err := r.check(); err != nil {
			return err
		}
		size += int64(headBytes + len(r.Kind) + len(r.Body))
	}
	points := [...]string{PointBeforeCommit, PointCommitted, PointAnchored}
	if err := j.commit(points, func(tx *bbolt.Tx, head *Head) error {
		return put(tx, batch, head)
	}); err != nil {
		return err
	}
	j.report.Records += uint64(len(batch))
	j.report.Since += size
	return nil
}

// commit runs one durable write, all or nothing, which sets the new head; points
// are before it, behind it and behind the head file.
func (j *Journal) commit(points [3]string, write func(*bbolt.Tx, *Head) error) error {
	if err := errors.Join(j.revive(), j.opt.Fault(points[0])); err != nil {
		return err
	}
	head := j.report.Head
	err := j.update(func(tx *bbolt.Tx) error {
		if err := j.dropUnacknowledged(tx); err != nil {
			return err
		}
		return write(tx, &head)
	})
	if err == nil {
		err = j.seal(head, points[1], points[2])
	}
	if err != nil {
		j.drop()
		return unwritten(j.path, err)
	}
	return nil
}

// seal writes the head file once a commit is durable.
func (j *Journal) seal(head Head, before, after string) error {
	if err := j.opt.Fault(before); err != nil {
		return err
	}
	if err := j.anchor.write(head); err != nil {
		return err
	}
	j.report.Head, j.behind = head, false
	return j.opt.Fault(after)
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

// update runs one transaction; a damaged file's panic becomes an error.
func (j *Journal) update(f func(*bbolt.Tx) error) error {
	return guarded(func() error { return j.db.Update(f) })
}

// drop closes the file after a failed write. What the write has left in the
// file, and in this process's picture of it, is not known: the next Append
// reads it again.
func (j *Journal) drop() {
	j.lock.Lock()
	defer j.lock.Unlock()
	if j.db != nil {
		_ = guarded(j.db.Close)
	}
	j.db, j.behind = nil, true
}

// revive opens the file again after a failed write. A batch that was not
// acknowledged may be in it, which the next one replaces; a snapshot that was
// not is taken over.
func (j *Journal) revive() error {
	if j.closed {
		return ErrClosed
	}
	if j.db != nil {
		return nil
	}
	db, err := openDB(j.path, false, j.opt.NoSync)
	if err != nil {
		return err
	}
	w := &walker{anchor: &j.report.Head}
	if err := walk(db, w); err != nil {
		return errors.Join(failed(j.path, err), db.Close())
	}
	if w.Head.Seq < j.report.Head.Seq {
		return errors.Join(lost(j.path, w.Head, j.report.Head), db.Close())
	}
	if w.From.Seq >= j.report.Head.Seq && w.From.Seq > 0 {
		j.report = w.Report
	}
	j.lock.Lock()
	defer j.lock.Unlock()
	j.db = db
	return nil
}

// dropUnacknowledged removes what a failed Append may have left.
func (j *Journal) dropUnacknowledged(tx *bbolt.Tx) error {
	if !j.behind {
		return nil
	}
	c := tx.Bucket([]byte(logBucket)).Cursor()
	for k, _ := c.Seek(seqKey(
		j.report.Head.Seq + 1,
	)); k != nil; k, _ = c.Seek(seqKey(j.report.Head.Seq + 1)) {
		if err := c.Delete(); err != nil {
			return err
		}
	}
	return nil
}

// Each calls f for every record from the snapshot on, in order, checking the
// chain on the way.
func (j *Journal) Each(f func(Record) error) error {
	if err := j.revive(); err != nil {
		return err
	}
	var stopped error
	err := walk(j.db, &walker{each: func(r Record) error {
		stopped = f(r)
		return stopped
	}})
	if stopped != nil {
		return stopped
	}
	if err != nil {
		return failed(j.path, err)
	}
	return nil
}

// Close gives the file back.
func (j *Journal) Close() error {
	j.lock.Lock()
	defer j.lock.Unlock()
	j.closed = true
	err := j.anchor.close()
	j.anchor = nil
	if j.db != nil {
		err = errors.Join(err, j.db.Close())
	}
	j.db = nil
	return err
}

func openDB(path string, readOnly, noSync bool) (*bbolt.DB, error) {
	if err := precheck(path); err != nil {
		return nil, err
	}
	var db *bbolt.DB
	err := guarded(func() (err error) {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout:      OpenTimeout,
			ReadOnly:     readOnly,
			FreelistType: bbolt.FreelistMapType,
			NoSync:       noSync,
			NoGrowSync:   noSync,
		})
		return err
	})
	if err != nil {
		return nil, failed(path, err)
	}
	return db, nil
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
		return failed(path, err)
	case info.IsDir():
		return fmt.Errorf("journal: %s is a directory, not a journal file", path)
	case info.Size() > 0 && info.Size() < 4*int64(os.Getpagesize()):
		return failed(path, fmt.Errorf("%w: the file was cut to %d bytes", ErrRecord, info.Size()))
	}
	return nil
}
