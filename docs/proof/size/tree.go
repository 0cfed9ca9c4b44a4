package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

const proofFolder = "docs/proof"

// groups are the sizes of the tree: the product by top-level folder, and the rest.
type groups struct {
	product   map[string]*size
	helpers   size // of tests: no program is built from them
	tests     size
	proof     size // this module
	generated size
}

// countTree counts all Go files of the repository.
func countTree(root string) (*groups, error) {
	product, err := productFolders(root)
	if err != nil {
		return nil, err
	}
	out := &groups{product: map[string]*size{}}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && skipped(d.Name()) {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		below = filepath.ToSlash(below)
		out.add(below, source, product[folderOf(below)])
		return nil
	})
	return out, err
}

// skipped reports whether a folder has no sources of the tree.
func skipped(name string) bool {
	return name == "bin" || name == "testdata" || strings.HasPrefix(name, ".")
}

// folderOf is the folder of a file, "." for the root.
func folderOf(file string) string {
	if i := strings.LastIndexByte(file, '/'); i >= 0 {
		return file[:i]
	}
	return "."
}

// add puts a file into its group.
func (g *groups) add(file string, source []byte, product bool) {
	counted := countSource(source)
	switch {
	case isGenerated(source):
		g.generated.add(counted)
	case strings.HasPrefix(file, proofFolder+"/"):
		g.proof.add(counted)
	case strings.HasSuffix(file, "_test.go"):
		g.tests.add(counted)
	case !product:
		g.helpers.add(counted)
	default:
		top, _, nested := strings.Cut(file, "/")
		if !nested {
			top = "." // the root package
		}
		if g.product[top] == nil {
			g.product[top] = &size{}
		}
		g.product[top].add(counted)
	}
}

// productFolders are the folders of the packages that the programs are built from.
func productFolders(root string) (map[string]bool, error) {
	list := exec.Command(
		"go",
		"list",
		"-deps",
		"-f", "{{if .Module}}{{if .Module.Main}}{{.Dir}}{{end}}{{end}}",
		"./cmd/...",
	)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, fmt.Errorf("go list: %s", exit.Stderr)
		}
		return nil, fmt.Errorf("go list: %w", err)
	}
	absolute, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	folders := map[string]bool{}
	for _, dir := range strings.Fields(string(out)) {
		below, err := filepath.Rel(absolute, dir)
		if err != nil {
			return nil, err
		}
		folders[filepath.ToSlash(below)] = true
	}
	return folders, nil
}

// total is the size of the whole product.
func (g *groups) total() size {
	var all size
	for _, s := range g.product {
		all.add(*s)
	}
	return all
}

// print writes the table.
func (g *groups) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, s size) {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.2f\t\n",
			name, s.files, s.lines, s.tokens, s.perLine())
	}
	fmt.Fprintln(t, "\tfiles\tcode lines\ttokens\ttokens/line\t")
	for _, top := range slices.Sorted(maps.Keys(g.product)) {
		row(top, *g.product[top])
	}
	row("product", g.total())
	row("tests", g.tests)
	row("helpers of tests", g.helpers)
	row(proofFolder, g.proof)
	row("generated", g.generated)
	_ = t.Flush() // as much of a table as the terminal takes
}
