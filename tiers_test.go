package falcon_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// A tierRow is one `go test` of a tier: a row of .ci/tiers, or a command of a play of the
// night.
type tierRow struct {
	tier, text string
	packages   []string
	run, skip  *regexp.Regexp // skip is nil where nothing is skipped
	flags      []string
	matched    bool
}

func (r *tierRow) covers(dir, test string) bool {
	if r.skip != nil && r.skip.MatchString(test) || !r.run.MatchString(test) {
		return false
	}
	return slices.ContainsFunc(r.packages, func(p string) bool {
		parent, all := strings.CutSuffix(p, "/...")
		return p == "./..." && !isProof(dir) ||
			p == dir ||
			p == "./"+dir ||
			all && (parent == "./"+dir || strings.HasPrefix("./"+dir, parent+"/"))
	})
}

func (r *tierRow) has(flag string) bool {
	return slices.Contains(r.flags, "-"+flag)
}

// tierRows are the rows of .ci/tiers.
func tierRows(t *testing.T) []*tierRow {
	t.Helper()
	var rows []*tierRow
	for _, line := range fileLines(t, ".ci/tiers") {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		tier, _, _ := strings.Cut(f[0], "-") // the rest is its lane
		if len(f) < 3 || !slices.Contains([]string{"test", "check", "night"}, tier) {
			t.Fatalf(
				".ci/tiers: %q: want a tier (test, check, check-a, check-b or night), packages, tests and flags",
				line,
			)
		}
		packages := strings.Split(f[1], ",")
		for _, p := range packages {
			if isProof(p) != isProof(packages[0]) {
				t.Errorf(".ci/tiers: %q: one row has packages of two modules", line)
			}
		}
		r := &tierRow{
			tier:     tier,
			text:     line,
			packages: packages,
			run:      compiled(t, f[2]),
			flags:    f[3:],
		}
		if i := slices.Index(r.flags, "-skip"); i >= 0 {
			r.skip = compiled(t, r.flags[i+1])
		}
		rows = append(rows, r)
	}
	return rows
}

// goTest is a call of go test, in the folder of another module or at the top.
var goTest = regexp.MustCompile(`go (?:-C (\S+) )?test (.*)`)

// nightlyRows are the `go test` commands of the plays of the night.
func nightlyRows(t *testing.T) []*tierRow {
	t.Helper()
	var rows []*tierRow
	for _, line := range fileLines(t, "Makefile") {
		if strings.HasPrefix(line, "\t") && goTest.MatchString(line) {
			t.Errorf("Makefile: %q runs tests: make it a play of .ci/plays.toml", line)
		}
	}
	for _, p := range nightPlays(t) {
		script := strings.ReplaceAll(p.Run, "'", "")
		for _, call := range goTest.FindAllStringSubmatch(script, -1) {
			rows = append(rows, playRow(t, p.Name, call[1], strings.Fields(call[2])))
		}
	}
	return rows
}

// nightPlay is what is read here of a play.
type nightPlay struct{ Name, Run string }

func nightPlays(t *testing.T) []nightPlay {
	t.Helper()
	var file struct{ Play []nightPlay }
	if _, err := toml.DecodeFile(".ci/plays.toml", &file); err != nil {
		t.Fatal(err)
	}
	return file.Play
}

// playRow is one call of go test, with these words, in the folder of a module.
func playRow(t *testing.T, play, module string, words []string) *tierRow {
	t.Helper()
	r := &tierRow{
		tier: "nightly",
		text: "make " + play,
		run:  regexp.MustCompile(""),
	}
	for i, word := range words {
		switch {
		case word == "-run":
			r.run = compiled(t, words[i+1])
		case strings.HasPrefix(word, "./"):
			r.packages = append(r.packages, "./"+path.Join(module, word))
		case strings.HasPrefix(word, "-"):
			r.flags = append(r.flags, word)
		}
	}
	return r
}

// compiled matches the tests that -run selects; the part behind a slash selects
// among a test's parts.
func compiled(t *testing.T, expression string) *regexp.Regexp {
	t.Helper()
	re, err := regexp.Compile(regexp.MustCompile(`/[^|]*`).ReplaceAllString(expression, ""))
	if err != nil {
		t.Fatal(err)
	}
	return re
}

func fileLines(t *testing.T, name string) []string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(b), "\n")
}

// testFunc is what the sources show of one function of a package's tests.
type testFunc struct {
	calls []string // names of functions and methods
	short bool     // it asks for testing.Short
	gates []string // flags without which it is skipped
}

// testPackage is the functions of one folder's tests, by name.
type testPackage struct {
	funcs map[string]*testFunc
	flags map[string]string // flag by the variable's name
}

