package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestStalled(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(1000, 0)
	until := func(d time.Duration, from int64) string {
		return fmt.Sprintln(now.Add(d).UnixNano(), from)
	}
	for text, want := range map[string]time.Duration{
		until(3*time.Second, 7):        3 * time.Second,
		until(3*time.Second, 8):        0,
		until(-time.Second, 7):         0,
		until(3*time.Second, 7) + " 4": 3 * time.Second,
		until(3*time.Second, 7) + " 5": 0,
		until(24*time.Hour, 0):         stallMost,
		"":                             0,
		"soon":                         0,
		"99999999999999":               0,
	} {
		if err := os.WriteFile(filepath.Join(dir, stallFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Stalled(dir, 7, 4, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if Stalled("", 7, 4, now) != 0 || Stalled(t.TempDir(), 7, 4, now) != 0 {
		t.Error("a stall without a file")
	}
}
