package rules_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/explain/rules"
	"github.com/ingot-metal/ingot/internal/testkit/document"
)

// TestReferenceRules shows each table of rules with the comments of its lines.
func TestReferenceRules(t *testing.T) {
	var b strings.Builder
	b.WriteString(
		"The first rule that fits gives an [explanation](../explanation/why.md); its name is the field `rule`. " +
			"`ingot webhook why`\nhas rules of its own.\n\n" +
			"*reads* are the sources of all that a rule decides and says. *past*: stored events with their times. " +
			"*present*: what\nholds at this moment, such as open sessions. *record*: what the controllers decide and store. " +
			"A text about the past\nnever depends on the present.\n",
	)
	named := 0
	for _, table := range []struct{ variable, title string }{
		{"activeRules", "While an operation is active"}, {"restRules", "While nothing is under way"},
		{"endedRules", "For an ended operation that was asked for by name"},
	} {
		rows := commentedRules(t, table.variable)
		named += len(rows)
		b.WriteString("\n## " + table.title + "\n\n" + document.Table([]string{"rule", "fits when", "reads"}, rows))
	}
	if want := len(rules.RuleNames()); named != want {
		t.Errorf("%d of %d rules have a comment", named, want)
	}
	document.Check(t, "why-rules.md", "Rules of why", b.String())
}

func commentedRules(t *testing.T, variable string) (rows [][]string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		above := map[int]string{} // comments by the line that follows
		for _, c := range file.Comments {
			above[fset.Position(c.End()).Line+1] = strings.TrimSpace(c.Text())
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || spec.Names[0].Name != variable {
				return true
			}
			for _, e := range spec.Values[0].(*ast.CompositeLit).Elts {
				elts := e.(*ast.CompositeLit).Elts
				name := elts[0].(*ast.BasicLit).Value
				if c := above[fset.Position(e.Pos()).Line]; c != "" {
					rows = append(rows, []string{"`" + strings.Trim(name, `"`) + "`", c, sources(elts[1])})
				}
			}
			return false
		})
	}
	return rows
}

// sources returns the names in an expression such as "past | record".
func sources(e ast.Expr) string {
	if b, ok := e.(*ast.BinaryExpr); ok {
		return sources(b.X) + ", " + sources(b.Y)
	}
	return e.(*ast.Ident).Name
}
