package mitigate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A part's fields are written by its own methods alone: nothing assigns to
// p.part.field.
func TestPartsWriteTheirOwnState(t *testing.T) {
	parts := structFields(t, "Planner")
	fset := token.NewFileSet()
	seen := 0
	for _, name := range productionFiles(t) {
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		check := func(e ast.Expr) {
			if i, ok := e.(*ast.IndexExpr); ok {
				e = i.X
			}
			field, ok := e.(*ast.SelectorExpr)
			if !ok {
				return
			}
			seen++
			if part, ok := field.X.(*ast.SelectorExpr); ok && slices.Contains(parts, part.Sel.Name) {
				t.Errorf("%s: %s.%s is written from outside the part",
					fset.Position(e.Pos()), part.Sel.Name, field.Sel.Name)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, e := range n.Lhs {
					check(e)
				}
			case *ast.IncDecStmt:
				check(n.X)
			}
			return true
		})
	}
	if seen < 50 {
		t.Errorf("only %d assignments to fields were checked", seen)
	}
}

func productionFiles(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(n string) bool {
		return strings.HasSuffix(n, "_test.go")
	})
}

// structFields are the fields of a struct that are pointers to parts.
func structFields(t *testing.T, typ string) []string {
	t.Helper()
	var out []string
	for _, name := range productionFiles(t) {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != typ {
				return true
			}
			for _, field := range spec.Type.(*ast.StructType).Fields.List {
				if _, pointer := field.Type.(*ast.StarExpr); pointer {
					out = append(out, field.Names[0].Name)
				}
			}
			return false
		})
	}
	if len(out) < 10 {
		t.Fatalf("%s has the parts %v only", typ, out)
	}
	return out
}
