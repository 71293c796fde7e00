package invariants

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// timeNames are the parts of package time with which a program writes or reads times its own way.
var timeNames = []string{
	"Local", "Parse", "ParseInLocation", "LoadLocation", "Layout", "ANSIC", "UnixDate", "RFC822", "RFC822Z", "RFC850", "RFC1123",
	"RFC1123Z", "RFC3339", "RFC3339Nano", "Kitchen", "Stamp", "StampMilli", "DateTime", "DateOnly", "TimeOnly",
}

// TestOneFileFormatsTimes: every time that ingot prints or reads goes through cli/view/zone.go, so that an output has one
// zone.
func TestOneFileFormatsTimes(t *testing.T) {
	seen := 0
	for _, f := range handWritten(t) {
		if !strings.HasPrefix(f.path, "cli/") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			problem := timeUse(n)
			switch {
			case problem == "":
			case f.path == "cli/view/zone.go":
				seen++
			default:
				t.Errorf("%s uses %s: call Time, Clock, Stamp or ParseTime of cli/view", f.path, problem)
			}
			return true
		})
	}
	if seen < 8 {
		t.Errorf("cli/view/zone.go has %d uses of package time: does this test still look at the right file?", seen)
	}
}

// timeUse returns what a node uses of package time to write or read a time; empty for none.
func timeUse(n ast.Node) string {
	if call, ok := n.(*ast.CallExpr); ok {
		if f, ok := call.Fun.(*ast.SelectorExpr); ok {
			if f.Sel.Name == "Local" && len(call.Args) == 0 {
				return ".Local()"
			}
			if len(call.Args) == 1 && (f.Sel.Name == "Format" || f.Sel.Name == "AppendFormat") {
				if _, literal := call.Args[0].(*ast.BasicLit); literal {
					return "." + f.Sel.Name
				}
			}
		}
	}
	s, ok := n.(*ast.SelectorExpr)
	if !ok || !slices.Contains(timeNames, s.Sel.Name) {
		return ""
	}
	if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" {
		return "time." + s.Sel.Name
	}
	return ""
}
