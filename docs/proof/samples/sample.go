package samples

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Sample is one change.
type Sample struct {
	Most  int               // hand-written files of the product that it may touch
	Files map[string]string // by path below the root: the file as it would be
	Tests [][]string        // of `go test`: package, and the tests of it
}

// Written lists the files of the product that somebody would write: no tests, nothing generated.
func (s *Sample) Written() []string {
	var out []string
	for path := range s.Files {
		if !strings.HasSuffix(path, "_test.go") {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out
}

// Read reads a sample's text:
//
//	most N                     files
//	== PATH                    a file of the tree, or a new one
//	after LINE, before LINE    what follows goes behind or before this line of it, which it has once
//	test PACKAGE TESTS         is run with the sample
//
// Lines that begin with # are for people.
func Read(root string, text []byte) (*Sample, error) {
	s := &Sample{Files: map[string]string{}}
	r := reader{root: root, sample: s}
	scanner := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; scanner.Scan(); n++ {
		if err := r.line(scanner.Text()); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return s, r.end()
}

type reader struct {
	root   string
	sample *Sample
	path   string
	at     string // a line of the file; "" = the file is new
	before bool
	added  []string
}

func (r *reader) line(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	switch {
	case strings.HasPrefix(line, "#"):
	case word == "most":
		n, err := strconv.Atoi(rest)
		r.sample.Most = n
		return err
	case word == "test":
		r.sample.Tests = append(r.sample.Tests, strings.Fields(rest))
	case word == "==":
		err := r.end()
		r.path = rest
		return err
	case word == "after", word == "before":
		err := r.end()
		r.at = rest
		r.before = word == "before"
		return err
	case r.path != "":
		r.added = append(r.added, line)
	}
	return nil
}

// end enters what was collected for the present place.
func (r *reader) end() error {
	added := strings.Trim(strings.Join(r.added, "\n"), "\n") + "\n"
	at := r.at
	r.added, r.at = nil, ""
	if added == "\n" {
		return nil
	}
	if at == "" {
		r.sample.Files[r.path] = added
		return nil
	}
	have, ok := r.sample.Files[r.path]
	if !ok {
		b, err := os.ReadFile(filepath.Join(r.root, r.path))
		if err != nil {
			return err
		}
		have = string(b)
	}
	line := "\n" + at + "\n"
	if n := strings.Count(have, line); n != 1 {
		return fmt.Errorf("%s has %d lines %q", r.path, n, at)
	}
	i := strings.Index(have, line) + 1
	if !r.before {
		i += len(at) + 1
	}
	r.sample.Files[r.path] = have[:i] + added + have[i:]
	return nil
}
