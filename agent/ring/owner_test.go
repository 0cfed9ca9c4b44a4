package ring

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A file speaks for a process only when the process's own user, or root, has
// made it.
func TestFilesOfOtherUsersAreRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes a file of another user")
	}
	const stranger = 54321
	m := blank()
	m.writeUint32(hdrPID, uint32(os.Getpid()))
	path := filepath.Join(t.TempDir(), fmt.Sprintf("falcon.job.%d", os.Getpid()))
	if err := os.WriteFile(path, m, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	m.writeUint32(hdrPID, uint32(os.Getppid()))
	if err := os.WriteFile(path, m, 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err := Open(path); !errors.Is(err, ErrForeign) {
		_ = p.Close()
		t.Errorf("a file in another process's name: %v", err)
	}
	m.writeUint32(hdrPID, uint32(os.Getpid()))
	if err := errors.Join(os.WriteFile(path, m, 0o600), os.Chown(path, stranger, stranger)); err != nil {
		t.Fatal(err)
	}
	if p, err := Open(path); !errors.Is(err, ErrForeign) {
		_ = p.Close()
		t.Errorf("a file of user %d for a process of user %d: %v", stranger, os.Getuid(), err)
	}
}

func TestUsersOfAProcess(t *testing.T) {
	if got, ok := usersOfProcess(os.Getpid()); !ok || len(got) != 4 || got[0] != uint32(os.Getuid()) {
		t.Errorf("this process: %v, %v", got, ok)
	}
	for in, want := range map[string][]uint32{
		"Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t9\n": {1, 2, 3, 4},
		"Name:\tUid:\n":                         nil,
		"Uid:\tx\n":                             nil,
		"Uid:\n":                                nil,
		"":                                      nil,
	} {
		if got, ok := parseUsers([]byte(in)); !slices.Equal(got, want) || ok != (want != nil) {
			t.Errorf("%q: %v, %v", in, got, ok)
		}
	}
}

func FuzzUsers(f *testing.F) {
	f.Add([]byte("Name:\tx\nUid:\t1\t2\t3\t4\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, ok := parseUsers(b); ok != (len(got) > 0) {
			t.Errorf("%v, %v", got, ok)
		}
	})
}
