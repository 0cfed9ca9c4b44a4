package falcon_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Bounds of what one reader can hold.
const (
	methodsMost  = 60 // of one type
	fieldsMost   = 30 // of one struct
	linesMost    = 70 // of one function
	fileMost     = 500
	letterMedian = 9 // of the names of private functions
	shortMost    = 8 // percent of them with four letters or fewer
	shortLetters = 4
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
	methods := map[string]int{}
	for _, g := range tree(t) {
		if g.test || strings.HasSuffix(g.dir, "test") || ast.IsGenerated(g.ast) {
			continue
		}
		path := filepath.Join(g.dir, g.name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		n := bytes.Count(text, []byte("\n"))
		s.lines += n
		s.note(path, n, fileMost)
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					methods[g.dir+"."+receiver(d.Recv.List[0].Type)]++
				}
				s.note(path+":"+name, fset.Position(d.End()).Line-fset.Position(d.Pos()).Line+1, linesMost)
				if !ast.IsExported(name) && name != "main" && name != "init" && name != "_" {
					s.names = append(s.names, len(name))
				}
			case *ast.GenDecl:
				s.structs(g.dir, d)
			}
		}
	}
	for typ, n := range methods {
		s.note(typ+" methods", n, methodsMost)
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

// No type, function or file grows past what one reader can hold.
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
		s.lines, len(s.names), s.names[len(s.names)/2], 100*float64(short)/float64(len(s.names)), shortLetters)
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
