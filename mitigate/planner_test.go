package mitigate

import (
	"fmt"
	"path/filepath"
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
	if err != nil {
		t.Fatal(err)
	}
	sentencetest.Check(t, files, 50, func(file string, given func(Input) Input) []string {
		sc := newScript(t)
		sc.given = given
		datadriven.RunTest(t, file, func(_ *testing.T, d *datadriven.TestData) string {
			sc.play(commands(d))
			return d.Expected
		})
		return sc.did
	}, func(in Input) Input { return sentencetest.Blank(in, scriptNames...) })
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
