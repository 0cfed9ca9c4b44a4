package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A rank that prints for days fills two files of a fixed size: its first lines and its newest.
func TestOutputIsBounded(t *testing.T) {
	l := &Lab{place: &place{dir: t.TempDir()}}
	logs := filepath.Join(l.place.dir, "logs")
	if err := os.Mkdir(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	k := keepOutput(l, &rankProcess{rank: 3})
	const lines = 200_000
	for i := range lines {
		if _, err := fmt.Fprintf(k, `{"rank":3,"iteration":%d}`+"\n", i); err != nil {
			t.Fatal(err)
		}
	}
	k.Close()
	parts := map[string]string{}
	entries, err := os.ReadDir(logs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(logs, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > keptMost {
			t.Errorf("%s has %d bytes", e.Name(), len(b))
		}
		parts[e.Name()] = string(b)
	}
	first := parts["rank-3.0.first"]
	newest := parts["rank-3.0.out"]
	if len(parts) != 2 || !strings.HasPrefix(first, `{"rank":3,"iteration":0}`) {
		t.Errorf("%d files, the first lines begin with %.40q", len(parts), first)
	}
	note, rest, _ := strings.Cut(newest, "\n")
	if !strings.Contains(note, "rank-3.0.first") || !strings.HasPrefix(rest, `{"rank":3,`) {
		t.Errorf("the newest lines begin with %.120q", newest)
	}
	if last := fmt.Sprintf(`{"rank":3,"iteration":%d}`+"\n", lines-1); !strings.HasSuffix(newest, last) {
		t.Errorf("the last line is not %q", last)
	}
	if len(newest) < keptMost/2 {
		t.Errorf("%d bytes of the newest lines are left", len(newest))
	}
}
