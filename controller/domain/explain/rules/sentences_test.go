package rules_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"

	"github.com/ingot-metal/ingot/controller/domain/explain"
)

// ofThePast matches words that state what happened.
var ofThePast = regexp.MustCompile(`\b(was|were|did|didn't|had|took|came)\b|` +
	`\b(has|have) (not|never|ever|been|come|gone|begun|lost|said|shown|sent|taken|\w+ed)\b`)

// sentence is a text about the past, with what its words and its conditions are read from.
type sentence struct {
	at   token.Position
	text string
	from explain.Input
}

// sentences returns the texts about the past in a declaration. What an action would bring about is not among them.
func (p *program) sentences(body ast.Node) (out []sentence) {
	var path []ast.Node
	ast.Inspect(body, func(n ast.Node) bool {
		if n == nil {
			path = path[:len(path)-1]
			return true
		}
		path = append(path, n)
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text, _ := strconv.Unquote(lit.Value)
		if ofThePast.MatchString(text) && !p.inAction(path) {
			out = append(out, sentence{p.fset.Position(lit.Pos()), text, p.guards(path)})
		}
		return true
	})
	return out
}

// inAction reports whether a literal is part of an action, or an argument of what makes one.
func (p *program) inAction(path []ast.Node) bool {
	for _, n := range path {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if t := p.info.Types[n].Type; t != nil && strings.HasSuffix(t.String(), "explain.Action") {
				return true
			}
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "words" || id.Name == "onMachine") {
				return true
			}
		}
	}
	return false
}

// guards returns the sources of the conditions under which a literal is reached, and of the expression around it.
func (p *program) guards(path []ast.Node) (from explain.Input) {
	for i, n := range path {
		if i+1 == len(path) {
			break
		}
		next := path[i+1]
		switch n := n.(type) {
		case *ast.IfStmt:
			if next == n.Body || next == n.Else {
				from |= p.of(n.Cond)
			}
		case *ast.SwitchStmt:
			if n.Tag != nil {
				from |= p.of(n.Tag)
			}
		case *ast.CaseClause:
			for _, e := range n.List {
				from |= p.of(e)
			}
		case *ast.BinaryExpr:
			from |= p.of(n)
		case *ast.CallExpr:
			if fn, ok := n.Fun.(*ast.SelectorExpr); ok && fn.Sel.Name == "Sprintf" {
				from |= p.of(n)
			}
		case *ast.BlockStmt:
			from |= p.returnedBefore(n.List, next)
		}
	}
	return from
}

// returnedBefore returns the sources of the conditions that ended the function before a statement.
func (p *program) returnedBefore(list []ast.Stmt, at ast.Node) (from explain.Input) {
	for _, st := range list {
		if ast.Node(st) == at {
			break
		}
		cond, ok := st.(*ast.IfStmt)
		if !ok || len(cond.Body.List) == 0 {
			continue
		}
		if _, ends := cond.Body.List[len(cond.Body.List)-1].(*ast.ReturnStmt); ends {
			from |= p.of(cond.Cond)
		}
	}
	return from
}
