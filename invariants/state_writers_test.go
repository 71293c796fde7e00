package invariants

import (
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The file of the statements that the apply function uses, and what only they may write.
const applyFile = "apply.sql"

var applyOnlyTables = []string{"operations", "operation_steps", "commands", "operation_events"}

// applyOnlyColumns are the columns of machines that record the current work.
var applyOnlyColumns = regexp.MustCompile(`(?i)\b(phase|current_operation_id|unresolved_command_id)\s*=`)

var sqlWrite = regexp.MustCompile(
	`(?is)\b(?:INSERT\s+INTO|UPDATE(?:\s+ONLY)?|DELETE\s+FROM|TRUNCATE(?:\s+TABLE)?|MERGE\s+INTO)\s+([a-z_]+)`)

// Decide is pure and Apply stores its answer guarded by the operation's version: a second writer would break both.
func TestOnlyApplyWritesOperationState(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "controller/store/queries", "*.sql"))
	if err != nil || len(files) < 3 {
		t.Fatalf("found %d query files (%v)", len(files), err)
	}
	applied := map[string]bool{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("read queries: %v", err)
		}
		for _, statement := range statements(string(text)) {
			if filepath.Base(path) == applyFile {
				applied[writtenTable(statement)] = true
			} else if why := writesState(statement); why != "" {
				t.Errorf("%s: %s outside %s: %.60s…", relative(path), why, applyFile, strings.Join(strings.Fields(statement), " "))
			}
		}
	}
	for _, table := range applyOnlyTables {
		if !applied[table] {
			t.Errorf("%s does not write %s: does this test still look at the right file?", applyFile, table)
		}
	}
}

// TestApplyRowsHaveOneWriter holds that one file of the store gathers the rows that write the state of operations, and
// that no other code calls their queries.
func TestApplyRowsHaveOneWriter(t *testing.T) {
	writers := map[string]bool{}
	for _, f := range handWritten(t) {
		if !within(f.dir, "controller") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if s, ok := n.Lhs[0].(*ast.SelectorExpr); ok && within(f.dir, "controller/store") &&
					slices.Contains([]string{"OperationUpdates", "StepUpdates", "CommandUpdates"}, s.Sel.Name) {
					writers[f.path] = true
				}
			case *ast.CallExpr:
				if s, ok := n.Fun.(*ast.SelectorExpr); ok &&
					slices.Contains([]string{"UpdateOperation", "UpdateStep", "UpdateCommand", "InsertCommand"}, s.Sel.Name) {
					t.Errorf("%s calls %s", f.path, s.Sel.Name)
				}
			}
			return true
		})
	}
	if len(writers) != 1 {
		t.Errorf("operation state is written in %d files %v, want one", len(writers), slices.Sorted(maps.Keys(writers)))
	}
}

func statements(sql string) []string {
	return strings.Split(sqlComment.ReplaceAllString(sql, ""), ";")
}

func writtenTable(statement string) string {
	if m := sqlWrite.FindStringSubmatch(statement); m != nil {
		return strings.ToLower(m[1])
	}
	return ""
}

func writesState(statement string) string {
	for _, m := range sqlWrite.FindAllStringSubmatchIndex(statement, -1) {
		table := strings.ToLower(statement[m[2]:m[3]])
		if slices.Contains(applyOnlyTables, table) {
			return "writes " + table
		}
		set, _, _ := strings.Cut(statement[m[3]:], "WHERE")
		if table == "machines" && applyOnlyColumns.MatchString(set) {
			return "writes what is under way on a machine"
		}
	}
	return ""
}

