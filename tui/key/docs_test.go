package key

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the guide's table of keys")

// The guide's keys stand between these lines; the rest is written by hand.
const (
	keysBegin = "<!-- keys: go test ./tui/key -update -->\n"
	keysEnd   = "<!-- end of keys -->\n"
)

// The user's guide prints the table as it is.
func TestGuideIsFresh(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "console.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), keysBegin)
	held, after, ended := strings.Cut(rest, keysEnd)
	if !ok || !ended {
		t.Fatalf("%s lacks the lines %q and %q", path, keysBegin, keysEnd)
	}
	if *update {
		if err := os.WriteFile(
			path,
			[]byte(before+keysBegin+Default().Markdown()+keysEnd+after),
			0o600,
		); err != nil {
			t.Fatal(err)
		}
		return
	}
	if held != Default().Markdown() {
		t.Errorf("%s shows other keys than the table; go test ./tui/key -update rewrites them", path)
	}
}
