package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A word that is nearly right is answered with the right one, and with what was there before.
func TestDidYouMean(t *testing.T) {
	for args, want := range map[string]string{
		"incidnt list":                         `falcon has no command "incidnt"; see falcon --help; did you mean incident?`,
		"incident lst":                         `falcon incident has no command "lst"; see falcon incident --help; did you mean list?`,
		"plan checkpoint job.json":             "least time is lost at an interval of the root of 2 * period * time to save / failures; docs/recovery.md has the model",
		"plan recovery --map job.json":         "unknown flag: --map; it is gone: the console shows of a running job what the loss of each node and rack would cost (page 7)",
		"plan replace job.json":                "give mitigate.run_iterations, and the ladder of a running job weighs a drop and a replacement by what is left of the run",
		"plan volumes job.json":                `falcon plan has no command "volumes" any more: appendix 9.2 of the FALCON paper has the formulas`,
		"xyzzy":                                `falcon has no command "xyzzy"; see falcon --help`,
		"validate --rank 3":                    "unknown flag: --rank; did you mean --ranks?",
		"validate --xyzzy":                     "unknown flag: --xyzzy",
		"lab run --scenario gpu-throtle":       "did you mean gpu-throttle?",
		"lab run --headless --scenario nosuch": "or give a file",
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(args))
		err := root.Execute()
		if err == nil || !strings.HasSuffix(sentence(err), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// complete is what a shell is offered.
func complete(t *testing.T, args ...string) []string {
	t.Helper()
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(append([]string{"__complete"}, args...))
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

func TestCompletion(t *testing.T) {
	if got := strings.Join(
		complete(t, "lab", "run", "--scenario", "gpu"),
		" ",
	); !strings.Contains(got, "gpu-throttle") {
		t.Errorf("scenarios: %s", got)
	}
	if got := strings.Join(
		complete(t, "console", "--theme", "hi"),
		" ",
	); !strings.Contains(got, "high-contrast") {
		t.Errorf("themes: %s", got)
	}
	t.Setenv("FALCON_SOCKET", filepath.Join(t.TempDir(), "none.sock"))
	for _, args := range [][]string{{"incident", "show", ""}, {"decide", ""}, {"recovery", "show", ""}} {
		if got := complete(t, args...); len(got) != 1 || got[0] != ":4" {
			t.Errorf("%v without an engine: %q", args, got)
		}
	}
	if got := completion("INC-0001", "located\x1b[2J\n, n1\tx"); got != "INC-0001\tlocated , n1 x" {
		t.Errorf("%q", got)
	}
}

func TestManPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	root := newRoot()
	root.SetOut(new(bytes.Buffer))
	root.SetArgs([]string{"man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "falcon-incident-snooze.1"))
	if err != nil || !bytes.Contains(page, []byte("alerts out for some time")) {
		t.Errorf("%v: %.300s", err, page)
	}
	if pages, _ := filepath.Glob(filepath.Join(dir, "*.1")); len(pages) < 40 {
		t.Errorf("%d pages", len(pages))
	}
}
