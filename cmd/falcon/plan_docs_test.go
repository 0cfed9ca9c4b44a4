package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var planExample = regexp.MustCompile(`(?m)^\$ echo '([^']+)' \| falcon plan (\w+) -\n((?:[^$\x60\n].*\n)+)`)

// The examples of falcon plan in docs/commands.md are what it answers; "…"
// stands for what was left out.
func TestPlanExamplesInDocs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "commands.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range planExample.FindAllStringSubmatch(string(text), -1) {
		in := m[1]
		command := m[2]
		want := strings.TrimSpace(m[3])
		seen[command] = true
		got, err := planArgs(in, command, "-")
		if err != nil {
			t.Errorf("plan %s: %v", command, err)
			continue
		}
		rest := got
		for _, part := range strings.Split(want, "…") {
			i := strings.Index(rest, strings.TrimSpace(part))
			if i < 0 {
				t.Errorf("plan %s: docs/commands.md shows %q, it answers %s", command, part, got)
				break
			}
			rest = rest[i+len(strings.TrimSpace(part)):]
		}
	}
	for _, c := range []string{"microbatch", "topology", "ladder", "recovery"} {
		if !seen[c] {
			t.Errorf("docs/commands.md has no example of plan %s", c)
		}
	}
}
