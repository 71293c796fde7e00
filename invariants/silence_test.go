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

// heartbeatCompared finds a comparison of the last heartbeat with a time.
var heartbeatCompared = regexp.MustCompile(
	`(?i)last_heartbeat_at\s*(?:<|>|between)|(?:<|>|<=|>=)\s*(?:\w+\.)?last_heartbeat_at`)

// heartbeatQueries may compare heartbeats: none of them takes an old one alone for silence.
var heartbeatQueries = map[string]string{
	"ReachableOfSlice":    "a new heartbeat proves that an agent speaks; silence is read from silent_from",
	"HostsSilentLately":   "a range for the index, beside silent_from",
	"HostsSpeakingLately": "a new heartbeat proves that an agent speaks",
	"SitesToJudge":        "a new heartbeat proves that an agent speaks; silence is read from silent_from",
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
	"Strayed":       "a heartbeat after the grant proves that the agent lives",
	"whyUnknown":    "names when the executor was heard last, beside the end of its command",
	"StrangerSince": "a request of a machine without an agent",
}

// Silence counts only while controllers listened: the view agent_silence and Candidate.SilentFrom know that, a
// heartbeat alone does not.
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
