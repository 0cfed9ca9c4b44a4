package falcon_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// declared are the names of functions ("pose"), methods ("decisions.pose") and
// types of every Go package, by folder.
func declared(t *testing.T) map[string]map[string]bool {
	t.Helper()
	out := map[string]map[string]bool{}
	for _, f := range tree(t) {
		if f.test {
			continue
		}
		if out[f.dir] == nil {
			out[f.dir] = map[string]bool{}
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name = receiver(d.Recv.List[0].Type) + "." + name
				}
				out[f.dir][name] = true
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if ts, ok := s.(*ast.TypeSpec); ok {
						out[f.dir][ts.Name.Name] = true
					}
				}
			}
		}
	}
	return out
}

// exists reports whether a name is declared in a Go package or in a C file.
func exists(t *testing.T, names map[string]map[string]bool, where, name string) bool {
	t.Helper()
	if !strings.HasSuffix(where, ".c") {
		return names[where][name]
	}
	text, err := os.ReadFile(where)
	if err != nil {
		return false
	}
	return regexp.MustCompile(`(?m)^[a-z].*\b` + regexp.QuoteMeta(name) + `\(`).Match(text)
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// Every function in the tables of docs/architecture.md exists where the table has
// it, and so does every part of the engine that the page lists.
func TestArchitectureNames(t *testing.T) {
	names := declared(t)
	checked := 0
	for _, line := range fileLines(t, "docs/architecture.md") {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || !strings.Contains(cells[2], "`") {
			continue
		}
		where := strings.Trim(cells[2], " `")
		for _, m := range codeSpan.FindAllStringSubmatch(cells[3], -1) {
			checked++
			if !exists(t, names, where, m[1]) {
				t.Errorf("docs/architecture.md: %s has no %s", where, m[1])
			}
		}
	}
	if checked < 60 {
		t.Errorf("docs/architecture.md: %d names were found in its tables, want at least 60", checked)
	}
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, parts, found := strings.Cut(string(text), "The parts of `backend/engine`:")
	parts, _, end := strings.Cut(parts, "\n\n")
	if !found || !end {
		t.Fatal("docs/architecture.md does not list the parts of backend/engine")
	}
	for _, m := range codeSpan.FindAllStringSubmatch(parts, -1) {
		if !names["backend/engine"][m[1]] {
			t.Errorf("docs/architecture.md: backend/engine has no part %s", m[1])
		}
	}
}

var pageLink = regexp.MustCompile(`\]\(([^)#:]+(?:\.[a-z]+|/))(?:#[^)]*)?\)`)

// Links between pages lead somewhere.
func TestLinksOfPages(t *testing.T) {
	pages := []string{"README.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(found), err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		for _, line := range fileLines(t, page) {
			for _, m := range pageLink.FindAllStringSubmatch(line, -1) {
				if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
					t.Errorf("%s links to %s, which does not exist", page, m[1])
				}
			}
		}
	}
}
