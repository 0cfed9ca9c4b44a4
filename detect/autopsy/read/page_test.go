package read_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/failslow/falcon/detect/autopsy"
	"github.com/failslow/falcon/detect/autopsy/read"
)

var update = flag.Bool("update", false, "write the page's section of what is understood")

const page = "../../../docs/autopsy.md"

var classes = map[autopsy.Class]string{
	autopsy.Hardware:    "a device, link or node",
	autopsy.Memory:      "memory",
	autopsy.Program:     "the program",
	autopsy.Network:     "the network",
	autopsy.Storage:     "storage",
	autopsy.Watchdog:    "a wait that did not end",
	autopsy.Ending:      "an end from outside",
	autopsy.Warning:     "may be harmless",
	autopsy.Consequence: "follows from another",
}

// understood renders the section from the tables of readers.
func understood() string {
	var b strings.Builder
	b.WriteString("\n| What | Facts |\n|---|---|\n")
	for _, u := range read.Understands() {
		fmt.Fprintf(&b, "| %s | %s |\n", u.What, u.Facts)
	}
	b.WriteString(
		"\nText may be UTF-16, may have a terminal's sequences, and what launchers put before lines (`[default7]:`, `[rank3]:`, `[1,3]<stderr>:`, `12: `) is taken off. " +
			"A column without a unit gives ratios.\n\nLines that state a fault:\n\n| Kind | Where it lies | What it means |\n|---|---|---|\n",
	)
	for _, s := range read.States() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", s.Kind, classes[s.Class], s.Text)
	}
	return b.String() + "\n"
}

// The page's section is what the tables of readers say.
func TestPageOfReaders(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), "## What is understood\n")
	_, after, ok2 := strings.Cut(rest, "\n## ")
	if !ok || !ok2 {
		t.Fatal("the page has no section of what is understood")
	}
	want := before + "## What is understood\n" + understood() + "## " + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Error("docs/autopsy.md is not what the readers say: go test ./detect/autopsy/read -run TestPageOfReaders -update")
	}
}
