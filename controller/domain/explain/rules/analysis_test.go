package rules_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/explain"
)

const (
	explainPath = "github.com/ingot-metal/ingot/controller/domain/explain"
	rulesPath   = explainPath + "/rules"
)

// listedPackage is an entry of go list.
type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// listPackages returns the packages that the rules are made of, with the types that the compiler has written.
func listPackages(t *testing.T) map[string]listedPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-tags", "grpcnotrace", "-trimpath", "-export", "-deps",
		"-buildvcs=false", "-json=ImportPath,Dir,Export,GoFiles", ".")
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]listedPackage{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// program is the source of the rules with its types.
type program struct {
	fset *token.FileSet
	info *types.Info
	// bodies are the declarations by object: functions, methods, and variables with their initial values.
	bodies map[types.Object][]ast.Node
	// tables are the rules, by the variable that lists them.
	tables map[string]*ast.CompositeLit
	// reads are the sources of each declaration, with those of everything that it calls.
	reads map[types.Object]explain.Input
	// unknown are fields of facts that classes does not list.
	unknown map[string]bool
}

// loaded is the program that all tests share.
var loaded struct {
	sync.Once
	*program
}

func loadProgram(t *testing.T) *program {
	t.Helper()
	loaded.Do(func() { loaded.program = readProgram(t) })
	if loaded.program == nil {
		t.Fatal("the rules could not be loaded")
	}
	return loaded.program
}

func readProgram(t *testing.T) *program {
	t.Helper()
	packages := listPackages(t)
	p := &program{fset: token.NewFileSet(), bodies: map[types.Object][]ast.Node{},
		tables: map[string]*ast.CompositeLit{}, reads: map[types.Object]explain.Input{},
		unknown: map[string]bool{},
		info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
			Defs: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}}
	exported := importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(packages[path].Export)
	})
	checked := map[string]*types.Package{}
	imports := importFunc(func(path string) (*types.Package, error) {
		if pkg := checked[path]; pkg != nil {
			return pkg, nil
		}
		return exported.Import(path)
	})
	for _, path := range []string{explainPath, rulesPath} {
		files := p.parse(t, packages[path])
		pkg, err := (&types.Config{Importer: imports}).Check(path, p.fset, files, p.info)
		if err != nil {
			t.Fatal(err)
		}
		checked[path] = pkg
		for _, f := range files {
			p.declare(f)
		}
	}
	p.settle()
	return p
}

type importFunc func(string) (*types.Package, error)

func (f importFunc) Import(path string) (*types.Package, error) { return f(path) }

func (p *program) parse(t *testing.T, l listedPackage) (files []*ast.File) {
	t.Helper()
	for _, name := range l.GoFiles {
		f, err := parser.ParseFile(p.fset, filepath.Join(l.Dir, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

func (p *program) declare(f *ast.File) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			p.bodies[p.info.Defs[d.Name]] = []ast.Node{d.Body}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if !ok {
					continue
				}
				for i, name := range v.Names {
					if i >= len(v.Values) {
						continue
					}
					p.bodies[p.info.Defs[name]] = []ast.Node{v.Values[i]}
					if lit, ok := v.Values[i].(*ast.CompositeLit); ok && strings.HasSuffix(name.Name, "Rules") {
						p.tables[name.Name] = lit
					}
				}
			}
		}
	}
}

// of returns the sources that a piece of the program reads, with everything that it calls.
func (p *program) of(nodes ...ast.Node) (out explain.Input) {
	for _, n := range nodes {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if sel := p.info.Selections[n]; sel != nil {
					out |= p.ofSelection(sel)
				} else {
					out |= p.ofObject(p.info.Uses[n.Sel])
				}
				out |= p.of(n.X)
				return false
			case *ast.Ident:
				out |= p.ofObject(p.info.Uses[n])
			}
			return true
		})
	}
	return out
}

// ofSelection returns the source of a field or of a method.
func (p *program) ofSelection(sel *types.Selection) explain.Input {
	if sel.Kind() == types.FieldVal {
		return p.ofField(sel)
	}
	declaredBy := sel.Obj().Type().(*types.Signature).Recv().Type() // promoted methods are not the embedding type's
	name := typeName(declaredBy) + "." + strings.TrimPrefix(sel.Obj().Name(), "Get")
	if _, ours := p.bodies[sel.Obj()]; ours && methods[name] == 0 {
		return p.ofObject(sel.Obj())
	}
	return p.class(name)
}

// ofField classifies a field by the struct that declares it, through those that embed it.
func (p *program) ofField(sel *types.Selection) explain.Input {
	typ := sel.Recv()
	for _, i := range sel.Index()[:len(sel.Index())-1] {
		typ = structOf(typ).Field(i).Type()
	}
	return p.class(typeName(typ) + "." + sel.Obj().Name())
}

func structOf(t types.Type) *types.Struct {
	if ptr, ok := t.Underlying().(*types.Pointer); ok {
		t = ptr.Elem()
	}
	return t.Underlying().(*types.Struct)
}

// typeName returns the package and the name of a type: "explain.Agent".
func typeName(t types.Type) string {
	if ptr, ok := t.(*types.Pointer); ok {
		t = ptr.Elem()
	}
	return types.TypeString(t, func(pkg *types.Package) string { return pkg.Name() })
}

// ofObject returns what a function, a variable or a constant of these packages reads, or a named constant stands for.
func (p *program) ofObject(o types.Object) explain.Input {
	if o == nil {
		return 0
	}
	if c, ok := o.(*types.Const); ok && strings.HasSuffix(c.Type().String(), "fleet.ConditionType") {
		return p.class("condition." + c.Name())
	}
	return p.reads[o]
}

// settle computes what each declaration reads, until nothing is added: functions call each other.
func (p *program) settle() {
	for changed := true; changed; {
		changed = false
		for o, body := range p.bodies {
			if now := p.reads[o] | p.of(body...); now != p.reads[o] {
				p.reads[o], changed = now, true
			}
		}
	}
}
