package situation_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/situation"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestSituationsAreReadOnly holds that no function which takes a Situation assigns to what it reaches. Only the draft of
// package decider changes an operation.
func TestSituationsAreReadOnly(t *testing.T) {
	checked := 0
	for _, dir := range []string{".", "../decider"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				var kind *ast.FuncType
				var fields []*ast.Field
				var body *ast.BlockStmt
				switch n := n.(type) {
				case *ast.FuncDecl:
					kind, body = n.Type, n.Body
					if n.Recv != nil {
						fields = n.Recv.List
					}
				case *ast.FuncLit:
					kind, body = n.Type, n.Body
				default:
					return true
				}
				for _, p := range append(fields, kind.Params.List...) {
					if id, ok := p.Type.(*ast.Ident); !ok || id.Name != "Situation" || len(p.Names) == 0 {
						continue
					}
					checked++
					for _, at := range assignedThrough(body, p.Names[0].Name) {
						t.Errorf("%s: assigns through a Situation", fset.Position(at))
					}
				}
				return true
			})
		}
	}
	if checked < 100 {
		t.Errorf("%d functions take a Situation: does this test still look at the right files?", checked)
	}
}

// assignedThrough returns the assignments whose left side begins with the named variable.
func assignedThrough(body *ast.BlockStmt, name string) (at []token.Pos) {
	through := func(e ast.Expr) bool {
		for {
			switch x := e.(type) {
			case *ast.SelectorExpr:
				e = x.X
			case *ast.IndexExpr:
				e = x.X
			case *ast.StarExpr:
				e = x.X
			case *ast.ParenExpr:
				e = x.X
			case *ast.Ident:
				return x.Name == name
			default:
				return false
			}
		}
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if _, whole := left.(*ast.Ident); !whole && through(left) {
					at = append(at, left.Pos())
				}
			}
		case *ast.IncDecStmt:
			if through(n.X) {
				at = append(at, n.Pos())
			}
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "delete" || id.Name == "clear") && through(n.Args[0]) {
				at = append(at, n.Pos())
			}
		}
		return true
	})
	return at
}

// TestFactsOfAnOperationWithoutSteps: an operation that has none, and no command, has a situation too.
func TestFactsOfAnOperationWithoutSteps(t *testing.T) {
	op, w := operation.Operation{Phase: operation.Succeeded}, operation.World{}
	s := situation.Look(&op, nil, &w, t0)
	if !s.Over || !s.Settled || s.Granted || s.Boots != "" || s.Route() != nil {
		t.Errorf("%v", s)
	}
}

// TestTheTextNamesTheFactsThatHold: a log line has the states, and the facts that hold by name.
func TestTheTextNamesTheFactsThatHold(t *testing.T) {
	op := operation.Operation{
		ID: "op-1", Type: fleet.Reboot, Phase: operation.Running, WaitReason: operation.WaitResult,
		Steps: []operation.Step{{Name: "reboot", Kind: kind.Reboot, State: operation.StepRunning}},
	}
	c := operation.Command{
		ID: "c-1", Kind: kind.Reboot, State: operation.Granted, ExecutorID: "a-host", ExecutorRole: "host",
		Deadline: t0.Add(time.Minute), BootIDBefore: "boot-1",
	}
	w := operation.World{
		TargetAgentID: "a-host", TargetBootID: "boot-2", Provider: fleet.AgentProvider,
		Candidates: []fleet.Candidate{{AgentID: "a-host", Role: "host", Live: true, BootID: "boot-2"}},
	}
	const want = `RUNNING, step 0 reboot RUNNING, WAITING_FOR_RESULT, command c-1 reboot GRANTED of host a-host, ` +
		`boots same, arrived "boot-2", strayed "", host a-host boot boot-2 live true, granted, of the step, ` +
		`assignment served, at 2026-03-01T12:00:00Z`
	if got := situation.Look(&op, &c, &w, t0).String(); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}
