package falcon_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Bounds of what one reader can hold. The methods of a type and the lines of a file are not
// among them: they would be met by moving code, which makes it no easier to read.
const (
	fieldsMost     = 30 // of one struct
	statementsMost = 60 // of one function
	columnsMost    = 110
	tabColumns     = 4
	shortLetters   = 4 // of the names of private functions
)

// oversized lists what is still over a bound, with its present size: it may
// shrink and must not grow. An entry that is no longer needed fails the test.
var oversized = map[string]int{}

// sizes are the figures of the tree outside tests and generated code.
type sizes struct {
	over  map[string]int // by what is over its bound
	names []int          // letters of private functions
	lines int
}

// measure reads all production files; packages named like httptest are for tests.
func measure(t *testing.T) sizes {
	t.Helper()
	s := sizes{over: map[string]int{}}
	for _, g := range tree(t) {
		if g.test || strings.HasSuffix(g.dir, "test") || ast.IsGenerated(g.ast) {
			continue
		}
		path := filepath.Join(g.dir, g.name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s.lines += bytes.Count(text, []byte("\n"))
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				s.note(path+":"+name, countStatements(d), statementsMost)
				if !ast.IsExported(name) && name != "main" && name != "init" && name != "_" {
					s.names = append(s.names, len(name))
				}
			case *ast.GenDecl:
				s.structs(g.dir, d)
			}
		}
	}
	slices.Sort(s.names)
	return s
}

func (s *sizes) note(what string, n, most int) {
	if n > most {
		s.over[what] = n
	}
}

// structs counts the fields of a declaration's structs.
func (s *sizes) structs(dir string, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		ts, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		st, ok := ts.Type.(*ast.StructType)
		if !ok {
			continue
		}
		n := 0
		for _, f := range st.Fields.List {
			n += max(1, len(f.Names))
		}
		s.note(dir+"."+ts.Name.Name+" fields", n, fieldsMost)
	}
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return fmt.Sprintf("%T", e)
}

// countStatements counts the statements of a function, those inside of others included.
func countStatements(d *ast.FuncDecl) int {
	n := 0
	ast.Inspect(d, func(node ast.Node) bool {
		switch node.(type) {
		case *ast.BlockStmt, *ast.EmptyStmt:
		case ast.Stmt:
			n++
		}
		return true
	})
	return n
}

// No struct and no function grows past what one reader can hold.
func TestSizes(t *testing.T) {
	s := measure(t)
	for _, what := range slices.Sorted(maps.Keys(s.over)) {
		if most, known := oversized[what]; !known {
			t.Errorf("%s: %d is over the bound: split it", what, s.over[what])
		} else if s.over[what] > most {
			t.Errorf("%s: %d, it was %d: what is over its bound must not grow", what, s.over[what], most)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(oversized)) {
		if _, still := s.over[what]; !still {
			t.Errorf("%s is within its bound: take it from the list", what)
		}
	}
	short := 0
	for _, n := range s.names {
		if n <= shortLetters {
			short++
		}
	}
	t.Logf("%d lines; %d private functions: median %d letters, %.1f %% with %d or fewer",
		s.lines, len(s.names), s.names[len(s.names)/2], 100*float64(short)/float64(len(s.names)),
		shortLetters)
	if testing.Verbose() {
		t.Logf("over their bounds:\n%s", strings.Join(listed(s.over), "\n"))
	}
}

func listed(over map[string]int) []string {
	var out []string
	for _, what := range slices.Sorted(maps.Keys(over)) {
		out = append(out, fmt.Sprintf("\t%q: %d,", what, over[what]))
	}
	return out
}

// unbroken is a line that can't be shorter: a text, a directive, or an indented comment.
var unbroken = regexp.MustCompile("[\"`]|//(go:|nolint)|^\\s*//(\\S|\\t)|https?://|^#cgo")

// A line is read at once: at most 110 columns, but for texts, which are one thing.
func TestColumns(t *testing.T) {
	for _, g := range tree(t) {
		if ast.IsGenerated(g.ast) {
			continue
		}
		path := filepath.Join(g.dir, g.name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		inText := textLines(text)
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			line = strings.TrimRight(line, "\n")
			n := columns(line)
			if n > columnsMost && !inText[number] && !unbroken.MatchString(line) {
				t.Errorf("%s:%d has %d columns, %d are allowed", path, number, n, columnsMost)
			}
		}
	}
}

// textLines are the lines of a file that lie inside of a text of several lines.
func textLines(src []byte) map[int]bool {
	out := map[int]bool{}
	file := token.NewFileSet().AddFile("", 1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return out
		}
		if tok != token.STRING {
			continue
		}
		for i := range strings.Count(text, "\n") {
			out[file.Line(pos)+1+i] = true
		}
	}
}

func columns(line string) int {
	return utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
}

// The measure of a line counts characters, and tabs as four.
func TestColumnsOfALine(t *testing.T) {
	for line, want := range map[string]int{"": 0, "abc": 3, "\ta": 5, "\t\té…": 10} {
		if got := columns(line); got != want {
			t.Errorf("%q has %d columns, want %d", line, got, want)
		}
	}
}
