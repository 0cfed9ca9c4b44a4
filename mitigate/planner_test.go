package mitigate

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the expected output of testdata scripts")

// TestScripts runs testdata/*.txt: each paragraph is one command, a line of
// four dashes, and everything that the planner said to it.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) { runScript(t, f) })
	}
}

func runScript(t *testing.T, file string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sc := newScript(t)
	var out []string
	for _, para := range strings.Split(strings.TrimSpace(string(raw)), "\n\n") {
		cmd, _, _ := strings.Cut(para, "\n----")
		said := strings.TrimRight(strings.Join(sc.play(cmd), "\n"), "\n")
		out = append(out, strings.TrimRight(cmd+"\n----\n"+said, "\n"))
	}
	got := strings.Join(out, "\n\n") + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != string(raw) {
		t.Errorf("%s differs; got:\n%s", file, got)
	}
}

func pairs(s string) map[string]string {
	out := map[string]string{}
	for _, f := range strings.Fields(s) {
		k, v, _ := strings.Cut(f, "=")
		out[k] = v
	}
	return out
}
