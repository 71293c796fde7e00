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

// applyOnlyColumns are the columns of machines that say what is under way.
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

// The queries of apply.sql that write state are called in one file of the store.
func TestApplyQueriesHaveOneCaller(t *testing.T) {
	callers := map[string]bool{}
	for _, f := range handWritten(t) {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if s, ok := call.Fun.(*ast.SelectorExpr); ok && within(f.dir, "controller") &&
				slices.Contains([]string{"UpdateOperation", "UpdateStep", "UpdateCommand", "InsertCommand"}, s.Sel.Name) {
				callers[f.path] = true
			}
			return true
		})
	}
	if len(callers) != 1 {
		t.Errorf("operation state is written in %d files %v, want one", len(callers), slices.Sorted(maps.Keys(callers)))
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

// heartbeatCompared finds a comparison of the last heartbeat with a time.
var heartbeatCompared = regexp.MustCompile(
	`(?i)last_heartbeat_at\s*(?:<|>|between)|(?:<|>|<=|>=)\s*(?:\w+\.)?last_heartbeat_at`)

// heartbeatQueries may compare heartbeats: none of them takes an old one alone for silence.
var heartbeatQueries = map[string]string{
	"ReachableOfSlice":    "a new heartbeat proves that an agent speaks; silence is read from silent_from",
	"HostsSilentLately":   "a range for the index, beside silent_from",
	"HostsSpeakingLately": "a new heartbeat proves that an agent speaks",
	"FlushHeartbeats":     "the newer of two heartbeats is kept",
	"AgentsNotSeenSince":  "a count that is shown as such, beside sessions that are open",
	"AgentsAwaited":       "which agents have not come back, as a number",
}

// heardInGo are names of the time at which an agent was last heard.
var heardInGo = []string{"LastSeen", "LastHeartbeatAt", "LastBeat", "GetLastHeartbeatAt"}

// heardFunctions may compare such a time.
var heardFunctions = map[string]string{
	"SilentFrom":    "the mechanism itself",
	"newer":         "two heartbeats",
	"Host":          "two heartbeats",
	"heartbeats":    "beside the time since which this controller listens",
	"strayed":       "a heartbeat after the grant proves that the agent lives",
	"StrangerSince": "a request of a machine without an agent",
}

// Silence counts only while controllers listened: the view agent_silence and Candidate.SilentFrom know that, a heartbeat
// alone does not.
func TestNoHeartbeatAloneIsSilence(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "controller/store/queries", "*.sql"))
	if err != nil || len(files) < 3 {
		t.Fatalf("found %d query files (%v)", len(files), err)
	}
	unused := maps.Clone(heartbeatQueries)
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, query := range strings.Split(string(text), "-- name: ")[1:] {
			name, _, _ := strings.Cut(query, " ")
			if !heartbeatCompared.MatchString(sqlComment.ReplaceAllString(query, "")) {
				continue
			}
			if heartbeatQueries[name] == "" {
				t.Errorf("%s: %s compares last_heartbeat_at with a time; read agent_silence.silent_from", relative(path), name)
			}
			delete(unused, name)
		}
	}
	for name := range unused {
		t.Errorf("%s compares no heartbeat: its exception can go", name)
	}
}

func TestNoTimeOfAHeartbeatIsComparedInGo(t *testing.T) {
	unused := maps.Clone(heardFunctions)
	for _, f := range handWritten(t) {
		if !within(f.dir, "controller") || strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		for _, declared := range f.syntax.Decls {
			fn, ok := declared.(*ast.FuncDecl)
			if !ok || !comparesHeard(fn) {
				continue
			}
			if heardFunctions[fn.Name.Name] == "" {
				t.Errorf("%s: %s compares when an agent was last heard; use SilentFrom and Silence", f.path, fn.Name.Name)
			}
			delete(unused, fn.Name.Name)
		}
	}
	for name := range unused {
		t.Errorf("%s compares no heartbeat: its exception can go", name)
	}
}

// comparesHeard reports whether a function compares the time of a heartbeat, or subtracts it.
func comparesHeard(fn *ast.FuncDecl) (found bool) {
	ast.Inspect(fn, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains([]string{"Before", "After", "Sub", "Compare", "Since", "Until"}, method.Sel.Name) {
			return true
		}
		for _, operand := range append([]ast.Expr{method.X}, call.Args...) {
			ast.Inspect(operand, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				found = found || ok && slices.Contains(heardInGo, s.Sel.Name)
				return true
			})
		}
		return true
	})
	return found
}
