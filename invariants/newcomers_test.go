package invariants

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/testkit/document"
)

// fewStatements is the number of statements from which a file counts as one that a reader has to open.
const fewStatements = 5

// tracedWalk is what lab/walks measured of one operation.
type tracedWalk struct {
	Operation, Executor string
	Files               []struct {
		Path       string
		Statements int
	}
	Transactions float64
}

// stop is one place on the way of an operation.
type stop struct {
	file string
	// function is its name, with the type of its receiver before it: Engine.Start.
	function string
	// commits describes the data that a transaction of the controller makes durable here; empty for none.
	commits string
}

var walks = []struct {
	title, about string
	stops        []stop
}{
	{"A reboot", "A machine with an agent of its own is asked to reboot.", []stop{
		{"controller/api/public/machine/start.go", "Server.RebootMachine", ""},
		{"controller/engine/requests.go", "Requests.Start", ""},
		{"controller/store/operation/create.go", "Store.Start", ""},
		{"controller/store/operation/create.go", "Store.create", ""},
		{"controller/domain/start/admit.go", "Admit", ""},
		{"controller/store/operation/firstevaluation.go", "newOperation.evaluate", ""},
		{"controller/domain/operation/decider/advance.go", "advance", ""},
		{"controller/store/operation/set.go", "Store.storeSet", "operation, steps and command SENT, and River's job"},
		{"controller/engine/forward.go", "commandSender.send", ""},
		{"agent/dispatch/receive.go", "Dispatcher.receive", ""},
		{"agent/dispatch/grant.go", "Dispatcher.acquireGrant", ""},
		{"controller/engine/agents.go", "Agents.Take", "command GRANTED"},
		{"controller/domain/operation/decider/grant.go", "grantAsked", ""},
		{"agent/dispatch/run.go", "Dispatcher.start", ""},
		{"agent/executor/reboot/reboot.go", "Executor.Execute", ""},
		{"agent/executor/reboot/reboot.go", "Executor.Resume", ""},
		{"agent/dispatch/results.go", "Dispatcher.finish", ""},
		{"controller/engine/agents.go", "Agents.beginResult", ""},
		{"controller/domain/operation/decider/result.go", "resulted", "operation SUCCEEDED with its evidence"},
	}},
	{"A reimage",
		"A machine with a BMC gets another system. The commands on the way are created, sent and granted as a reboot's.",
		[]stop{
			{"controller/api/public/machine/start.go", "Server.ReimageMachine", ""},
			{"controller/domain/start/admit.go", "Admit", ""},
			{"controller/domain/start/install.go", "installable", ""},
			{"controller/domain/operation/decider/bootpath.go", "fromInstaller", ""},
			{"controller/domain/operation/decider/bootpath.go", "prepareBoot", ""},
			{"controller/store/operation/boot.go", "OperationContext.applyBoot", "what the machine boots"},
			{"agent/provider/bmc/bootdevice.go", "Provider.SetBootDevice", ""},
			{"agent/site/dhcp/handler.go", "handler.packet", ""},
			{"agent/site/httpboot/script.go", "bootScript", ""},
			{"agent/installer/enrol.go", "enroller.enrol", ""},
			{"controller/api/agent/installer.go", "Server.VouchInstaller", "certificate of the installer"},
			{"controller/domain/operation/decider/bootpath.go", "enteredInstaller", ""},
			{"controller/domain/operation/decider/preflight.go", "preflight", ""},
			{"agent/executor/repave/repave.go", "Executor.Execute", ""},
			{"agent/host/disks/image.go", "Storage.WriteImage", ""},
			{"agent/host/disks/customize.go", "Storage.customize", ""},
			{"agent/executor/repave/repave.go", "intent.judge", ""},
			{"controller/domain/operation/situation/boot.go", "Situation.Arrived", ""},
			{"controller/store/operation/nodefollow.go", "nodeFollows", "operation SUCCEEDED, node INSTALLED"},
		}},
}

