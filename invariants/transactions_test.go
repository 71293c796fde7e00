package invariants

import (
	"go/ast"
	"maps"
	"slices"
	"testing"
)

// begunElsewhere are the files of the controller that begin transactions by the driver's own functions, with the reason
// why none of them needs the outcome of a lost COMMIT. All others go through controller/store/pgtx, which reads it.
var begunElsewhere = map[string]string{
	"controller/store/explain/explain.go":   "reads only",
	"controller/store/site/site.go":         "reads only",
	"controller/store/timeline/timeline.go": "reads only",
	"controller/store/workflow/offers.go":   "is always rolled back",
	"controller/store/schema/migrate.go":    "goes on from the version that is stored",
}

func TestTransactionsAreBegunInOnePlace(t *testing.T) {
	found := map[string]bool{}
	for _, f := range handWritten(t) {
		if !within(f.dir, "controller") || within(f.dir, "controller/store/pgtx") ||
			within(f.dir, "controller/store/storetest") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if isSelector(n, "pgx", "BeginFunc") || isSelector(n, "pgx", "BeginTxFunc") || begins(n) {
				found[f.path] = true
				if begunElsewhere[f.path] == "" {
					t.Errorf("%s: a transaction outside controller/store/pgtx: an error of its COMMIT does not mean that nothing "+
						"is stored", position(n))
				}
			}
			return true
		})
	}
	for _, path := range slices.Sorted(maps.Keys(begunElsewhere)) {
		if !found[path] {
			t.Errorf("%s begins no transaction any more", path)
		}
	}
}

// begins reports whether a node is a call such as db.Pool().Begin(ctx).
func begins(n ast.Node) bool {
	s, ok := n.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Begin" && s.Sel.Name != "BeginTx" {
		return false
	}
	call, ok := s.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	of, ok := call.Fun.(*ast.SelectorExpr)
	return ok && of.Sel.Name == "Pool"
}
