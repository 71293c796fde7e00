package invariants

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const reasonProto = "api/baremetal/v1/reason.proto"

var reasonLine = regexp.MustCompile(`(?m)^\s+([A-Z][A-Z0-9_]*)\s*=\s*(\d+);`)

// The proto is read as text, so that the rule holds whatever the generated code.
func reasonsOfProto(t *testing.T) map[string]int {
	t.Helper()
	reasons := map[string]int{}
	for _, m := range reasonLine.FindAllStringSubmatch(readFile(t, reasonProto), -1) {
		number, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatalf("%s: %v", reasonProto, err)
		}
		reasons[m[1]] = number
	}
	if len(reasons) < 80 {
		t.Fatalf("%s: found %d reasons: the pattern no longer fits it", reasonProto, len(reasons))
	}
	return reasons
}

func committedReasons(t *testing.T) map[string]int {
	t.Helper()
	reasons := map[string]int{}
	for _, line := range readLines(t, "reasons.txt") {
		words := strings.Fields(line)
		if len(words) != 2 {
			t.Fatalf("reasons.txt: malformed line %q", line)
		}
		number, err := strconv.Atoi(words[0])
		if err != nil {
			t.Fatalf("reasons.txt: %v", err)
		}
		reasons[words[1]] = number
	}
	return reasons
}

func TestReasonsOnlyGrow(t *testing.T) {
	inProto, committed := reasonsOfProto(t), committedReasons(t)
	for name, number := range committed {
		got, ok := inProto[name]
		switch {
		case !ok:
			t.Errorf("reason %s = %d is gone from %s: reasons are never removed", name, number, reasonProto)
		case got != number:
			t.Errorf("reason %s moved from %d to %d: numbers never change", name, number, got)
		}
	}
	for name, number := range inProto {
		if _, ok := committed[name]; !ok {
			t.Errorf("reason %s = %d is new: add it to invariants/reasons.txt", name, number)
		}
	}
}

func TestReasonsHaveOneNumberEach(t *testing.T) {
	byNumber := map[int]string{}
	for name, number := range reasonsOfProto(t) {
		if other, taken := byNumber[number]; taken {
			t.Errorf("reasons %s and %s share number %d", name, other, number)
		}
		byNumber[number] = name
	}
}

var upperSnake = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$|^INTERNAL$`)

// Wherever Go code has a reason as a string, it must be one of the set: compilers don't check strings.
func TestReasonsInCodeAreInTheSet(t *testing.T) {
	inProto := reasonsOfProto(t)
	found := 0
	for _, f := range handWritten(t) {
		if within(f.dir, "agent/host") || within(f.dir, "agent/provider") {
			continue // Their refusals are details inside the agent: executors translate them.
		}
		for _, lit := range reasonLiterals(f) {
			found++
			if _, ok := inProto[unquote(lit)]; !ok {
				t.Errorf("%s: reason %s is not in %s", position(lit), lit.Value, reasonProto)
			}
		}
	}
	if found < 20 {
		t.Errorf("found %d reasons in the code: the search no longer fits how reasons are given", found)
	}
}

// reasonLiterals finds string literals given as reasons: to the constructors of internal/failure, in fields called
// Reason or Code, and in constants whose name starts with Reason.
func reasonLiterals(f sourceFile) []*ast.BasicLit {
	var found []*ast.BasicLit
	add := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING && upperSnake.MatchString(unquote(lit)) {
			found = append(found, lit)
		}
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if isFailureCall(f, n) {
				for _, arg := range n.Args {
					add(arg)
				}
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && isReasonField(key.Name) {
				add(n.Value)
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if s, ok := left.(*ast.SelectorExpr); ok && isReasonField(s.Sel.Name) && i < len(n.Rhs) {
					add(n.Rhs[i])
				}
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if strings.HasPrefix(strings.ToLower(name.Name), "reason") && i < len(n.Values) {
					add(n.Values[i])
				}
			}
		}
		return true
	})
	return found
}

func isReasonField(name string) bool { return name == "Reason" || name == "Code" }

func isFailureCall(f sourceFile, call *ast.CallExpr) bool {
	switch fun := call.Fun.(type) {
	case *ast.SelectorExpr:
		x, ok := fun.X.(*ast.Ident)
		return ok && x.Name == "failure"
	case *ast.Ident:
		return f.dir == "internal/failure" && ast.IsExported(fun.Name)
	}
	return false
}
