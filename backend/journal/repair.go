package journal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"go.etcd.io/bbolt"
)

// ErrLoss is returned by Repair and Restore where they would give up records or
// replace a journal without having been allowed to.
var ErrLoss = errors.New("journal: nothing was changed")

// Repaired is what Repair has found and done.
type Repaired struct {
	Head     Head   // newest record that is good
	Lost     uint64 // known number of records after it; 0 = none, or not known
	Why      string // what is wrong; "" = nothing
	TailLost bool   // the records kept for the audit can't be proved and were given up
	Aside    string // where the damaged file was put; "" = it was not replaced
}

// Repair keeps what is good of a journal that no process has open: the records
// before the first broken one. The damaged file stays beside it. Where that
// gives up records, accept must be set.
func Repair(path string, accept bool) (Repaired, error) {
	release, err := hold(path)
	if err != nil {
		return Repaired{}, err
	}
	defer release()
	s := &salvage{path: path}
	out, err := s.examine()
	if err != nil || out.Why == "" {
		return out, err
	}
	if s.damaged && !accept {
		return out, fmt.Errorf(
			"%w: %s: %s; the records up to %d are good%s; bring a backup back with falcon journal restore, or give up what follows them with --accept-loss; %s",
			ErrLoss, path, out.Why, out.Head.Seq, s.lostText(out), fencesLost,
		)
	}
	if s.rewrite {
		if out.Aside, err = s.replace(out.Head); err != nil {
			return out, failed(path, err)
		}
	}
	return out, newAnchor(path, out.Head)
}

