package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// runFakeLab makes the folder of a lab that lives, with an engine's socket in it.
func runFakeLab(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(
		os.TempDir(),
		fmt.Sprintf("falcon-lab-%d", os.Getuid()),
		name,
	)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return filepath.Join(dir, socketName)
}

// A command without a target finds the engine of the one lab that runs, and asks which
// where there are two. A target that was named is never replaced by one.
func TestCommandsFindTheLabsEngine(t *testing.T) {
	t.Setenv("TMPDIR", shortDir(t))
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	t.Setenv("FALCON_SOCKET", "")
	none := filepath.Join(t.TempDir(), "none.sock")
	find := func(target engineTarget) (string, error) { return target.findSocket(none) }
	if _, err := find(engineTarget{}); err == nil || !strings.Contains(err.Error(), "falcon serve") {
		t.Errorf("without a lab: %v", err)
	}
	first := runFakeLab(t, "run-1")
	if got, err := find(engineTarget{}); got != first || err != nil {
		t.Errorf("one lab: %q %v", got, err)
	}
	if got, err := find(engineTarget{connect: none}); err == nil {
		t.Errorf("--connect names no engine, and %q is used", got)
	}
	second := runFakeLab(t, "run-2")
	if _, err := find(engineTarget{}); err == nil ||
		!strings.Contains(err.Error(), first) ||
		!strings.Contains(err.Error(), second) {
		t.Errorf("two labs: %v", err)
	}
	t.Setenv("FALCON_SOCKET", none)
	if got, err := find(engineTarget{}); err == nil {
		t.Errorf("FALCON_SOCKET names no engine, and %q is used", got)
	}
	code, _, errs := command(t, "console", "--plain")
	if code != 1 || !strings.Contains(errs, "no engine at "+none) {
		t.Errorf("the console starts an engine although FALCON_SOCKET names one: %d %q", code, errs)
	}
}
