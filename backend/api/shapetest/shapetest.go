// Package shapetest ties a shape that two processes share to the number by which they
// recognise it. A test records the shape beside the number; a shape that has changed
// without its number fails the test with a sentence that says what to do. For tests only.
package shapetest

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var record = flag.Bool("record", false, "record shapes that are new, or that have a new number")

const (
	head      = "# A shape that processes share, and its number. Written by go test -record; never by hand.\n"
	shownMost = 8
)

// Shape is what processes of two releases must agree on.
type Shape struct {
	Name   string // "the hook's file"
	Number int
	Where  string   // the number: "FALCON_SHM_VERSION in native/include/falcon_shm.h"
	Lines  []string // one fact each; a line that is gone or differs is a break, a new line is none
}

// Check compares a shape with the one that is recorded in a file. With -record it writes
// the file, unless the shape was changed and the number was not.
func (s Shape) Check(t testing.TB, file string) {
	t.Helper()
	slices.Sort(s.Lines)
	s.Lines = slices.Compact(s.Lines)
	old, err := readShape(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	problem, mayRecord := s.compare(old, errors.Is(err, fs.ErrNotExist))
	if problem != "" && *record && mayRecord {
		if err := s.write(file); err != nil {
			t.Fatal(err)
		}
		return
	}
	if problem != "" {
		t.Errorf("%s: %s", file, problem)
	}
}

// compare returns what is wrong, "" for nothing, and whether recording is a way out.
func (s Shape) compare(old Shape, absent bool) (problem string, mayRecord bool) {
	gone := without(old.Lines, s.Lines)
	added := without(s.Lines, old.Lines)
	switch {
	case absent:
		return s.Name + " is not recorded yet: run this test with -record", true
	case s.Number < old.Number:
		return fmt.Sprintf("the number of %s went back from %d to %d: a number is never used twice (%s)",
			s.Name, old.Number, s.Number, s.Where), false
	case s.Number > old.Number:
		return fmt.Sprintf("%s has the new number %d: run this test with -record, and commit the file",
			s.Name, s.Number), true
	case len(gone) > 0:
		return fmt.Sprintf("%s has changed and its number is still %d. Programs of two releases would misread each other: raise %s to %d, "+
			"say in docs/cluster.md what reads what, then run this test with -record.%s",
			s.Name, s.Number, s.Where, s.Number+1, differences(gone, added)), false
	case len(added) > 0:
		return fmt.Sprintf("%s has new parts. If a program that knows number %d may pass them over, run this test with -record and commit the file; "+
			"if it may not, raise %s first.%s", s.Name, s.Number, s.Where, differences(nil, added)), true
	}
	return "", false
}

func differences(gone, added []string) string {
	var b strings.Builder
	for _, list := range []struct {
		sign  string
		lines []string
	}{{"-", gone}, {"+", added}} {
		for _, line := range list.lines[:min(shownMost, len(list.lines))] {
			fmt.Fprintf(&b, "\n  %s %s", list.sign, line)
		}
		if more := len(list.lines) - shownMost; more > 0 {
			fmt.Fprintf(&b, "\n  %s and %d more", list.sign, more)
		}
	}
	return b.String()
}

// without is what is in lines and not in those, both sorted.
func without(lines, those []string) []string {
	var out []string
	for _, line := range lines {
		if _, found := slices.BinarySearch(those, line); !found {
			out = append(out, line)
		}
	}
	return out
}

func readShape(file string) (Shape, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Shape{}, err
	}
	var s Shape
	for line := range strings.Lines(string(bytes.TrimPrefix(text, []byte(head)))) {
		line = strings.TrimSuffix(line, "\n")
		if s.Number == 0 {
			_, err := fmt.Sscanf(line, "number %d", &s.Number)
			if err != nil || s.Number < 1 {
				return s, fmt.Errorf(
					"%s: %q is no number of a shape; remove the file and run the test with -record",
					file, line,
				)
			}
			continue
		}
		s.Lines = append(s.Lines, line)
	}
	return s, nil
}

func (s Shape) write(file string) error {
	text := fmt.Sprintf("%snumber %d\n%s\n", head, s.Number, strings.Join(s.Lines, "\n"))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
