package recovery

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// owners are the types whose fields belong to their own methods and constructors, as
// far as the fields are not parts themselves.
var owners = []string{
	"approval", "proof", "spareWait", "allocator", "copies", "generations", "history", "member",
	"orders", "outbox", "rankTable", "stoppage", "operation",
}

// shared are parts that a type lends: they hide their own fields.
var shared = []string{
	"operation.rec", "operation.clock", "operation.givenUp", "operation.failing",
	"operation.replies", "operation.proof", "operation.spare",
}

// A field of a part is read and written by the part's own file alone.
func TestPartsHideTheirFields(t *testing.T) {
	fset := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(n string) bool {
		return strings.HasSuffix(n, "_test.go")
	})
	var files []*ast.File
	for _, n := range names {
		f, err := parser.ParseFile(fset, n, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	pkg, err := conf.Check("github.com/failslow/falcon/recovery", fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]string{} // file by type
	for _, name := range owners {
		o := pkg.Scope().Lookup(name)
		if o == nil {
			t.Fatalf("there is no type %s", name)
		}
		at[name] = fset.Position(o.Pos()).Filename
	}
	seen := 0
	for e, s := range info.Selections {
		owner := fieldOwner(s)
		file := at[owner]
		if file == "" || slices.Contains(shared, owner+"."+s.Obj().Name()) {
			continue
		}
		seen++
		where := fset.Position(e.Pos())
		method := methodOf(files, e.Pos())
		if where.Filename != file && method != owner {
			t.Errorf("%s: %s.%s belongs to methods of %s", where, owner, s.Obj().Name(), owner)
		}
	}
	if seen < 100 {
		t.Errorf("only %d uses of fields were looked at", seen)
	}
}

// fieldOwner is the type that declares the field of a selection; empty for methods.
func fieldOwner(s *types.Selection) string {
	if s.Kind() != types.FieldVal {
		return ""
	}
	at := s.Recv()
	for _, i := range s.Index()[:len(s.Index())-1] {
		at = structOf(at).Field(i).Type()
	}
	if p, ok := at.(*types.Pointer); ok {
		at = p.Elem()
	}
	if n, ok := at.(*types.Named); ok {
		return n.Obj().Name()
	}
	return ""
}

func structOf(t types.Type) *types.Struct {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	return t.Underlying().(*types.Struct)
}

// methodOf is the receiver's type of the method at a position.
func methodOf(files []*ast.File, at token.Pos) string {
	for _, f := range files {
		for _, d := range f.Decls {
			d, ok := d.(*ast.FuncDecl)
			if ok && d.Recv != nil && d.Pos() <= at && at < d.End() {
				return strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*")
			}
		}
	}
	return ""
}
