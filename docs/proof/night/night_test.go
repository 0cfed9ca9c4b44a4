package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The plays of the tree can be read, and each is one that bash can parse.
func TestPlaysOfTheTree(t *testing.T) {
	plays, err := readPlays("../../..")
	if err != nil || len(plays) == 0 {
		t.Fatal(len(plays), err)
	}
	for _, p := range plays {
		for _, night := range []bool{false, true} {
			out, err := exec.Command("bash", "-n", "-c", p.script(night)).CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v\n%s", p.Name, err, out)
			}
		}
	}
}

// tree is a repository with these plays and one commit.
func tree(t *testing.T, plays string) *runner {
	t.Helper()
	for _, name := range []string{"NIGHT_SINCE", "NIGHT_RESULTS", "PAGES", "RESULTS", "COUNT"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	r := newRunner(t.TempDir())
	write(t, r.path(playsFile), plays)
	write(t, r.path("docs/page.md"), "a page\n")
	write(t, r.path("docs/results/page.md"), "results\n")
	write(t, r.path(".gitignore"), "bin\n")
	git(t, r, "init", "-q")
	commit(t, r)
	return r
}

func git(t *testing.T, r *runner, args ...string) {
	t.Helper()
	if _, err := r.git(args...); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, r *runner) {
	t.Helper()
	git(t, r, "add", "-A")
	git(t, r, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "--allow-empty", "-m", "t")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

const threePlays = `
[[play]]
name = "counts"
about = "it counts"
set = {COUNT = "3"}
night = {COUNT = "$((COUNT * 2))"}
run = '''
echo played >>"$RESULTS/times"
echo "$COUNT" >"$RESULTS/count"
echo more >>"$PAGES/page.md"
'''

[[play]]
name = "skips"
run = 'echo "skips: one thing skipped: it is absent"'

[[play]]
name = "fails"
run = '''
false
echo unseen
'''
`

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func results(t *testing.T, r *runner) (out []string) {
	t.Helper()
	for _, line := range strings.Split(text(t, r.path("bin/nightly/results.md")), "\n")[2:] {
		if cells := strings.Split(line, " | "); len(cells) == 5 {
			out = append(out, cells[0][2:]+" "+strings.TrimSuffix(cells[4], " |"))
		}
	}
	return out
}

func nightOf(t *testing.T, r *runner) error {
	t.Helper()
	plays, err := readPlays(r.root)
	if err != nil {
		t.Fatal(err)
	}
	return r.night(plays)
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("results %v, want %v", got, want)
	}
}

func TestANight(t *testing.T) {
	r := tree(t, threePlays)
	if err := nightOf(t, r); err == nil || !strings.Contains(err.Error(), "failed: fails") {
		t.Errorf("%v", err)
	}
	same(t, results(t, r), "counts pass", "skips skipped", "fails FAIL")
	if got := text(t, r.path("bin/nightly/count")); got != "6\n" {
		t.Errorf("the night counts to %q", got)
	}
	if text(t, r.path("docs/page.md")) != "a page\n" || text(t, r.path("bin/nightly/page.md")) != "a page\nmore\n" {
		t.Error("a night writes its own copy of a page")
	}
	// What passed is not played again; the rest is.
	if err := nightOf(t, r); err == nil {
		t.Error("no failure")
	}
	same(t, results(t, r), "counts pass", "skips skipped", "fails FAIL", "skips skipped", "fails FAIL")
	if got := text(t, r.path("bin/nightly/times")); got != "played\n" {
		t.Errorf("played %q", got)
	}
	// Another commit is another night.
	commit(t, r)
	if err := nightOf(t, r); err == nil {
		t.Error("no failure")
	}
	same(t, results(t, r), "counts pass", "skips skipped", "fails FAIL")
}

// With NIGHT_SINCE a night goes on over commits, in a file of the tree that is no change of it. What
// was played in a tree with changes counts for none.
func TestANightOfSeveralDays(t *testing.T) {
	r := tree(t, threePlays)
	first, err := r.git("rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NIGHT_SINCE", first)
	t.Setenv("NIGHT_RESULTS", "docs/results/nightly.md")
	rows := func() int { return strings.Count(text(t, r.path("docs/results/nightly.md")), "| counts |") }
	write(t, r.path("changed"), "x")
	for range 2 {
		if err := nightOf(t, r); err == nil {
			t.Error("no failure")
		}
	}
	if rows() != 2 {
		t.Errorf("a tree with changes: played %d times of 2", rows())
	}
	commit(t, r)
	for range 2 {
		if err := nightOf(t, r); err == nil {
			t.Error("no failure")
		}
		commit(t, r)
	}
	if rows() != 3 {
		t.Errorf("played %d times of 3", rows())
	}
	t.Setenv("NIGHT_SINCE", "nonsense")
	if err := nightOf(t, r); err == nil || !strings.Contains(err.Error(), "is no commit before this one") {
		t.Errorf("%v", err)
	}
}

// One alone writes into the tree, and takes its settings from the environment.
func TestOnePlay(t *testing.T) {
	r := tree(t, threePlays)
	write(t, r.path("bin/x"), "")
	t.Setenv("COUNT", "5")
	plays, err := readPlays(r.root)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := r.play(plays[0], &out, r.here()); err != nil {
		t.Fatal(err, out.String())
	}
	if text(t, r.path("bin/count")) != "5\n" || text(t, r.path("docs/page.md")) != "a page\nmore\n" {
		t.Error(text(t, r.path("bin/count")), text(t, r.path("docs/page.md")))
	}
	if _, err := choose(plays, []string{"counts", "none"}); err == nil {
		t.Error("a play that there is not")
	}
}

func TestResultOf(t *testing.T) {
	for log, want := range map[string]string{
		"--- PASS: TestA\n--- SKIP: TestB\n": passed,
		"--- SKIP: TestB\n":                  skipped,
		"ok\n":                               passed,
		"name: skipped: no torch\n":          skipped,
		"other: skipped: no torch\n":         passed,
	} {
		if got := resultOf("name", nil, log); got != want {
			t.Errorf("%q: %s, want %s", log, got, want)
		}
	}
	if got := resultOf("name", os.ErrInvalid, "--- PASS: TestA\n"); got != failed {
		t.Error(got)
	}
}

// What can't be meant is refused by name.
func TestWrongPlays(t *testing.T) {
	for file, want := range map[string]string{
		"[[play]]\nname = \"a\"\n":                                             "it runs nothing",
		"[[play]]\nname = \"A b\"\nrun = \"x\"\n":                              "a name has",
		"[[play]]\nname = \"a\"\nrun = \"x\"\nneed = [\"gpu\"]\n":              "is no key of a play",
		"[[play]]\nname = \"a\"\nrun = \"x\"\nneeds = [\"gpu\"]\n":             `it needs "gpu"`,
		"[[play]]\nname = \"a\"\nrun = \"x\"\nnight = {N = \"1\"}\n":           "no setting of it",
		"[[play]]\nname = \"a\"\nrun = \"x\"\n[[play]]\nname=\"a\"\nrun=\"x\"": "two plays",
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, playsFile), file)
		if _, err := readPlays(root); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", file, err, want)
		}
	}
}