// TestReferenceWalks writes the walks from the comments of the functions that an operation passes through, and from
// what was measured of it.
func TestReferenceWalks(t *testing.T) {
	said := functionComments(t)
	var b strings.Builder
	b.WriteString(
		"The way of an operation through the code: first its main stations, in the words of their comments, then " +
			"every file that\na measured run passed through. `make walks` measures again.\n",
	)
	for _, w := range walks {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", w.title, w.about)
		for i, s := range w.stops {
			text, ok := said[s.file+" "+s.function]
			if !ok {
				t.Errorf("%s: %s has no function %s with a comment", w.title, s.file, s.function)
			}
			fmt.Fprintf(&b, "%d. [%s](../../%s): %s", i+1, s.function, s.file, text)
			if s.commits != "" {
				fmt.Fprintf(&b, " **Committed: %s.**", s.commits)
			}
			b.WriteString("\n")
		}
	}
	for _, w := range tracedWalks(t) {
		writeTraced(t, &b, w)
	}
	document.Check(t, "walks.md", "Walks through the code", b.String())
}

func tracedWalks(t *testing.T) (out []tracedWalk) {
	t.Helper()
	if err := json.Unmarshal([]byte(readFile(t, "docs/reference/data/walks.json")), &out); err != nil || len(out) < 2 {
		t.Fatalf("docs/reference/data/walks.json has %d walks (%v)", len(out), err)
	}
	return out
}

// writeTraced lists the files of a measured operation. A file that is gone is left out; the next measurement corrects
// the count.
func writeTraced(t *testing.T, b *strings.Builder, w tracedWalk) {
	t.Helper()
	var rows [][]string
	few, there := 0, 0
	for _, f := range w.Files {
		if f.Statements < fewStatements {
			few++
			continue
		}
		there++
		if _, err := os.Stat(filepath.Join(root, f.Path)); err == nil {
			rows = append(rows, []string{fmt.Sprintf("[%s](../../%s)", f.Path, f.Path), fmt.Sprint(f.Statements)})
		}
	}
	if there < 20 {
		t.Errorf("%s by a %s: %d files were measured; the measurement is broken", w.Operation, w.Executor, there)
	}
	fmt.Fprintf(
		b,
		"\n## Measured: %s by a %s\n\n**%d files** with %d or more statements that an idle system does not execute, "+
			"and %d with fewer.\n%.1f transactions wrote.\n\n%s",
		w.Operation,
		w.Executor,
		there,
		fewStatements,
		few,
		w.Transactions,
		document.Table([]string{"file", "statements"}, rows),
	)
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

// TestContributingNamesWhatExists holds that the recipes name files and folders of the tree.
func TestContributingNamesWhatExists(t *testing.T) {
	path := regexp.MustCompile("`((?:[a-z0-9_.-]+/)+[A-Za-z0-9_.-]+)`")
	named := 0
	for _, m := range path.FindAllStringSubmatch(readFile(t, "CONTRIBUTING.md"), -1) {
		if strings.Contains(m[1], "KIND") || strings.Contains(m[1], "NAME") {
			continue
		}
		named++
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("CONTRIBUTING.md names %s, which is not in the tree", m[1])
		}
	}
	if named < 20 {
		t.Errorf("found %d paths: the pattern no longer fits the recipes", named)
	}
}

var makeTarget = regexp.MustCompile(`(?m)^([a-zA-Z0-9_-]+):([^=].*)?$`)

func TestMakeTargetsHaveHelp(t *testing.T) {
	text := readFile(t, "Makefile")
	targets := makeTarget.FindAllStringSubmatch(text, -1)
	if len(targets) < 10 {
		t.Fatalf("found %d targets in the Makefile: the pattern no longer fits it", len(targets))
	}
	for _, m := range targets {
		if !strings.Contains(m[0], " ## ") {
			t.Errorf("Makefile: target %s has no ## help", m[1])
		}
		if !strings.Contains(text, "\n.PHONY: "+m[1]+"\n") {
			t.Errorf("Makefile: target %s is not .PHONY", m[1])
		}
	}
}

func TestCIRunsTheTestCommandOfTheReadme(t *testing.T) {
	for _, path := range []string{".ci/run", "README.md"} {
		if !strings.Contains(readFile(t, path), "make test") {
			t.Errorf("%s does not call make test", path)
		}
	}
}
