package procstat

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const tail = " S 1 2 77 0 -1 0 0 0 0 0 0 0 0 0 20 0 5 0 123456 0 0\n"

// A process's name holds what its owner likes; it is never read as a field.
func TestRead(t *testing.T) {
	proc := t.TempDir()
	want := Stat{State: 'S', Parent: 1, Session: 77, Threads: 5, Start: 123456}
	for text, ok := range map[string]bool{
		"7 (sh)" + tail:               true,
		"7 (a) Z 1 1 1 1 1 1)" + tail: true,
		"7 ()) ()" + tail:             true,
		"7 sh" + tail:                 false,
		"7 (sh)" + strings.Replace(tail, "77", "x", 1): false,
		"7 (sh) S 1 2 3\n": false,
		"7 (sh)":           false,
		"":                 false,
	} {
		if err := errors.Join(os.MkdirAll(filepath.Join(proc, "7"), 0o700), os.WriteFile(filepath.Join(proc, "7", "stat"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		got, err := Read(proc, 7)
		if ok && (err != nil || got != want) || !ok && !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if _, err := Read(proc, 8); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no process: %v", err)
	}
	if got, err := Read("/proc", os.Getpid()); err != nil || got.State != 'R' && got.State != 'S' || got.Start == 0 {
		t.Errorf("this process: %+v, %v", got, err)
	}
}
