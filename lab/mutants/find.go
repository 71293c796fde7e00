package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
)

// finder collects the mutants of one file.
type finder struct {
	u     *unit
	src   source
	base  int // of the file in its set
	stack []ast.Node
	// node is the one being visited, not on the stack yet.
	node  ast.Node
	found []*mutant
	// needs are edits that make the mutated file compile, whichever mutants are built in.
	needs []edit
}

// find returns the mutants of a package in the order of the source, and per file the edits that all of them need.
func find(u *unit) (all []*mutant, needs map[string][]edit) {
	needs = map[string][]edit{}
	for _, src := range u.files {
		f := &finder{u: u, src: src, base: u.fset.File(src.syntax.FileStart).Base()}
		for _, d := range src.syntax.Decls {
			f.decl(d)
		}
		all = append(all, f.found...)
		needs[src.path] = f.needs
	}
	numbered(all)
	return all, needs
}

func (f *finder) decl(d ast.Decl) {
	switch d := d.(type) {
	case *ast.GenDecl:
		if d.Tok != token.VAR {
			return
		}
	case *ast.FuncDecl:
		if d.Body == nil || prints(d) {
			return
		}
	}
	ast.Inspect(d, f.visit)
}

// prints reports whether a method only returns its receiver as a text.
func prints(d *ast.FuncDecl) bool {
	switch d.Name.Name {
	case "String", "GoString", "Error", "LogValue":
		return d.Recv != nil
	}
	return false
}

func (f *finder) visit(n ast.Node) bool {
	if n == nil {
		f.stack = f.stack[:len(f.stack)-1]
		return false
	}
	if f.skips(n) {
		return false
	}
	f.node = n
	f.statements(n)
	if e, ok := n.(ast.Expr); ok && !f.constant(e) {
		f.expression(e)
	}
	f.stack = append(f.stack, n)
	return true
}

// skips reports whether nothing below a node is mutated.
func (f *finder) skips(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.VAR
	case *ast.ArrayType, *ast.StructType, *ast.InterfaceType, *ast.FuncType:
		return true
	case *ast.CallExpr:
		return f.writes(n) || f.makes(n)
	case *ast.ExprStmt:
		c, ok := n.X.(*ast.CallExpr)
		return ok && f.writes(c) && !f.panics(c)
	case *ast.IfStmt:
		return f.injects(n)
	case *ast.AssignStmt:
		return onlyMessages(n.Lhs)
	}
	return false
}

// writes reports whether a call makes or logs a text, counts something for the metrics, or panics.
func (f *finder) writes(c *ast.CallExpr) bool {
	switch path := f.packageOf(c); path {
	case "fmt", "log/slog", "errors":
		return path != "errors" || !strings.HasPrefix(f.name(c), "Is") && f.name(c) != "As" && f.name(c) != "Join"
	default:
		return f.name(c) == "Logf" || strings.Contains(path, "prometheus") || strings.HasSuffix(path, "/metrics") ||
			f.panics(c)
	}
}

// makes reports whether a call makes something of a size that only its speed hangs on.
func (f *finder) makes(c *ast.CallExpr) bool {
	id, ok := c.Fun.(*ast.Ident)
	return ok && id.Name == "make"
}

func (f *finder) panics(c *ast.CallExpr) bool {
	id, ok := c.Fun.(*ast.Ident)
	return ok && id.Name == "panic"
}

// injects reports whether an if asks a failpoint, which does nothing in production.
func (f *finder) injects(n *ast.IfStmt) bool {
	found := false
	for _, part := range []ast.Node{n.Init, n.Cond} {
		if part == nil {
			continue
		}
		ast.Inspect(part, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok && strings.HasSuffix(f.packageOf(c), "/failpoint") {
				found = true
			}
			return !found
		})
	}
	return found
}

// packageOf returns the package that a called function or method belongs to.
func (f *finder) packageOf(c *ast.CallExpr) string {
	if o := f.callee(c); o != nil && o.Pkg() != nil {
		return o.Pkg().Path()
	}
	return ""
}

