package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Incidents of two jobs have the same numbers: the export of one must not replace the other's.
func TestExportsAreNeverReplaced(t *testing.T) {
	dir := t.TempDir()
	save := saverBelow(dir)
	for i, want := range []string{"INC-0001.md", "INC-0001-2.md", "INC-0001-3.md"} {
		path, err := save("INC-0001.md", []byte{byte('a' + i)})
		if err != nil || filepath.Base(path) != want {
			t.Fatalf("export %d: %q, %v, want %s", i, path, err, want)
		}
	}
	for i, name := range []string{"INC-0001.md", "INC-0001-2.md", "INC-0001-3.md"} {
		path := filepath.Join(dir, "exports", name)
		if b, err := os.ReadFile(path); err != nil || string(b) != string(byte('a'+i)) {
			t.Errorf("%s holds %q, %v", name, b, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "exports", ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