func TestWritesState(t *testing.T) {
	for statement, want := range map[string]bool{
		"UPDATE operations SET phase = 'FAILED'":                                              true,
		"update commands set state = 'DONE'":                                                  true,
		"WITH x AS (SELECT 1) INSERT INTO operation_steps SELECT 1":                           true,
		"UPDATE machines SET phase = 'READY' WHERE machine_id = $1":                           true,
		"UPDATE machines SET labels = $1 WHERE phase = 'READY'":                               false,
		"SELECT * FROM operations WHERE phase = 'FAILED' FOR UPDATE":                          false,
		"INSERT INTO operation_logs (operation_id) VALUES ($1)":                               false,
		"INSERT INTO machines (machine_id, phase) VALUES ($1, 'FACTORY_READY')":               false,
		"UPDATE machines SET node_state = 'deleted', deleted_at = now() WHERE machine_id= $1": false,
	} {
		if got := writesState(statement) != ""; got != want {
			t.Errorf("writesState(%q) = %t, want %t", statement, got, want)
		}
	}
}

// timeNames are the parts of package time with which a program writes or reads times its own way.
var timeNames = []string{
	"Local",
	"Parse",
	"ParseInLocation",
	"LoadLocation",
	"Layout",
	"ANSIC",
	"UnixDate",
	"RFC822",
	"RFC822Z",
	"RFC850",
	"RFC1123",
	"RFC1123Z",
	"RFC3339",
	"RFC3339Nano",
	"Kitchen",
	"Stamp",
	"StampMilli",
	"DateTime",
	"DateOnly",
	"TimeOnly",
}

// TestOneFileFormatsTimes: every time that ingot prints or reads goes through cli/times/times.go, so that an output has
// one zone.
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
			case f.path == "cli/times/times.go":
				seen++
			default:
				t.Errorf("%s uses %s: call Time, Clock, Stamp or ParseTime of cli/times", f.path, problem)
			}
			return true
		})
	}
	if seen < 4 {
		t.Errorf("cli/times/times.go has %d uses of package time: does this test still look at the right file?", seen)
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

// fieldWrite matches a statement that writes what rights, budgets and identity levels read of a machine.
var fieldWrite = regexp.MustCompile(`(?is)INSERT\s+INTO\s+(machines|machine_macs)\b|DELETE\s+FROM\s+machine_macs\b` +
	`|UPDATE\s+machines\b.*\b(labels|spec)\s*=`)

// fieldWriters are the generated functions of such statements, with the places that may call them. InsertMachine and
// SetFields of the machine store decide who may; bury takes a record out of the inventory.
var fieldWriters = map[string][]string{
	"InsertMachine":     {"controller/store/machine/machines.go"},
	"UpdateMachineSpec": {"controller/store/machine/machines.go"},
	"InsertMachineMacs": {"controller/store/machine/macs.go"},
	"DeleteMachineMacs": {"controller/store/machine/macs.go", "controller/store/nodestate/move.go"},
}

// A second writer of a machine's fields would forget to ask who may write them.
func TestFieldsOfMachinesHaveOneWriter(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "controller/store/queries", "*.sql"))
	if err != nil || len(files) < 3 {
		t.Fatalf("found %d query files (%v)", len(files), err)
	}
	found := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, query := range strings.Split(string(text), "-- name: ")[1:] {
			name := strings.Fields(query)[0]
			if !fieldWrite.MatchString(query) {
				continue
			}
			found++
			if fieldWriters[name] == nil {
				t.Errorf("%s: %s writes fields of machines: use SetFields of the machine store", relative(path), name)
			}
		}
	}
	if found != len(fieldWriters) {
		t.Errorf("%d statements write fields, want %d", found, len(fieldWriters))
	}
	for name, allowed := range fieldWriters {
		for _, f := range handWritten(t) {
			if slices.Contains(allowed, f.path) {
				continue
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == name && isQueries(s.X) {
					t.Errorf("%s calls %s: use SetFields of the machine store", position(n), name)
				}
				return true
			})
		}
	}
}

// isQueries reports whether an expression has the names that generated queries have in this tree: q, or a field Q.
func isQueries(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "q"
	case *ast.SelectorExpr:
		return x.Sel.Name == "Q"
	}
	return false
}