func (f *finder) name(c *ast.CallExpr) string {
	if o := f.callee(c); o != nil {
		return o.Name()
	}
	return ""
}

func (f *finder) callee(c *ast.CallExpr) types.Object {
	switch fun := ast.Unparen(c.Fun).(type) {
	case *ast.Ident:
		return f.u.info.Uses[fun]
	case *ast.SelectorExpr:
		return f.u.info.Uses[fun.Sel]
	}
	return nil
}

// onlyMessages reports whether everything that is assigned to is a text for people.
func onlyMessages(to []ast.Expr) bool {
	for _, e := range to {
		s, ok := e.(*ast.SelectorExpr)
		if !ok || s.Sel.Name != "Message" {
			return false
		}
	}
	return true
}

// constant reports whether the compiler knows an expression's value, and it is not a literal that can be switched.
func (f *finder) constant(e ast.Expr) bool { return f.u.info.Types[e].Value != nil }

func (f *finder) typeOf(e ast.Expr) types.Type { return f.u.info.Types[e].Type }

func (f *finder) at(p token.Pos) int { return int(p) - f.base }

func (f *finder) text(n ast.Node) string { return string(f.src.text[f.at(n.Pos()):f.at(n.End())]) }

// change is what one mutant does to a node's text, for people.
type change struct {
	of ast.Node // the text that names the mutant
	// from and to are the bytes that are replaced, now what stands there instead.
	from, to token.Pos
	now      string
	// fine and unsure are those of the mutant.
	fine, unsure bool
}

// add notes a mutant. The edits get the number of its switch by "%d".
func (f *finder) add(c change, edits ...edit) {
	start, end := f.at(c.of.Pos()), f.at(c.of.End())
	before := string(f.src.text[start:end])
	after := string(f.src.text[start:f.at(c.from)]) + c.now + string(f.src.text[f.at(c.to):end])
	if strings.TrimSpace(after) == "" {
		after = "(left out)"
	}
	m := &mutant{
		dir: f.u.dir, file: filepath.Base(f.src.path), line: f.u.fset.Position(c.from).Line,
		key:   fmt.Sprintf("%s %s: %s => %s", f.u.dir, f.function(), collapse(before), collapse(after)),
		edits: edits, fine: c.fine, unsure: c.unsure,
	}
	m.removed, m.added = f.lines(c)
	f.found = append(f.found, m)
}

// lines returns the first line that a change touches, before and after.
func (f *finder) lines(c change) (removed, added string) {
	text, from, to := string(f.src.text), f.at(c.from), f.at(c.to)
	start := strings.LastIndexByte(text[:from], '\n') + 1
	rest := func(at int) string { line, _, _ := strings.Cut(text[at:], "\n"); return line }
	removed = rest(start)
	added, _, _ = strings.Cut(text[start:from]+c.now+rest(to), "\n")
	return removed, added
}

// function names the function, with its receiver's type, or the variable that is being mutated.
func (f *finder) function() string {
	for _, n := range f.stack {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil {
				return n.Name.Name
			}
			return strings.TrimLeft(f.text(n.Recv.List[0].Type), "*") + "." + n.Name.Name
		case *ast.ValueSpec:
			return n.Names[0].Name
		}
	}
	return "?"
}

// around returns the edits that put texts before and after a node.
func (f *finder) around(n ast.Node, before, after string) []edit {
	return []edit{{at: f.at(n.Pos()), kind: opening, text: before}, {at: f.at(n.End()), kind: closing, text: after}}
}

// parent returns the node above the one being visited, parentheses left aside.
func (f *finder) parent() ast.Node {
	for i := len(f.stack) - 1; i >= 0; i-- {
		if _, ok := f.stack[i].(*ast.ParenExpr); !ok {
			return f.stack[i]
		}
	}
	return nil
}
