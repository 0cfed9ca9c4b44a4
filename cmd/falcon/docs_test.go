package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/failslow/falcon/agent/ring"
)

// docs/verdicts.md says what to do about every reason for which a hook refuses
// a pause or a test.
func TestEveryRefusalIsExplained(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "verdicts.md"))
	if err != nil {
		t.Fatal(err)
	}
	const all = 256
	unknown := ring.PauseReason(all).String()
	n := 0
	for r := ring.PauseReason(1); r < all && r.String() != unknown; r++ {
		n++
		clause, _, _ := strings.Cut(r.String(), ": ")
		if !strings.Contains(string(text), clause) {
			t.Errorf("docs/verdicts.md does not explain %q", r)
		}
	}
	if n == 0 {
		t.Error("no reason was found")
	}
}
