package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.etcd.io/bbolt"
)

// Verify checks a journal that no process has open, and its end against its
// head file: it returns what it holds, or an error that names the first broken
// record or what was lost.
func Verify(path string) (Report, error) { return Read(path, nil) }

// Read is Verify that hands every record to f on the way, oldest first, those
// that were kept for the audit included; f may be nil. An error of f ends it.
func Read(path string, f func(Record) error) (Report, error) {
	w := &walker{}
	if f != nil {
		w.each, w.audit = f, f
	}
	err := w.read(path)
	return w.Report, err
}

// read walks the file at path without changing it.
func (w *walker) read(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s; name the journal.db of the engine's state directory", ErrAbsent, path)
	}
	a, err := readAnchor(path)
	if err != nil {
		return err
	}
	if a != nil {
		w.anchor = &a.head
	}
	db, err := openDB(path, true, false)
	if err != nil {
		return err
	}
	defer db.Close()
	stopped := w.remember()
	if err := walk(db, w); err != nil {
		if *stopped != nil {
			return *stopped
		}
		return failed(path, err)
	}
	return w.anchored(path, a)
}

// remember keeps the visitors' own error apart from those of the walk.
func (w *walker) remember() *error {
	stopped := new(error)
	for _, f := range []*func(Record) error{&w.each, &w.audit} {
		if visit := *f; visit != nil {
			*f = func(r Record) error {
				*stopped = visit(r)
				return *stopped
			}
		}
	}
	return stopped
}

// Backup writes a consistent copy of the journal to path, which it replaces
// once the copy is on stable storage. It may run beside Append.
func (j *Journal) Backup(path string) error {
	j.lock.RLock()
	defer j.lock.RUnlock()
	if j.db == nil {
		return fmt.Errorf("journal: no backup is written while the journal can't be: %s", j.path)
	}
	return backup(j.db, path)
}

func backup(db *bbolt.DB, path string) error {
	err := replaceFile(path, func(f *os.File) error {
		return guarded(func() error {
			return db.View(func(tx *bbolt.Tx) error {
				_, err := tx.WriteTo(f)
				return err
			})
		})
	})
	if err != nil {
		return failed(path, err)
	}
	return nil
}
