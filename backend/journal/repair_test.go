package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"
)

func TestRepairKeepsWhatIsGood(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	fill(t, path, 5, 2)
	tamper(t, path, func(log, _ *bbolt.Bucket) error {
		return log.Put(seqKey(8), []byte("x"))
	})
	damaged, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(path, false); !errors.Is(err, ErrLoss) ||
		!strings.Contains(err.Error(), "up to 7 are good and 3 were stored after them") {
		t.Errorf("without leave: %v", err)
	}
	out, err := Repair(path, true)
	if err != nil ||
		out.Head.Seq != 7 ||
		out.Lost != 3 ||
		out.Aside != path+".damaged-1" {
		t.Fatalf("%+v, %v", out, err)
	}
	if b, err := os.ReadFile(out.Aside); err != nil || !bytes.Equal(b, damaged) {
		t.Errorf("the damaged file is not as it was: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if head := fill(t, path, 1, 1); head.Seq != 8 {
		t.Errorf("it goes on at %d", head.Seq)
	}
}

func TestRepairOfRubbish(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	fill(t, path, 2, 2)
	if err := os.WriteFile(path, bytes.Repeat([]byte("falcon"), 8000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(path, false); !errors.Is(err, ErrLoss) ||
		!strings.Contains(err.Error(), "no record of it can be read") {
		t.Errorf("without leave: %v", err)
	}
	if out, err := Repair(path, true); err != nil || out.Lost != 4 || out.Head != (Head{}) {
		t.Fatalf("%+v, %v", out, err)
	}
	if head := fill(t, path, 1, 1); head.Seq != 1 {
		t.Error(head)
	}
}

func TestBackupAndRestore(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal.db")
	copied := filepath.Join(dir, "backup")
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append([]Record{{Kind: "event", Body: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error) // it runs beside the writes
	go func() { done <- j.Backup(copied) }()
	for n := range 20 {
		if err := j.Append([]Record{{Kind: "event", Body: fmt.Append(nil, n+2)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(path, true); !errors.Is(err, ErrLocked) {
		t.Errorf("repair beside an engine: %v", err)
	}
	if _, _, err := Restore(copied, path, true); !errors.Is(err, ErrLocked) {
		t.Errorf("restore beside an engine: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	was, err := Verify(copied)
	if err != nil || was.Head.Seq == 0 || was.Anchored {
		t.Fatalf("the backup: %+v, %v", was, err)
	}
	if _, _, err := Restore(copied, path, false); !errors.Is(err, ErrLoss) ||
		!strings.Contains(err.Error(), "--force") {
		t.Errorf("over a journal: %v", err)
	}
	got, aside, err := Restore(copied, path, true)
	if err != nil || got.Head != was.Head || aside != path+".replaced-1" {
		t.Fatalf("%+v, %q, %v", got, aside, err)
	}
	if r, err := Verify(path); err != nil || r.Head != was.Head || !r.Anchored {
		t.Errorf("restored: %+v, %v", r, err)
	}
	if r, err := Verify(aside); err != nil || r.Head.Seq != 21 {
		t.Errorf("put aside: %+v, %v", r, err)
	}
	if err := os.WriteFile(copied, bytes.Repeat([]byte("x"), 40000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Restore(copied, path, true); !errors.Is(err, ErrCorrupt) {
		t.Errorf("of a damaged backup: %v", err)
	}
}

// An error of the disk is named as what it is, with what to do, and never as
// damage.
func TestErrorsOfDisksAreNamed(t *testing.T) {
	for errno, want := range map[syscall.Errno]error{
		syscall.ENOSPC:      ErrFull,
		syscall.EDQUOT:      ErrFull,
		syscall.EROFS:       ErrReadOnly,
		syscall.EIO:         ErrIO,
		syscall.EACCES:      ErrPermission,
		syscall.EPERM:       ErrPermission,
		syscall.ENOENT:      ErrAbsent,
		syscall.EWOULDBLOCK: ErrLocked,
		syscall.EMFILE:      ErrScarce,
		syscall.ENFILE:      ErrScarce,
		syscall.ENOTDIR:     syscall.ENOTDIR,
	} {
		err := failed("/state/journal.db", &os.PathError{
			Op:   "write",
			Path: "/state/journal.db",
			Err:  errno,
		})
		if !errors.Is(err, want) ||
			errors.Is(err, ErrCorrupt) ||
			strings.Contains(err.Error(), "repair") {
			t.Errorf("%v: %v, want %v", errno, err, want)
		}
		passes := slices.Contains([]error{ErrFull, ErrReadOnly, ErrIO, ErrScarce}, want)
		if Transient(err) != passes {
			t.Errorf("%v: Transient = %v", errno, !passes)
		}
	}
	if err := failed("x", errors.New("odd")); !errors.Is(err, ErrCorrupt) ||
		Transient(err) ||
		strings.Contains(err.Error(), "empty state_dir") {
		t.Error(err)
	}
}

// mounted is a file system of its own, of two megabytes.
func mounted(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A disk that is full, or read-only, fails the batch; the same one is stored
// once there is room.
func TestFullAndReadOnlyDisk(t *testing.T) {
	dir := mounted(t)
	path := filepath.Join(dir, "journal.db")
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	batch := []Record{{Kind: "event", Body: make([]byte, 100_000)}}
	stored := uint64(0)
	for ; err == nil; stored++ {
		err = j.Append(batch)
	}
	stored--
	if !errors.Is(err, ErrFull) || j.Head().Seq != stored || stored == 0 {
		t.Fatalf("after %d: %v, head %d", stored, err, j.Head().Seq)
	}
	if err := j.Append([]Record{{Kind: "event", Body: make([]byte, 1_000_000)}}); !errors.Is(err, ErrFull) {
		t.Fatalf("again: %v", err)
	}
	remount := func(flags uintptr, data string) {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|flags, data); err != nil {
			t.Fatal(err)
		}
	}
	remount(0, "size=16m")
	if err := j.Append(batch); err != nil || j.Head().Seq != stored+1 {
		t.Fatalf("with room: %v, head %d", err, j.Head().Seq)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	remount(syscall.MS_RDONLY, "size=16m")
	if _, err := Open(path); !errors.Is(err, ErrReadOnly) || errors.Is(err, ErrCorrupt) {
		t.Errorf("read-only: %v", err)
	}
	if r, err := Verify(path); err != nil || r.Head.Seq != stored+1 {
		t.Errorf("Verify of a read-only one: %+v, %v", r, err)
	}
}
