package invariants

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/testkit/document"
)

const (
	// mostWalkFiles bounds the files that somebody must read to follow an operation from its call to its evidence.
	mostWalkFiles = 20
	// mostWalkTransactions bounds a reboot's transactions: created, sent, granted, ended.
	mostWalkTransactions = 4
)

// stop is one place on the way of an operation.
type stop struct {
	file string
	// function is its name, with the type of its receiver before it: Engine.Start.
	function string
	// commits says what a transaction of the controller makes durable here; empty for none.
	commits string
}

var walks = []struct {
	title, about string
	stops        []stop
}{
	{"A reboot", "A machine with an agent of its own is asked to reboot.", []stop{
		{"controller/api/public/machine/start.go", "Server.RebootMachine", ""},
		{"controller/engine/engine.go", "Engine.Start", ""},
		{"controller/store/operation/create.go", "Store.Start", "operation, steps and River's job"},
		{"controller/engine/jobs.go", "operationWorker.Work", ""},
		{"controller/domain/operation/decider/advance.go", "decider.advance", ""},
		{"controller/store/operation/set.go", "Store.storeSet", "command SENT"},
		{"controller/engine/engine.go", "Engine.SendCommand", ""},
		{"agent/dispatch/receive.go", "Dispatcher.receive", ""},
		{"agent/dispatch/grant.go", "Dispatcher.acquireGrant", ""},
		{"controller/engine/agents.go", "Engine.Take", "command GRANTED"},
		{"controller/domain/operation/decider/decide.go", "decider.grantAsked", ""},
		{"agent/dispatch/run.go", "Dispatcher.start", ""},
		{"agent/executor/reboot/reboot.go", "Executor.Execute", ""},
		{"agent/executor/reboot/reboot.go", "Executor.Resume", ""},
		{"agent/dispatch/results.go", "Dispatcher.finish", ""},
		{"controller/engine/agents.go", "Engine.beginResult", ""},
		{"controller/domain/operation/decider/result.go", "decider.resulted", "operation SUCCEEDED with its evidence"},
	}},
}

// TestReferenceWalks writes the walks from the comments of the functions that an operation passes through.
func TestReferenceWalks(t *testing.T) {
	said := functionComments(t)
	var b strings.Builder
	b.WriteString("The way of an operation through the code, function by function, in the words of their comments. A test " +
		"holds that each\nis where this page says.\n")
	for _, w := range walks {
		files, commits := map[string]bool{}, 0
		var list strings.Builder
		for i, s := range w.stops {
			text, ok := said[s.file+" "+s.function]
			if !ok {
				t.Errorf("%s: %s has no function %s with a comment", w.title, s.file, s.function)
			}
			files[s.file] = true
			fmt.Fprintf(&list, "%d. [%s](../../%s): %s", i+1, s.function, s.file, text)
			if s.commits != "" {
				commits++
				fmt.Fprintf(&list, " **Transaction %d: %s.**", commits, s.commits)
			}
			list.WriteString("\n")
		}
		if len(files) > mostWalkFiles {
			t.Errorf("%s goes through %d files, more than %d: %v", w.title, len(files), mostWalkFiles,
				slices.Sorted(maps.Keys(files)))
		}
		if commits > mostWalkTransactions {
			t.Errorf("%s takes %d transactions, more than %d", w.title, commits, mostWalkTransactions)
		}
		fmt.Fprintf(&b, "\n## %s in %d files\n\n%s\n\n%s", w.title, len(files), w.about, list.String())
	}
	document.Check(t, "walks.md", "Walks through the code", b.String())
}

// functionComments are the first sentences of the comments of functions, by "file name".
func functionComments(t *testing.T) map[string]string {
	t.Helper()
	said := map[string]string{}
	for _, f := range handWritten(t) {
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Doc == nil {
				continue
			}
			name := fn.Name.Name
			if fn.Recv != nil {
				name = receiverOf(fn.Recv.List[0].Type) + "." + name
			}
			text := strings.Join(strings.Fields(fn.Doc.Text()), " ")
			if i := strings.Index(text, ". "); i > 0 {
				text = text[:i+1]
			}
			said[f.path+" "+name] = text
		}
	}
	return said
}

// receiverOf is the name of a receiver's type.
func receiverOf(e ast.Expr) string {
	if star, ok := e.(*ast.StarExpr); ok {
		e = star.X
	}
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}