// hold keeps an engine from starting for as long as a file is looked at and
// replaced, and fails while one runs. bbolt reads under the same lock.
func hold(path string) (release func(), err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, failed(path, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(failed(path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// salvage is the examination of a journal that may be damaged.
type salvage struct {
	path    string
	rewrite bool // the journal is written again from its good records
	damaged bool // records are given up by that
	noTail  bool // those that were kept for the audit are among them
}

func (s *salvage) lostText(r Repaired) string {
	switch {
	case s.noTail:
		return ", but for those that were kept for the audit"
	case r.Lost == 0:
		return ""
	}
	return fmt.Sprintf(" and %d were stored after them", r.Lost)
}

func (s *salvage) examine() (Repaired, error) {
	a, anchorErr := readAnchor(s.path)
	if anchorErr != nil && !errors.Is(anchorErr, ErrCorrupt) {
		return Repaired{}, anchorErr
	}
	w, err := s.walk(a)
	switch {
	case errors.Is(err, ErrAbsent) && a != nil:
		s.rewrite, err = true, nil // all that is left of it is its head
	case err != nil && known(err) && !errors.Is(err, ErrCorrupt):
		return Repaired{}, err
	}
	out := Repaired{Head: w.Head, TailLost: s.noTail}
	if err != nil {
		s.rewrite, s.damaged, out.Why = true, true, err.Error()
	}
	if a != nil && a.head.Seq > w.Head.Seq {
		s.damaged, out.Lost = true, a.head.Seq-w.Head.Seq
		out.Why = cmp.Or(out.Why, fmt.Sprintf("the journal ends at record %d and %d were stored",
			w.Head.Seq, a.head.Seq))
	}
	switch {
	case out.Why != "":
	case anchorErr != nil:
		out.Why = "the head file is damaged"
	case a == nil:
		out.Why = "there is no head file"
	case w.anchored(s.path, a) != nil:
		s.damaged = w.forked
		out.Why = "the head file belongs to another state"
	}
	return out, nil
}

// errUnreadable is the damage of a file that is no database any more.
var errUnreadable = errors.New("no record of it can be read")

// walk reads as far as the records are good. Where those that were kept for the
// audit are damaged, the others are read without them.
func (s *salvage) walk(a *anchor) (*walker, error) {
	w := &walker{}
	if a != nil {
		w.anchor = &a.head
	}
	if _, err := os.Stat(s.path); err != nil {
		return w, failed(s.path, err)
	}
	db, err := openDB(s.path, true, false)
	if errors.Is(err, ErrCorrupt) {
		return w, errUnreadable
	}
	if err != nil {
		return w, err
	}
	defer db.Close()
	first := walk(db, w)
	if w.parts > 0 {
		w.Head = Head{} // a part of a snapshot says nothing
	}
	if first == nil || known(first) || w.Head != (Head{}) || w.From != (Head{}) {
		return w, first
	}
	bare := &walker{noTail: true}
	if err := walk(db, bare); bare.Head == (Head{}) || bare.parts > 0 {
		return w, errors.Join(first, err)
	}
	s.noTail = true
	return bare, first
}

// replace writes the good records to a new file and puts the damaged one aside.
func (s *salvage) replace(head Head) (aside string, err error) {
	fresh := s.path + ".repaired"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	defer os.Remove(fresh)
	to, err := bbolt.Open(fresh, 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return "", err
	}
	err = errors.Join(s.copyGood(to, head), to.Close())
	if err != nil {
		return "", err
	}
	return swapIn(s.path, fresh, "damaged")
}

func (s *salvage) copyGood(to *bbolt.DB, head Head) error {
	return to.Update(func(tx *bbolt.Tx) error {
		if err := prepareTx(tx, head); err != nil {
			return err
		}
		if head == (Head{}) {
			return nil
		}
		from, err := openDB(s.path, true, false)
		if err != nil {
			return err
		}
		defer from.Close()
		return guarded(func() error {
			return from.View(func(old *bbolt.Tx) error {
				return s.copyTx(old, tx, head)
			})
		})
	})
}

// copyTx copies the records up to head, and those kept for the audit.
func (s *salvage) copyTx(from, to *bbolt.Tx, head Head) error {
	if s.noTail {
		if err := to.Bucket([]byte(metaBucket)).Put([]byte(tailKey), []byte{1}); err != nil {
			return err
		}
	}
	for _, name := range []string{tailBucket, logBucket} {
		source := from.Bucket([]byte(name))
		if source == nil || name == tailBucket && s.noTail {
			continue
		}
		target := to.Bucket([]byte(name))
		target.FillPercent = 0.95
		c := source.Cursor()
		for k, v := c.First(); k != nil && bytes.Compare(k, seqKey(head.Seq)) <= 0; k, v = c.Next() {
			if err := target.Put(bytes.Clone(k), bytes.Clone(v)); err != nil {
				return err
			}
		}
	}
	return nil
}

// swapIn puts fresh in path's place, and path aside as path.WHAT-N.
func swapIn(path, fresh, what string) (aside string, err error) {
	if _, err := os.Stat(path); err == nil {
		if aside, err = unused(path, what); err != nil {
			return "", err
		}
		if err := os.Link(path, aside); err != nil {
			return "", err
		}
	}
	if err := os.Rename(fresh, path); err != nil {
		return aside, err
	}
	return aside, syncDir(filepath.Dir(path))
}

// unused finds a name that no file has.
func unused(path, what string) (string, error) {
	const most = 10_000
	for n := range most {
		name := fmt.Sprintf("%s.%s-%d", path, what, n+1)
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return name, nil
		}
	}
	return "", fmt.Errorf("journal: %s.%s-1 to -%d are all there; move them away", path, what, most)
}

// Restore puts a backup in a journal's place, with a new head file; no process
// may have either open. A journal that is there is replaced only with force, and
// stays beside the new one.
func Restore(backupFile, path string, force bool) (report Report, aside string, err error) {
	release, err := hold(path)
	if err != nil {
		return report, "", err
	}
	defer release()
	if report, err = Verify(backupFile); err != nil {
		return report, "", err
	}
	if _, err := os.Stat(path); err == nil && !force {
		return report, "", fmt.Errorf(
			"%w: %s is there; replace it with --force (it is kept beside the new one), and look first what falcon journal verify says of it",
			ErrLoss, path,
		)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return report, "", failed(path, err)
	}
	fresh := path + ".restored"
	if err := copyDB(backupFile, fresh); err != nil {
		return report, "", err
	}
	defer os.Remove(fresh)
	if aside, err = swapIn(path, fresh, "replaced"); err != nil {
		return report, aside, failed(path, err)
	}
	report.Anchored = true
	return report, aside, newAnchor(path, report.Head)
}

// Copy writes a consistent copy of a journal that no process has open.
func Copy(path, to string) (Report, error) {
	report, err := Verify(path)
	if err != nil {
		return report, err
	}
	return report, copyDB(path, to)
}

func copyDB(from, to string) error {
	db, err := openDB(from, true, false)
	if err != nil {
		return err
	}
	defer db.Close()
	return backup(db, to)
}
