package auth

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestFoldersOfOthersAreRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := OwnFolder(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("made with %v, %v", info, err)
	}
	for say, spoil := range map[string]func() error{
		"chmod go-w it":    func() error { return os.Chmod(dir, 0o777|os.ModeSticky) },
		"others may write": func() error { return os.Chmod(dir, 0o720) },
		"belongs to user 61234": func() error {
			return errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, 61234, 61234))
		},
	} {
		if err := spoil(); errors.Is(err, os.ErrPermission) {
			continue // only root gives things away
		} else if err != nil {
			t.Fatal(err)
		}
		if err := OwnFolder(dir); !errors.Is(err, ErrFolder) || !strings.Contains(err.Error(), say) {
			t.Errorf("%v, want %q", err, say)
		}
		if err := os.Chown(dir, os.Geteuid(), -1); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := OwnFolder(file); err == nil {
		t.Error("a file was taken for a folder")
	}
}

func TestPlacesOfOthersAreRefused(t *testing.T) {
	for what, put := range map[string]func(path string) error{
		"": func(string) error { return nil },
		"chmod go-w": func(p string) error {
			return errors.Join(os.WriteFile(p, nil, 0o600), os.Chmod(p, 0o622))
		},
		"others may write": func(p string) error {
			return errors.Join(os.Mkdir(p, 0o700), os.Chmod(p, 0o777))
		},
		"neither a file":   func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"neither a folder": func(p string) error { return os.Symlink("/dev/null", p) },
		"no such file":     func(p string) error { return os.Symlink("/nowhere", p) },
		"belongs to user": func(p string) error {
			return errors.Join(os.WriteFile(p, nil, 0o600), os.Chown(p, 61234, -1))
		},
		"user 61234": func(p string) error {
			return errors.Join(os.Symlink("/etc", p), os.Lchown(p, 61234, -1))
		},
	} {
		path := filepath.Join(t.TempDir(), "x")
		if err := put(path); errors.Is(err, os.ErrPermission) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		err := OwnPlace(path)
		if (err == nil) != (what == "") ||
			err != nil && !strings.Contains(err.Error(), strings.TrimPrefix(what, "neither a folder")) {
			t.Errorf("%q: %v", what, err)
		}
	}
}
