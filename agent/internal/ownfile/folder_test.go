package ownfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const stranger = 61234

// Squatters are what can stand in the place of a file or a folder.
var squatters = map[string]func(path string) error{
	"an empty file": func(p string) error { return os.WriteFile(p, nil, 0o600) },
	"a readable file": func(p string) error {
		return os.WriteFile(p, []byte("x"), 0o644)
	},
	"a folder": func(p string) error { return os.Mkdir(p, 0o755) },
	"a full folder": func(p string) error {
		return os.MkdirAll(filepath.Join(p, "x", "y"), 0o755)
	},
	"a link":            func(p string) error { return os.Symlink("/etc", p) },
	"a link to nothing": func(p string) error { return os.Symlink("/nowhere", p) },
	"a pipe":            func(p string) error { return unix.Mkfifo(p, 0o600) },
	"a device": func(p string) error {
		return unix.Mknod(p, unix.S_IFCHR|0o600, 1<<8|3)
	},
}

// squat puts a stranger's squatter there; false where this user can't.
func squat(t *testing.T, path string, put func(string) error) bool {
	t.Helper()
	err := put(path)
	if errors.Is(err, os.ErrPermission) {
		return false
	}
	if err == nil && os.Geteuid() == 0 {
		err = os.Lchown(path, stranger, stranger)
	}
	if err != nil {
		t.Fatal(err)
	}
	return true
}

// sharedFolder is one as /dev/shm is.
func sharedFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "falcon-test-")
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o777|os.ModeSticky)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func modeOf(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func TestAFolderOfItsOwnIsMade(t *testing.T) {
	alone := t.TempDir()
	if got, removed, err := Claim(alone); err != nil || got != alone || len(removed) > 0 {
		t.Errorf("one of this user alone: %s, %v, %v", got, removed, err)
	}
	shared := sharedFolder(t)
	for range 2 { // the second time it is there
		got, removed, err := Claim(shared)
		if err != nil ||
			got != filepath.Join(shared, FolderName(os.Geteuid())) ||
			len(removed) > 0 ||
			modeOf(t, got) != os.ModeDir|0o700 {
			t.Fatalf("%s, %v, %v", got, removed, err)
		}
	}
	own := filepath.Join(shared, FolderName(os.Geteuid()))
	if err := os.Chmod(own, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Claim(shared); err != nil || modeOf(t, own) != os.ModeDir|0o700 {
		t.Errorf("one that was open to others: %v, %v", modeOf(t, own), err)
	}
}

// Whatever stands in the folder's place is named and removed.
func TestSquattersOfTheFolder(t *testing.T) {
	for what, put := range squatters {
		shared := sharedFolder(t)
		own := filepath.Join(shared, FolderName(os.Geteuid()))
		if what == "a folder" && os.Geteuid() != 0 || !squat(t, own, put) {
			continue
		}
		got, removed, err := Claim(shared)
		if err != nil ||
			got != own ||
			modeOf(t, own) != os.ModeDir|0o700 ||
			len(removed) != 1 ||
			!strings.Contains(removed[0], own) {
			t.Errorf("%s: %s, %v, %v", what, got, removed, err)
		}
		if names, err := os.ReadDir(shared); err != nil || len(names) != 1 {
			t.Errorf("%s: left over: %v, %v", what, names, err)
		}
	}
}

// A folder whose owner or whose mode lets others replace what lies there is refused, or
// put right.
func TestSharedFoldersThatAreNotSafe(t *testing.T) {
	for _, bad := range []string{"/nowhere/at/all", "/dev/null"} {
		_, _, err := Claim(bad)
		if !errors.Is(err, ErrPlace) || !strings.Contains(err.Error(), "name another") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	shared := sharedFolder(t)
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, removed, err := Claim(shared); err != nil ||
		len(removed) != 1 ||
		modeOf(t, shared)&os.ModeSticky == 0 {
		t.Errorf("without the sticky bit: %v, %v", removed, err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(shared, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Claim(shared); !errors.Is(err, ErrPlace) ||
		!strings.Contains(err.Error(), "belongs to user 61234") {
		t.Errorf("a stranger's: %v", err)
	}
}

// A replacement of a file is not kept back by what has the next one's name.
func TestSquattersOfTheNextFile(t *testing.T) {
	for what, put := range squatters {
		path := filepath.Join(t.TempDir(), "x")
		if !squat(t, path+NextSuffix, put) {
			continue
		}
		if err := ReplaceDurably(path, []byte("new")); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got, err := Read(path, 10); err != nil || string(got) != "new" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}

func TestPlacesAreCleared(t *testing.T) {
	for what, put := range squatters {
		path := filepath.Join(t.TempDir(), "x")
		if !squat(t, path, put) {
			continue
		}
		said, err := ClearPlace(path)
		own := what == "an empty file" && os.Geteuid() != 0
		if err != nil || (said == "") != own {
			t.Errorf("%s: %q, %v", what, said, err)
		}
		if CheckPlace(path) != nil {
			t.Errorf("%s: %v", what, CheckPlace(path))
		}
	}
	if err := CheckPlace("/dev/null"); !errors.Is(err, ErrPlace) {
		t.Errorf("a device: %v", err)
	}
}

func TestFolderNames(t *testing.T) {
	for name, want := range map[string]bool{
		"falcon-0":       true,
		"falcon-1000":    true,
		"falcon-":        false,
		"falcon-01":      false,
		"falcon--1":      false,
		"falcon-lab-0-x": false,
		"x":              false,
	} {
		if uid, ok := FolderUser(name); ok != want || ok && FolderName(uid) != name {
			t.Errorf("%s: %d, %v", name, uid, ok)
		}
	}
}
