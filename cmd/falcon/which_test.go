package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestChooseFrom(t *testing.T) {
	list := []string{"/tmp/a", "/tmp/b\x1b[2J"}
	for _, c := range []struct{ typed, want string }{
		{"1\n", "/tmp/a"},
		{" 2 \n", list[1]},
		{"\n", ""},
		{"", ""},
		{"0\nx\n3\n1\n", ""},
		{"7\n1\n", "/tmp/a"},
	} {
		var out bytes.Buffer
		got, ok := chooseFrom(strings.NewReader(c.typed), &out, "labs", list)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%q chooses %q", c.typed, got)
		}
		s := out.String()
		if !strings.Contains(s, "2 labs run here:\n  1  /tmp/a\n") || strings.Contains(s, "\x1b") {
			t.Errorf("shown: %q", s)
		}
	}
}

// The console without a target is that of the lab that runs here; of two it asks which, and
// without a terminal it refuses with both.
func TestConsoleFindsTheLab(t *testing.T) {
	t.Setenv("TMPDIR", shortDir(t))
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	t.Setenv("FALCON_SOCKET", "")
	if socket, err := (&engineTarget{}).runningEngine(""); socket != "" || err != nil {
		t.Errorf("nothing runs: %q, %v", socket, err)
	}
	first := runFakeLab(t, "run-1")
	if socket, err := (&engineTarget{}).runningEngine(""); socket != first || err != nil {
		t.Errorf("one lab: %q, %v", socket, err)
	}
	second := runFakeLab(t, "run-2")
	if socket, err := (&engineTarget{}).runningEngine(""); err == nil ||
		!strings.Contains(err.Error(), first) ||
		!strings.Contains(err.Error(), second) {
		t.Errorf("two labs: %q, %v", socket, err)
	}
	own := (&engineTarget{}).engineAddress()
	if err := os.MkdirAll(filepath.Dir(own), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", own)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if socket, err := (&engineTarget{}).runningEngine(""); socket != own || err != nil {
		t.Errorf("an engine of the usual place comes before labs: %q, %v", socket, err)
	}
}
