package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// statements finds the mutants that are about whole statements.
func (f *finder) statements(n ast.Node) {
	// The outermost change comes first.
	if s, ok := n.(ast.Stmt); ok && f.removable(s) {
		_, isCleanup := s.(*ast.DeferStmt)
		f.add(change{of: s, from: s.Pos(), to: s.End(), now: "", fine: isCleanup},
			f.around(s, "if !mutantOn(%d) { ", " }")...)
	}
	switch n := n.(type) {
	case *ast.FuncDecl:
		f.ends(n.Type, n.Body)
	case *ast.FuncLit:
		f.ends(n.Type, n.Body)
	case *ast.SwitchStmt:
		f.cases(n)
	case *ast.TypeSwitchStmt:
		for _, c := range n.Body.List {
			f.body(c.(*ast.CaseClause))
		}
	case *ast.ReturnStmt:
		f.returned(n)
	case *ast.AssignStmt:
		for _, e := range n.Rhs {
			f.literal(e)
		}
	}
}

// endOfFunction is the panic of a function whose return a mutant has left out.
const endOfFunction = "the end of a mutated function"

// ends lets a function compile whose last return is left out.
func (f *finder) ends(t *ast.FuncType, body *ast.BlockStmt) {
	if t.Results != nil && len(t.Results.List) > 0 {
		f.needs = append(f.needs, edit{at: f.at(body.Rbrace), kind: opening,
			text: `; panic("` + endOfFunction + `") `})
	}
}

// removable reports whether a statement can be left out, and whether that is worth a try.
func (f *finder) removable(s ast.Stmt) bool {
	if !f.listed(s) {
		return false
	}
	switch s := s.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.BranchStmt:
		b, ok := s.(*ast.BranchStmt)
		return !ok || b.Tok == token.BREAK || b.Tok == token.CONTINUE
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE && !slices.ContainsFunc(s.Lhs, isBlank)
	case *ast.ReturnStmt:
		return f.followed()
	}
	return false
}

func isBlank(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "_"
}

// listed reports whether the statement being visited is one of a block's or a case's.
func (f *finder) listed(s ast.Stmt) bool {
	if len(f.stack) == 0 {
		return false
	}
	switch p := f.stack[len(f.stack)-1].(type) {
	case *ast.BlockStmt:
		return true
	case *ast.CaseClause:
		return true
	case *ast.CommClause:
		return p.Comm != s
	}
	return false
}

// followed reports whether something else is executed when the statement being visited does not leave the function.
func (f *finder) followed() bool {
	for i := len(f.stack) - 1; i >= 0; i-- {
		switch p := f.stack[i].(type) {
		case *ast.FuncDecl, *ast.FuncLit:
			return false
		case *ast.ForStmt, *ast.RangeStmt:
			return true
		case *ast.BlockStmt:
			// The last of a block is followed by what follows the block.
			if i > 0 && i+1 < len(f.stack) && p.List[len(p.List)-1] != f.stack[i+1] {
				return true
			}
		}
	}
	return false
}

// cases leaves single cases of a switch out.
func (f *finder) cases(s *ast.SwitchStmt) {
	for _, c := range s.Body.List {
		c := c.(*ast.CaseClause)
		if c.List == nil {
			f.body(c)
		}
		for _, e := range c.List {
			if s.Tag == nil {
				if isBool(f.typeOf(e)) && !f.constant(e) {
					f.add(change{of: e, from: e.Pos(), to: e.End(), now: "false"}, f.around(e, "((", ") && !mutantOn(%d))")...)
				}
				continue
			}
			f.constantCase(s, e)
		}
	}
}

// constantCase makes a case's value one that never comes.
func (f *finder) constantCase(s *ast.SwitchStmt, e ast.Expr) {
	tag := f.typeOf(s.Tag)
	b, ok := tag.Underlying().(*types.Basic)
	if !ok || !f.convertible(e, tag) {
		return
	}
	function := "mutantNumberCase"
	if b.Info()&types.IsString != 0 {
		function = "mutantText"
	} else if b.Info()&types.IsInteger == 0 {
		return
	}
	if _, unnamed := tag.(*types.Basic); unnamed {
		function += "[" + b.Name() + "]" // of an untyped constant another type is inferred
	}
	f.add(change{of: e, from: e.Pos(), to: e.End(), now: "(no such case)", unsure: true},
		f.around(e, function+"(%d, ", ")")...)
}

