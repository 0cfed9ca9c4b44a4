package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	berrors "go.etcd.io/bbolt/errors"
)

// Errors of this package. Each is wrapped with the file and what to do.
var (
	ErrLocked     = errors.New("journal: held by another process")
	ErrCorrupt    = errors.New("journal: corrupt")
	ErrLost       = errors.New("journal: newest records are missing")
	ErrNewer      = errors.New("journal: written by a newer falcon")
	ErrRecord     = errors.New("journal: bad record")
	ErrAbsent     = errors.New("journal: no such file")
	ErrFull       = errors.New("journal: no space left on the disk")
	ErrReadOnly   = errors.New("journal: the file system is read-only")
	ErrIO         = errors.New("journal: the disk reports an input/output error")
	ErrPermission = errors.New("journal: permission denied")
	ErrScarce     = errors.New("journal: the machine is out of file descriptors or memory")
	ErrClosed     = errors.New("journal: closed")
)

// Transient reports whether an error is one of the machine's that can pass while
// the file stays as it is: the same batch may be appended again later.
func Transient(err error) bool {
	return errors.Is(err, ErrFull) ||
		errors.Is(err, ErrReadOnly) ||
		errors.Is(err, ErrIO) ||
		errors.Is(err, ErrScarce)
}

// explained names an error of the operating system, with what to do; nil for
// one that it does not know.
func explained(path string, err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout), errors.Is(err, syscall.EWOULDBLOCK):
		return fmt.Errorf(
			"%w: %s; stop the other falcon that uses this state directory, or choose another state_dir",
			ErrLocked, path,
		)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf(
			"%w: %s (%w); free some (df -h and df -i show what is full): no record that was stored is lost",
			ErrFull, path, err,
		)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf(
			"%w: %s (%w); find out why (dmesg), then mount it for writing: the journal itself is as it was",
			ErrReadOnly, path, err,
		)
	case errors.Is(err, syscall.EIO):
		return fmt.Errorf(
			"%w: %s (%w); look at dmesg, copy the state directory to a good disk, and check the copy with falcon journal verify",
			ErrIO, path, err,
		)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return fmt.Errorf(
			"%w: %s (%w); raise the limit of open files (LimitNOFILE, ulimit -n) or free memory",
			ErrScarce, path, err,
		)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf(
			"%w: %s (%w); run falcon as the owner of the state directory, or give the files to its user (chown)",
			ErrPermission, path, err,
		)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s (%w); create the directory or correct state_dir", ErrAbsent, path, err)
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return fmt.Errorf(
			"journal: %s: %w; this is the operating system's answer and no damage of the journal: look at dmesg",
			path, err,
		)
	}
	return nil
}

// failed says what has gone wrong with a file: the disk where the disk says so,
// else damage.
func failed(path string, err error) error {
	if known(err) {
		return err
	}
	if e := explained(path, err); e != nil {
		return e
	}
	return fmt.Errorf(
		"%w: %s: %w; keep the file, bring a backup back with falcon journal restore, or keep what is before the damage with falcon journal repair --accept-loss; %s",
		ErrCorrupt, path, err, fencesLost,
	)
}

// unwritten says why a write has failed; damage is what reading finds.
func unwritten(path string, err error) error {
	if known(err) {
		return err
	}
	if e := explained(path, err); e != nil {
		return e
	}
	return fmt.Errorf("journal: write to %s: %w", path, err)
}

// fencesLost is what an operator must think of before records are given up.
const fencesLost = "lost records may hold fences and decisions, so look first which nodes must stay out of the job"

// known reports whether an error has its explanation already.
func known(err error) bool {
	explained := []error{
		ErrLocked, ErrCorrupt, ErrLost, ErrNewer, ErrAbsent, ErrFull, ErrReadOnly, ErrIO,
		ErrPermission, ErrScarce, ErrClosed,
	}
	return slices.ContainsFunc(explained, func(e error) bool {
		return errors.Is(err, e)
	})
}

func lost(path string, found, anchor Head) error {
	return fmt.Errorf(
		"%w: %s ends at record %d and %s says that %d were stored (%d lost); bring a backup back with falcon journal restore, or go on without them with falcon journal repair --accept-loss; %s",
		ErrLost, path, found.Seq, anchorPath(path), anchor.Seq, anchor.Seq-found.Seq, fencesLost,
	)
}
