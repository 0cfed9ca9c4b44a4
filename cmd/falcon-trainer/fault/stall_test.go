package fault

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestStalled(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1000, 0)
	until := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).UnixNano(), 10) + "\n" }
	for text, want := range map[string]time.Duration{
		until(3 * time.Second): 3 * time.Second, until(-time.Second): 0, until(24 * time.Hour): stallMost, "": 0, "soon": 0,
	} {
		if err := os.WriteFile(filepath.Join(dir, stallFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Stalled(dir, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if Stalled("", now) != 0 || Stalled(t.TempDir(), now) != 0 {
		t.Error("a stall without a file")
	}
}