// convertible reports whether a function that is given the expression infers the type that is wanted.
func (f *finder) convertible(e ast.Expr, want types.Type) bool {
	if !types.Identical(f.typeOf(e), want) {
		return false
	}
	_, basic := want.(*types.Basic)
	switch e := ast.Unparen(e).(type) {
	case *ast.BasicLit:
		return basic
	case *ast.Ident:
		return basic || typed(f.u.info.Uses[e])
	case *ast.SelectorExpr:
		return basic || typed(f.u.info.Uses[e.Sel])
	}
	return f.u.info.Types[e].Value == nil
}

// typed reports whether an object has a type without its context.
func typed(o types.Object) bool {
	if o == nil {
		return false
	}
	b, ok := o.Type().(*types.Basic)
	return !ok || b.Info()&types.IsUntyped == 0
}

// body leaves out what a case does.
func (f *finder) body(c *ast.CaseClause) {
	if len(c.Body) == 0 {
		return
	}
	last := c.Body[len(c.Body)-1]
	if b, ok := last.(*ast.BranchStmt); ok && (b.Tok == token.FALLTHROUGH || len(c.Body) == 1) {
		return
	}
	from, to := c.Body[0].Pos(), last.End()
	f.add(change{of: c, from: from, to: to, now: ""},
		edit{at: f.at(from), kind: opening, text: "if !mutantOn(%d) { "}, edit{at: f.at(to), kind: closing, text: " }"})
}

// returned empties what a function returns.
func (f *finder) returned(r *ast.ReturnStmt) {
	results := f.results()
	for i, e := range r.Results {
		f.literal(e)
		if len(results) != len(r.Results) || f.empty(e) {
			continue
		}
		want := results[i]
		switch u := want.Underlying().(type) {
		case *types.Interface:
			if want.String() == "error" {
				f.add(change{of: r, from: e.Pos(), to: e.End(), now: "nil"}, f.around(e, "mutantError(%d, ", ")")...)
			}
		case *types.Pointer, *types.Slice, *types.Map:
			if types.Identical(f.typeOf(e), want) {
				f.add(change{of: r, from: e.Pos(), to: e.End(), now: "nil"}, f.around(e, "mutantZero(%d, ", ")")...)
			}
		case *types.Basic:
			if u.Info()&types.IsString != 0 && f.convertible(e, want) {
				f.add(change{of: r, from: e.Pos(), to: e.End(), now: `""`}, f.around(e, "mutantZero(%d, ", ")")...)
			}
		}
	}
}

// empty reports whether a returned value is nothing already, or a sentence.
func (f *finder) empty(e ast.Expr) bool {
	tv := f.u.info.Types[e]
	if tv.IsNil() {
		return true
	}
	if tv.Value == nil {
		return f.sentence(e)
	}
	s := tv.Value.ExactString()
	return s == `""` || strings.Contains(s, " ")
}

// sentence reports whether an expression puts a text for people together.
func (f *finder) sentence(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return e.Op == token.ADD && (f.empty(e.X) || f.empty(e.Y))
	case *ast.CallExpr:
		return strings.HasPrefix(f.name(e), "Sprint")
	}
	return false
}

// results are the types that the innermost function returns.
func (f *finder) results() []types.Type {
	for _, n := range slices.Backward(f.stack) {
		var t *ast.FuncType
		switch n := n.(type) {
		case *ast.FuncDecl:
			t = n.Type
		case *ast.FuncLit:
			t = n.Type
		default:
			continue
		}
		if t.Results == nil {
			return nil
		}
		var out []types.Type
		for _, field := range t.Results.List {
			for range max(1, len(field.Names)) {
				out = append(out, f.typeOf(field.Type))
			}
		}
		return out
	}
	return nil
}
