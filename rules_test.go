package falcon_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/failslow/falcon"

// proofFolder is the module of what produces figures and never ships.
const proofFolder = "docs/proof"

// isProof reports whether a folder, or a pattern of go test, is in that module.
func isProof(dir string) bool {
	dir = strings.TrimPrefix(dir, "./")
	return dir == proofFolder || strings.HasPrefix(dir, proofFolder+"/")
}

// goFile is one parsed file of the tree.
type goFile struct {
	dir, name string
	ast       *ast.File
	test      bool
}

func tree(t *testing.T) []goFile {
	t.Helper()
	var out []goFile
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() &&
			path != "." &&
			(strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := parser.ParseFile(
			token.NewFileSet(),
			path,
			nil,
			parser.ParseComments|parser.SkipObjectResolution,
		)
		if err != nil {
			return err
		}
		out = append(out, goFile{filepath.Dir(path), d.Name(), f, strings.HasSuffix(path, "_test.go")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Every package says, in one place, what it guarantees.
func TestPackageDocs(t *testing.T) {
	docs := map[string][]string{}
	dirs := map[string]bool{}
	for _, f := range tree(t) {
		if f.test || strings.HasSuffix(f.ast.Name.Name, "_test") {
			continue
		}
		dirs[f.dir] = true
		if f.ast.Doc != nil && len(f.ast.Doc.Text()) > 40 {
			docs[f.dir] = append(docs[f.dir], f.name)
		}
	}
	for dir := range dirs {
		if n := len(docs[dir]); n != 1 {
			t.Errorf("%s has %d package comments %v, wants exactly one that says what it guarantees",
				dir, n, docs[dir])
		}
	}
}

// rule says what the packages under dir may import of this module, and what
// of the standard library they must not touch.
type rule struct {
	dir   string
	allow []string // prefixes below the module; "" is the root package
	ban   []string
	why   string
}

var impure = []string{
	"os", "os/exec", "net", "net/http", "sync", "sync/atomic", "context", "log/slog",
	"google.golang.org",
}

// The first rule whose dir holds a file decides about it.
var directions = []rule{
	{
		"backend/api/convert",
		[]string{"", "backend/api"},
		impure[:len(impure)-1],
		"the contract and the vocabulary meet here alone",
	},
	{"backend/api", []string{"backend/api"}, nil, "the contract knows nobody"},
	{"backend/vote", []string{"", "backend/api"}, impure, "a vote takes time as an argument and does no I/O"},
	{
		"backend/statements",
		[]string{"", "backend/api"},
		impure,
		"what is said of a picture follows from the picture and the time",
	},
	{
		"backend/outbox",
		[]string{"", "backend/api"},
		impure,
		"the outbox takes time as an argument and sends nothing itself",
	},
	{"detect", []string{"", "detect"}, impure, "the pure core takes time as an argument and does no I/O"},
	{"mitigate", []string{"", "mitigate"}, impure, "the pure core takes time as an argument and does no I/O"},
	{"recovery", []string{"", "recovery"}, impure, "the pure core takes time as an argument and does no I/O"},
	{
		"backend/clock",
		nil,
		[]string{"net", "net/http", "context", "log/slog", "google.golang.org"},
		"time knows nobody",
	},
	{
		"agent",
		[]string{
			"", "agent", "backend/api", "backend/clock", "detect/nccl", "detect/period",
			"detect/work", "detect/xidcode",
		},
		nil,
		"the agent knows the API, the time, the period, the work, what NCCL is given and what Xid codes mean only",
	},
	{
		"backend",
		[]string{"", "backend", "detect", "mitigate", "recovery"},
		nil,
		"the engine draws nothing and starts no agent",
	},
	{"docs/proof/flow", []string{"docs/proof/flow"}, impure, "a judge shares nothing with what it judges"},
	{"docs/proof/results", nil, nil, "it reads pages only"},
	{"docs/proof/arrows", nil, nil, "the counter reads sources only"},
	{"docs/proof/night", nil, nil, "it runs commands, and knows none of what they test"},
	{"docs/proof/samples", nil, nil, "it runs the go command on the sources"},
	{"docs/proof/size", nil, nil, "the counter reads sources only"},
	{
		"docs/proof",
		[]string{"", "backend", "detect", "docs/proof", "mitigate", "recovery"},
		impure,
		"what measures is as pure as what is measured",
	},
	{"docs", nil, impure, "pages are data"},
	{
		"tui",
		[]string{"", "tui", "backend/api", "backend/clock", "backend/statements", "docs", "themes"},
		nil,
		"the console is a client of the API",
	},
	{"themes", []string{"themes"}, nil, "palettes are data"},
	{
		"cmd",
		[]string{"", "cmd", "agent", "backend", "detect", "docs", "mitigate", "recovery", "themes", "tui"},
		nil,
		"",
	},
	{
		".",
		nil,
		[]string{"os", "net", "sync", "github.com/", "google.golang.org"},
		"the vocabulary is values only",
	},
}

func TestImportDirections(t *testing.T) {
	for _, f := range tree(t) {
		if f.test {
			continue
		}
		r := ruleFor(f.dir)
		for _, spec := range f.ast.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if bad := r.breaks(path); bad != "" {
				t.Errorf("%s/%s imports %s: %s (%s)", f.dir, f.name, path, bad, r.why)
			}
		}
	}
}

// The product builds and passes its tests without the proof.
func TestProductNeedsNoProof(t *testing.T) {
	for _, f := range tree(t) {
		for _, spec := range f.ast.Imports {
			path := strings.Trim(spec.Path.Value, `"`)
			if !isProof(f.dir) && strings.HasPrefix(path, module+"/"+proofFolder) {
				t.Errorf("%s/%s imports %s, which never ships", f.dir, f.name, path)
			}
		}
	}
	for _, line := range fileLines(t, "go.mod") {
		if strings.Contains(line, module+"/") {
			t.Errorf("go.mod: %q: the main module requires nothing of its own tree", line)
		}
	}
}

// What plays or judges in tests is part of no program.
func TestHelpersStayInTests(t *testing.T) {
	for _, f := range tree(t) {
		if f.test || isProof(f.dir) || strings.HasSuffix(f.dir, "test") {
			continue
		}
		for _, spec := range f.ast.Imports {
			path := strings.Trim(spec.Path.Value, `"`)
			if strings.HasPrefix(path, module) && strings.HasSuffix(path, "test") {
				t.Errorf("%s/%s imports %s, which is for tests", f.dir, f.name, path)
			}
		}
	}
}

func ruleFor(dir string) rule {
	for _, r := range directions {
		if r.dir == dir || strings.HasPrefix(dir, r.dir+"/") {
			return r
		}
	}
	return directions[len(directions)-1]
}

func (r rule) breaks(path string) string {
	if path == module || strings.HasPrefix(path, module+"/") {
		rest := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
		if !slices.ContainsFunc(r.allow, func(a string) bool {
			return rest == a || (a != "" && strings.HasPrefix(rest, a+"/"))
		}) {
			return "this direction is closed"
		}
		return ""
	}
	for _, b := range r.ban {
		if path == b ||
			(strings.HasSuffix(b, "/") && strings.HasPrefix(path, b)) ||
			strings.HasPrefix(path, b+".") ||
			(strings.Contains(b, ".") && strings.HasPrefix(path, b)) {
			return "not in this room"
		}
	}
	return ""
}

// The core, and what it is measured with, never reads the clock and never starts a goroutine.
func TestCoreIsPure(t *testing.T) {
	pure := []string{"detect", "mitigate", "recovery"}
	for _, f := range tree(t) {
		if f.dir == "docs/proof/night" { // it measures nothing, and plays what does
			continue
		}
		if f.test || !isProof(f.dir) && !slices.Contains(pure, strings.Split(f.dir, "/")[0]) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s/%s starts a goroutine", f.dir, f.name)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok &&
					x.Name == "time" &&
					slices.Contains([]string{"Now", "Since", "Sleep", "After"}, n.Sel.Name) {
					t.Errorf("%s/%s reads the clock: time.%s", f.dir, f.name, n.Sel.Name)
				}
			}
			return true
		})
	}
}

// The top-level folders are fixed.
func TestRooms(t *testing.T) {
	want := []string{
		"agent", "backend", "bin", "cmd", "detect", "docs", "mitigate", "native", "recovery",
		"themes", "tui",
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() &&
			!strings.HasPrefix(e.Name(), ".") &&
			!slices.Contains(want, e.Name()) {
			t.Errorf("top-level folder %s is not one of the rooms %v", e.Name(), want)
		}
	}
}
