package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// listed is what `go list` says of a package.
type listed struct {
	ImportPath string
	Dir        string
	Export     string
	GoFiles    []string
	DepOnly    bool
}

// load reads the files of one package, without its tests.
func load(root, pattern string) (*graph, error) {
	cmd := exec.Command("go", "list", "-C", root, "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,DepOnly",
		pattern)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", pattern, err)
	}
	exports := map[string]string{}
	var target *listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list %s: %w", pattern, err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			target = &p
		}
	}
	if target == nil {
		return nil, fmt.Errorf("%s is no package", pattern)
	}
	return graphOf(target, exports)
}

func graphOf(p *listed, exports map[string]string) (*graph, error) {
	fset := token.NewFileSet()
	g := newGraph()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
		g.files = append(g.files, name)
	}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := conf.Check(p.ImportPath, fset, files, info)
	if err != nil {
		return nil, err
	}
	for id, obj := range info.Uses {
		if obj.Pkg() == pkg {
			g.add(fileOf(fset, id.Pos()), fileOf(fset, obj.Pos()), obj.Name())
		}
	}
	return g, nil
}

func fileOf(fset *token.FileSet, pos token.Pos) string {
	return filepath.Base(fset.Position(pos).Filename)
}