// testPackages reads all tests of the tree.
func testPackages(t *testing.T) map[string]*testPackage {
	t.Helper()
	files := map[string][]*ast.File{}
	for _, f := range tree(t) {
		if f.test {
			files[f.dir] = append(files[f.dir], f.ast)
		}
	}
	out := map[string]*testPackage{}
	for dir, list := range files {
		p := &testPackage{funcs: map[string]*testFunc{}, flags: map[string]string{}}
		for _, f := range list {
			ast.Inspect(f, p.readFlag)
		}
		for _, f := range list {
			for _, d := range f.Decls {
				if d, ok := d.(*ast.FuncDecl); ok {
					p.readFunc(d)
				}
			}
		}
		out[dir] = p
	}
	return out
}

// readFlag notes a variable that is a flag.
func (p *testPackage) readFlag(n ast.Node) bool {
	v, ok := n.(*ast.ValueSpec)
	if !ok || len(v.Values) != len(v.Names) {
		return true
	}
	for i, value := range v.Values {
		call, ok := value.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			continue
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			continue
		}
		lit, isText := call.Args[0].(*ast.BasicLit)
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == "flag" && isText && lit.Kind == token.STRING {
			p.flags[v.Names[i].Name], _ = strconv.Unquote(lit.Value)
		}
	}
	return true
}

// readFunc notes what a function calls, and what skips it. Methods of one name
// count as one function.
func (p *testPackage) readFunc(d *ast.FuncDecl) {
	f := p.funcs[d.Name.Name]
	if f == nil {
		f = &testFunc{}
		p.funcs[d.Name.Name] = f
	}
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			name := calledName(n)
			f.calls = append(f.calls, name)
			f.short = f.short || name == "Short"
		case *ast.IfStmt:
			if skips(n.Body) {
				ast.Inspect(n.Cond, func(c ast.Node) bool {
					if id, ok := c.(*ast.Ident); ok && p.flags[id.Name] != "" {
						f.gates = append(f.gates, p.flags[id.Name])
					}
					return true
				})
			}
		}
		return true
	})
}

func calledName(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// skips reports whether a block skips the test.
func skips(b *ast.BlockStmt) bool {
	return slices.ContainsFunc(b.List, func(s ast.Stmt) bool {
		e, ok := s.(*ast.ExprStmt)
		if !ok {
			return false
		}
		call, ok := e.X.(*ast.CallExpr)
		return ok && strings.HasPrefix(calledName(call), "Skip")
	})
}

// reach is what a test and all it calls within its package show.
func (p *testPackage) reach(test string) (short bool, gates []string) {
	seen := map[string]bool{test: true}
	list := []string{test}
	for len(list) > 0 {
		f := p.funcs[list[0]]
		list = list[1:]
		short = short || f.short
		gates = append(gates, f.gates...)
		for _, name := range f.calls {
			if p.funcs[name] != nil && !seen[name] {
				seen[name] = true
				list = append(list, name)
			}
		}
	}
	return short, gates
}

// Every test is in a tier: -short sizes of all are in test and check, what
// -short skips or cuts is whole in check or in night, and what a flag asks for is in nightly.
func TestTiers(t *testing.T) {
	rows := append(tierRows(t), nightlyRows(t)...)
	packages := testPackages(t)
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		p := packages[dir]
		for _, name := range slices.Sorted(maps.Keys(p.funcs)) {
			if !strings.HasPrefix(name, "Test") || name == "TestMain" {
				continue
			}
			for _, problem := range tierProblems(rows, p, dir, name) {
				t.Errorf("%s: %s %s", dir, name, problem)
			}
		}
	}
	for _, r := range rows {
		if !r.matched {
			t.Errorf("%s: it matches no test", r.text)
		}
	}
}

// tierProblems is what is wrong with the tiers of one test.
func tierProblems(rows []*tierRow, p *testPackage, dir, name string) []string {
	short, gates := p.reach(name)
	count := map[string]int{}
	whole := 0
	open := map[string]bool{}
	for _, r := range rows {
		if !r.covers(path.Clean(dir), name) {
			continue
		}
		r.matched = true
		count[r.tier]++
		if r.tier != "test" && r.tier != "nightly" && !r.has("short") {
			whole++
		}
		for _, g := range gates {
			open[g] = open[g] || r.has(g)
		}
	}
	var bad []string
	for _, tier := range []string{"test", "check"} {
		if count[tier] == 0 {
			bad = append(bad, "is in no row of tier "+tier)
		}
	}
	switch {
	case !short && count["check"] > 1:
		bad = append(bad, "runs twice in check")
	case short && len(gates) == 0 && whole != 1:
		bad = append(bad, fmt.Sprintf(
			"is skipped or cut by -short and runs whole %d times in check and night, want once",
			whole,
		))
	}
	for _, g := range gates {
		if !open[g] {
			bad = append(bad, "is skipped without -"+g+", and no tier gives it")
		}
	}
	return bad
}
