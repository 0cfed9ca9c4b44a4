// Package tabletest knows which published tables are about which code
// (docs/tables.txt), so that a table can carry a hash of the sources that it was
// measured with, and a page can say that a table is older than the code.
//
// It guarantees that the hash changes with the code of the packages and not with
// comments, layout or tests. It is for tests that write or check pages, and must
// not be imported by programs.
package tabletest

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// ErrTables is wrapped by what is wrong with docs/tables.txt.
var ErrTables = errors.New("tabletest: bad row in docs/tables.txt")

// Table is one part of a page that a command writes.
type Table struct {
	Page     string // below docs
	Part     string // between the marks with this name; "-" = the page up to its first mark
	Target   string // of the Makefile
	Packages []string
}

// Tables are the rows of docs/tables.txt.
func Tables(root string) ([]Table, error) {
	f, err := os.Open(filepath.Join(root, "docs", "tables.txt"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it is only read
	var out []Table
	for s := bufio.NewScanner(f); s.Scan(); {
		w := strings.Fields(s.Text())
		if len(w) == 0 || strings.HasPrefix(w[0], "#") {
			continue
		}
		if len(w) != 4 {
			return nil, fmt.Errorf("%w: %q: give page, part, target and packages", ErrTables, s.Text())
		}
		out = append(out, Table{w[0], w[1], w[2], strings.Split(w[3], ",")})
	}
	return out, nil
}

// Stamp is the sentence by which a part says what it was measured with.
func Stamp(root, page, part string) (string, error) {
	tables, err := Tables(root)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(tables, func(t Table) bool {
		return t.Page == page && t.Part == part
	})
	if i < 0 {
		return "", fmt.Errorf("%w: %s has no part %s; add a row", ErrTables, page, part)
	}
	sum, err := tables[i].Sources(root)
	if err != nil {
		return "", err
	}
	return "Sources " + sum + ".", nil
}

var stamped = regexp.MustCompile(`Sources ([0-9a-f]{12})\.`)

// Stamped is the hash that a part says it was measured with, empty for none.
func Stamped(part string) string {
	if m := stamped.FindStringSubmatch(part); m != nil {
		return m[1]
	}
	return ""
}

// Sources is the hash of the table's packages as they are.
func (t Table) Sources(root string) (string, error) {
	sum := sha256.New()
	for _, p := range t.Packages {
		one, err := Folder(root, p)
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(sum, "%s %s\n", p, one) // a hash never fails
	}
	return fmt.Sprintf("%x", sum.Sum(nil))[:12], nil
}

// folders keeps the hashes of folders of a process: several tables are about the same ones.
var folders sync.Map

// Folder is the hash of the Go, C and Python sources below a folder, found once a process.
func Folder(root, folder string) (string, error) {
	where := filepath.Join(root, folder)
	if known, ok := folders.Load(where); ok {
		return known.(string), nil
	}
	sum := sha256.New()
	err := filepath.WalkDir(where, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && d.Name() == "testdata" {
				return filepath.SkipDir
			}
			return err
		}
		return hashFile(sum, where, path)
	})
	if err != nil {
		return "", err
	}
	out := fmt.Sprintf("%x", sum.Sum(nil))
	folders.Store(where, out)
	return out, nil
}

func hashFile(sum hash.Hash, below, path string) error {
	kind := filepath.Ext(path)
	if strings.HasSuffix(path, "_test.go") ||
		!slices.Contains([]string{".go", ".c", ".cc", ".h", ".py"}, kind) {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(below, path)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(sum, "%s\n", filepath.ToSlash(rel)) // a hash never fails
	if kind == ".go" {
		hashTokens(sum, text)
	} else {
		_, _ = sum.Write(text)
	}
	return nil
}

// hashTokens adds what the compiler sees of a Go file.
func hashTokens(sum hash.Hash, text []byte) {
	var s scanner.Scanner
	set := token.NewFileSet()
	s.Init(set.AddFile("", set.Base(), len(text)), text, nil, 0)
	for {
		_, kind, literal := s.Scan()
		if kind == token.EOF {
			return
		}
		if kind == token.SEMICOLON {
			literal = "" // written or at a line's end
		}
		_, _ = fmt.Fprintf(sum, "%d %s\n", kind, literal)
	}
}
