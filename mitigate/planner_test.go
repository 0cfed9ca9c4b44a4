package mitigate

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/failslow/falcon/detect/sentencetest"
)

// TestScripts runs testdata/*.txt: each paragraph is commands, a line of four
// dashes, and everything that the planner said to them. Run with -rewrite to
// replace what it says, and read it.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			sc := newScript(t)
			datadriven.RunTest(t, file, func(_ *testing.T, d *datadriven.TestData) string {
				var out strings.Builder
				for _, line := range sc.play(commands(d)) {
					fmt.Fprintln(&out, line)
				}
				return out.String()
			})
		})
	}
}

// What people read decides nothing: with each sentence that the planner is given replaced, be it by an
// incident, an agent, a person or the journal, it does the same.
func TestSentencesDecideNothing(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	replaced := 0
	replay := func(file string, given func(Input) Input) []string {
		sc := newScript(t)
		sc.given = given
		datadriven.RunTest(t, file, func(_ *testing.T, d *datadriven.TestData) string {
			sc.play(commands(d))
			return d.Expected
		})
		return sc.did
	}
	for _, file := range files {
		want := replay(file, func(in Input) Input { return in })
		got := replay(file, func(in Input) Input {
			blank := sentencetest.Blank(in, scriptNames...)
			if !reflect.DeepEqual(blank, in) {
				replaced++
			}
			return blank
		})
		for i := range min(len(want), len(got)) {
			if got[i] != want[i] {
				t.Errorf("%s: without sentences it does\n%s\nwith them\n%s", file, got[i], want[i])
				break
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: without sentences it acts %d times, with them %d", file, len(got), len(want))
		}
	}
	if replaced < 50 {
		t.Errorf("%d sentences were replaced: the test proves nothing", replaced)
	}
}

// commands are the lines of a paragraph above its dashes.
func commands(d *datadriven.TestData) string {
	line := []string{d.Cmd}
	for _, a := range d.CmdArgs {
		line = append(line, a.String())
	}
	return strings.TrimSuffix(strings.Join(line, " ")+"\n"+d.Input, "\n")
}

func pairs(s string) map[string]string {
	out := map[string]string{}
	for _, f := range strings.Fields(s) {
		k, v, _ := strings.Cut(f, "=")
		out[k] = v
	}
	return out
}
