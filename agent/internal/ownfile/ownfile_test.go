package ownfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestReplacedContentIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if _, err := Read(path, 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	for content, put := range map[string]func(string, []byte) error{"one": Replace, "other": ReplaceDurably} {
		if err := put(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(path, 5); err != nil || string(got) != content {
			t.Errorf("%q, %v instead of %q", got, err, content)
		}
	}
	if _, err := os.Lstat(path + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file is left over: %v", err)
	}
	if err := Replace(filepath.Join(path, "below"), nil); err == nil {
		t.Error("written below a file")
	}
}

func TestFilesOfOthersAreRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	if err := Replace(path, []byte("12345")); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, 4); !errors.Is(err, ErrForeign) {
		t.Errorf("too large: %v", err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(link, 10); err == nil {
		t.Error("a link was followed")
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, 10); !errors.Is(err, ErrForeign) {
		t.Errorf("readable by others: %v", err)
	}
	if _, err := Read(dir, 1<<20); !errors.Is(err, ErrForeign) {
		t.Errorf("a folder: %v", err)
	}
}
