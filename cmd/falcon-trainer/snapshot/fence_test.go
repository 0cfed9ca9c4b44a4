package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A writer that was left behind is refused, whatever it was about to do.
func TestOlderGenerationsAreFenced(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "saved")
	wrote := 0
	write := func() error {
		wrote++
		return nil
	}
	for _, g := range []uint64{0, 0, 2, 2, 3} {
		if err := Guarded(folder, g, write); err != nil {
			t.Fatalf("generation %d: %v", g, err)
		}
	}
	for _, g := range []uint64{0, 1, 2} {
		if err := Guarded(folder, g, write); !errors.Is(err, ErrFenced) {
			t.Errorf("generation %d was not refused: %v", g, err)
		}
	}
	if owner, err := Owner(folder); wrote != 5 || owner != 3 || err != nil {
		t.Errorf("%d writes, owner %d, %v", wrote, owner, err)
	}
	if err := os.WriteFile(filepath.Join(folder, generationFile), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Claim(folder, 9); !errors.Is(err, ErrCheckpoint) {
		t.Errorf("nonsense was taken for a generation: %v", err)
	}
}
