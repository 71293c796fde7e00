package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// expression finds the mutants of an expression whose value is not constant.
func (f *finder) expression(e ast.Expr) {
	if isBool(f.typeOf(e)) {
		f.operand(e)
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		f.binary(e)
	case *ast.Ident, *ast.CallExpr, *ast.SelectorExpr, *ast.IndexExpr:
		if isBool(f.typeOf(e)) && f.asked() {
			f.negate(e)
		}
	}
	for _, lit := range literals(e) {
		f.literal(lit)
	}
	f.literalsBelow(e)
}

// literals are the operands of an expression that may be numbers or truth values written out.
func literals(e ast.Expr) []ast.Expr {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return []ast.Expr{e.X, e.Y}
	case *ast.CallExpr:
		return e.Args
	case *ast.IndexExpr:
		return []ast.Expr{e.Index}
	case *ast.SliceExpr:
		return []ast.Expr{e.Low, e.High, e.Max}
	}
	return nil
}

// literalsBelow handles the values of a composite literal.
func (f *finder) literalsBelow(e ast.Expr) {
	lit, ok := e.(*ast.CompositeLit)
	if !ok {
		return
	}
	for _, el := range lit.Elts {
		if kv, ok := el.(*ast.KeyValueExpr); ok {
			el = kv.Value
		}
		f.literal(el)
	}
}

// isBool reports whether a type is plain bool: a named one would need conversions.
func isBool(t types.Type) bool {
	b, ok := t.(*types.Basic)
	return ok && b.Info()&types.IsBoolean != 0
}

// operand leaves one side of && or || out of a condition.
func (f *finder) operand(e ast.Expr) {
	p, ok := f.parent().(*ast.BinaryExpr)
	if !ok || p.Op != token.LAND && p.Op != token.LOR {
		return
	}
	if b, ok := ast.Unparen(e).(*ast.BinaryExpr); ok && b.Op == p.Op {
		return // its own sides are left out
	}
	if _, ok := e.(*ast.ParenExpr); ok {
		return // its parts come next
	}
	if p.Op == token.LAND {
		f.add(change{of: p, from: e.Pos(), to: e.End(), now: "true", fine: true},
			f.around(e, "((", ") || mutantOn(%d))")...)
	} else {
		f.add(change{of: p, from: e.Pos(), to: e.End(), now: "false", fine: true},
			f.around(e, "((", ") && !mutantOn(%d))")...)
	}
}

// asked reports whether the value being visited decides something, or is returned.
func (f *finder) asked() bool {
	switch p := f.parent().(type) {
	case *ast.BinaryExpr:
		return p.Op == token.LAND || p.Op == token.LOR
	case *ast.UnaryExpr:
		return p.Op == token.NOT
	case *ast.IfStmt, *ast.ForStmt, *ast.ReturnStmt:
		return true
	}
	return false
}

func (f *finder) negate(e ast.Expr) {
	f.add(change{of: e, from: e.Pos(), to: e.End(), now: "!" + f.text(e)}, f.around(e, "((", ") != mutantOn(%d))")...)
}

func (f *finder) binary(e *ast.BinaryExpr) {
	opposite := func(edits ...edit) {
		unsure := e.Op == token.LAND || e.Op == token.LOR
		f.add(change{of: e, from: e.OpPos, to: e.OpPos + token.Pos(len(e.Op.String())), now: negated[e.Op], unsure: unsure},
			edits...)
	}
	switch e.Op {
	case token.EQL, token.NEQ:
		opposite(f.around(e, "((", ") != mutantOn(%d))")...)
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		opposite(f.around(e, "((", ") != mutantOn(%d))")...)
		if m := moved[e.Op]; f.alike(e) {
			f.called(e, m)
		}
	case token.LAND, token.LOR:
		if !isBool(f.typeOf(e.X)) || !isBool(f.typeOf(e.Y)) {
			return
		}
		// De Morgan, so that the right side is only evaluated where the changed expression evaluates it.
		edits := f.around(e, "((", ") != mutantOn(%d))")
		edits = append(edits, f.around(e.X, "((", ") != mutantOn(%d))")...)
		opposite(append(edits, f.around(e.Y, "((", ") != mutantOn(%d))")...)...)
	case token.ADD, token.SUB, token.MUL, token.QUO:
		if b, ok := f.typeOf(e).Underlying().(*types.Basic); ok && b.Info()&(types.IsInteger|types.IsFloat) != 0 &&
			f.alike(e) {
			f.called(e, reckoned[e.Op])
		}
	}
}

// alike reports whether both sides have one type, or become it.
func (f *finder) alike(e *ast.BinaryExpr) bool {
	x, y := f.typeOf(e.X), f.typeOf(e.Y)
	_, parameter := x.(*types.TypeParam)
	return !parameter && types.Identical(x, y)
}

// called puts a call with both sides in the place of an operator.
func (f *finder) called(e *ast.BinaryExpr, m [2]string) {
	now, function := m[0], m[1]
	end := e.OpPos + token.Pos(len(e.Op.String()))
	edits := f.around(e, function+"(%d, ", ")")
	edits = append(edits, edit{at: f.at(e.OpPos), kind: replacing, text: ",", cut: len(e.Op.String())})
	_, isLimit := moved[e.Op]
	f.add(change{of: e, from: e.OpPos, to: end, now: now, fine: isLimit}, edits...)
}

// literal changes a number by one, or a truth value.
func (f *finder) literal(e ast.Expr) {
	switch e := e.(type) {
	case *ast.Ident:
		if f.constant(e) && isBool(f.typeOf(e)) && (e.Name == "true" || e.Name == "false") {
			now := map[string]string{"true": "false", "false": "true"}[e.Name]
			f.addIn(change{of: e, from: e.Pos(), to: e.End(), now: now}, f.around(e, "(", " != mutantOn(%d))")...)
		}
	case *ast.BasicLit:
		b, ok := f.typeOf(e).(*types.Basic)
		if !ok || e.Kind != token.INT || b.Info()&types.IsNumeric == 0 {
			return
		}
		name := types.Default(b).String()
		limit, isLimit := f.node.(*ast.BinaryExpr)
		isLimit = isLimit && limit.Y == e
		// What moves a limit by one is a mutant of its comparison already.
		if !isLimit || limit.Op != token.LSS && limit.Op != token.GEQ {
			f.addIn(change{of: e, from: e.Pos(), to: e.End(), now: "(" + e.Value + "+1)", fine: true},
				f.around(e, "mutantUp["+name+"](%d, ", ")")...)
		}
		if e.Value != "0" && (!isLimit || limit.Op != token.GTR && limit.Op != token.LEQ) {
			f.addIn(change{of: e, from: e.Pos(), to: e.End(), now: "(" + e.Value + "-1)", fine: true},
				f.around(e, "mutantDown["+name+"](%d, ", ")")...)
		}
	}
}

// addIn names a mutant of something small by the statement or declaration that it is in.
func (f *finder) addIn(c change, edits ...edit) {
	for _, n := range slices.Backward(append(slices.Clip(f.stack), f.node)) {
		switch n.(type) {
		case *ast.ReturnStmt, *ast.AssignStmt, *ast.ExprStmt, *ast.CallExpr, *ast.BinaryExpr, *ast.KeyValueExpr,
			*ast.ValueSpec:
			if n.Pos() <= c.from && c.to <= n.End() {
				c.of = n
				f.add(c, edits...)
				return
			}
		}
	}
	f.add(c, edits...)
}
