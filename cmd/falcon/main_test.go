package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/tui/clean"
)

func TestSentence(t *testing.T) {
	for want, err := range map[string]error{
		"--ranks is empty": fmt.Errorf("%w: --ranks is empty", errUsage),
		"a; b; c":          errors.Join(errors.New("a"), errors.New("b\n\n\tc\n")),
		"node n1":          errors.New("node \x1b[2Jn1\u202e"),
	} {
		if got := sentence(err); got != want {
			t.Errorf("%q: got %q, want %q", err, got, want)
		}
	}
}

// What is printed of a body says the same as the body, in printable text.
func TestEscapedBody(t *testing.T) {
	const body = "{\"a\":\"x\u202e\u009b\U000e0041\\u001b\\n\u00e4\",\t\"b\":1}"
	got := escaped([]byte(body))
	if clean.String(got) != got {
		t.Errorf("%q is not safe to print", got)
	}
	var want, read map[string]any
	if err := errors.Join(
		json.Unmarshal([]byte(body), &want),
		json.Unmarshal([]byte(got), &read),
	); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(want, read) {
		t.Errorf("got %v, want %v", read, want)
	}
}

// Every command shows in its help how it is used.
func TestEveryCommandHasAnExample(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Example == "" {
			t.Errorf("%s --help has no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
}

// A kind of which the journal has no record is reported, not passed over.
func TestAbsentKindIsTold(t *testing.T) {
	var errs strings.Builder
	sayAbsent(
		&errs,
		[]string{"decision", "decisoin"},
		map[string]bool{"decision": true, "epoch": true},
	)
	if want := "falcon: no record of kind \"decisoin\"; there are decision, epoch\n"; errs.String() != want {
		t.Errorf("%q, want %q", errs.String(), want)
	}
}
