// Package ownfile reads and replaces the small files that one life of an agent leaves
// to the next, and makes the folder that they lie in.
//
// It guarantees that a reader sees the old content or the new one, whole, that a file is
// this user's alone (regular, 0600, followed through no link), that no more than the
// allowed bytes are read, and that a folder from Claim is writable by this user alone. It
// is safe for one writer at a time, and must not interpret what is in a file.
package ownfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrForeign is returned for a file that others may have written, or that is too large.
var ErrForeign = errors.New("not a file of this agent's alone, or too large")

// Read is the content of a file of at most so many bytes. An absent one is an
// fs.ErrNotExist.
func Read(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(
		path,
		os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC,
		0,
	)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if !isOwn(&st) || st.Size > most {
		return nil, fmt.Errorf("%s is %w (%d bytes are allowed)", path, ErrForeign, most)
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// NextSuffix ends the name of the file that replaces another.
const NextSuffix = ".new"

// Replace replaces a file at once.
func Replace(path string, content []byte) error {
	return replace(path, content, func(*os.File) error { return nil })
}

// ReplaceDurably is Replace, and returns once the new content is on disk.
func ReplaceDurably(path string, content []byte) error {
	if err := replace(path, content, (*os.File).Sync); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func replace(path string, content []byte, sync func(*os.File) error) error {
	next := path + NextSuffix
	if _, err := ClearPlace(next); err != nil {
		return err
	}
	if err := unix.Unlink(next); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	f, err := os.OpenFile(
		next,
		os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC,
		0o600,
	)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, sync(f), f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next)
	}
	return err
}
