package main

import (
	"bytes"
	"context"
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
	"slices"
)

// source is one parsed file.
type source struct {
	path   string // absolute
	text   []byte
	syntax *ast.File
}

// unit is a package with its types.
type unit struct {
	target
	name  string
	fset  *token.FileSet
	files []source
	info  *types.Info
}

// listed has go list's data on a package.
type listed struct {
	ImportPath, Dir, Name, Export string
	GoFiles                       []string
}

// list asks the go tool for packages.
func list(ctx context.Context, root string, args ...string) ([]listed, error) {
	cmd := exec.CommandContext(ctx, "go",
		append([]string{"list", "-tags", buildTags, "-json=ImportPath,Dir,Name,Export,GoFiles"}, args...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, p)
	}
}

// load reads the targets and checks their types against what the compiler has written of their imports.
func load(ctx context.Context, root string, targets []target) ([]unit, error) {
	args := []string{"-export", "-deps", "-trimpath"}
	for _, t := range targets {
		args = append(args, "./"+t.dir)
	}
	packages, err := list(ctx, root, args...)
	if err != nil {
		return nil, err
	}
	exports, byDir := map[string]string{}, map[string]listed{}
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
		byDir[p.Dir] = p
	}
	var out []unit
	for _, t := range targets {
		p, ok := byDir[filepath.Join(root, t.dir)]
		if !ok {
			return nil, fmt.Errorf("no package in %s", t.dir)
		}
		u, err := loadUnit(t, p, exports)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.dir, err)
		}
		out = append(out, u)
	}
	return out, nil
}

func loadUnit(t target, p listed, exports map[string]string) (unit, error) {
	u := unit{target: t, name: p.Name, fset: token.NewFileSet(), info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}}
	var syntax []*ast.File
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return u, err
		}
		f, err := parser.ParseFile(u.fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return u, err
		}
		syntax = append(syntax, f)
		if (len(t.files) == 0 || slices.Contains(t.files, name)) && !ast.IsGenerated(f) {
			u.files = append(u.files, source{path, text, f})
		}
	}
	look := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	cfg := types.Config{Importer: importer.ForCompiler(u.fset, "gc", look)}
	_, err := cfg.Check(p.ImportPath, u.fset, syntax, u.info)
	return u, err
}
