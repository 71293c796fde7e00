package action_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/action"
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/sim"
)

// each returns a command of every action of the protocol, in its order.
func each() (out []*fleetv1.CommandSpec) {
	fields := (&fleetv1.CommandSpec{}).ProtoReflect().Descriptor().Oneofs().ByName("action").Fields()
	for i := range fields.Len() {
		spec := &fleetv1.CommandSpec{}
		spec.ProtoReflect().Mutable(fields.Get(i))
		out = append(out, spec)
	}
	return out
}

// TestEachActionIsDeclaredOnce walks CommandSpec.action.
func TestEachActionIsDeclaredOnce(t *testing.T) {
	t.Parallel()
	commands := each()
	if len(commands) < 15 {
		t.Fatalf("the protocol has %d actions", len(commands))
	}
	declared := map[string]int{}
	for _, a := range action.All() {
		declared[string(a.Action)]++
	}
	for _, spec := range commands {
		name := string(executor.ActionOf(spec))
		if declared[name] != 1 {
			t.Errorf("action %s has %d declarations", name, declared[name])
		}
		delete(declared, name)
	}
	for name := range declared {
		t.Errorf("CommandSpec.action has no field %q", name)
	}
}

// TestEachExecutorDeclaresItsAction holds that each package below agent/executor has a declaration, that each
// declaration is listed, and that the tests of package executortest run on it.
func TestEachExecutorDeclaresItsAction(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir("../executor")
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for _, e := range entries {
		if !e.IsDir() || e.Name() == "executortest" {
			continue
		}
		declared, tested := declarations(t, filepath.Join("../executor", e.Name()))
		if len(declared) == 0 {
			t.Errorf("%s declares no action", e.Name())
		}
		for name := range declared {
			if !tested[name] {
				t.Errorf("no test of %s calls executortest.Run with its %s", e.Name(), name)
			}
		}
		all += len(declared)
	}
	if all != len(action.All()) {
		t.Errorf("the executors declare %d actions, and %d are listed", all, len(action.All()))
	}
}

// declarations returns the names of a folder's variables of type executor.Declaration, and of those with which its
// tests call executortest.Run.
func declarations(t *testing.T, dir string) (declared, tested map[string]bool) {
	t.Helper()
	declared, tested = map[string]bool{}, map[string]bool{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(node ast.Node) bool {
			switch x := node.(type) {
			case *ast.ValueSpec:
				if len(x.Values) == 1 && isDeclaration(x.Values[0]) {
					declared[x.Names[0].Name] = true
				}
			case *ast.CallExpr:
				s, ok := x.Fun.(*ast.SelectorExpr)
				if ok && s.Sel.Name == "Run" && isName(s.X, "executortest") && len(x.Args) == 3 {
					tested[nameOf(x.Args[1])] = true
				}
			}
			return true
		})
	}
	return declared, tested
}

func isDeclaration(e ast.Expr) bool {
	lit, ok := e.(*ast.CompositeLit)
	return ok && nameOf(lit.Type) == "Declaration"
}

func isName(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// nameOf returns the name of a variable, with its package or without.
func nameOf(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

// TestWhatIsNotDeclaredDestroys holds that an action of a newer version needs a grant and has no executor.
func TestWhatIsNotDeclaredDestroys(t *testing.T) {
	t.Parallel()
	spec := &fleetv1.CommandSpec{}
	if got := action.HarmOf(spec); got != executor.Destroys || !got.NeedsGrant() {
		t.Errorf("harm %d", got)
	}
	agent := action.Agent{Own: action.Machine{Host: host.New(host.Config{Root: t.TempDir()})}, Site: &action.Site{}}
	if e, refused := action.Own(&agent, spec); e != nil || refused == nil {
		t.Errorf("executor %T", e)
	}
	if e := action.OfSite(&agent, spec); e != nil {
		t.Errorf("executor %T of a site", e)
	}
}

// TestWhoHasWhichExecutor holds which agents carry out which action, by the type of the executor: a host agent, one in
// the installer, one of a simulated machine, a site agent for a machine behind a provider and for its site.
func TestWhoHasWhichExecutor(t *testing.T) {
	t.Parallel()
	world, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	metal := action.Machine{ID: "m", Host: host.New(host.Config{Root: t.TempDir()})}
	simulated := action.Machine{ID: "m", Host: world.Machine("m"), Simulated: true}
	own := func(a action.Agent) func(*fleetv1.CommandSpec) string {
		return func(spec *fleetv1.CommandSpec) string { return kindOf(action.Own(&a, spec)) }
	}
	reached := func(spec *fleetv1.CommandSpec) string {
		return kindOf(action.Reached(&action.Agent{Site: &action.Site{}}, simulated, spec))
	}
	site := func(a action.Agent) func(*fleetv1.CommandSpec) string {
		return func(spec *fleetv1.CommandSpec) string { return kindOf(action.OfSite(&a, spec), nil) }
	}
	ways := []func(*fleetv1.CommandSpec) string{
		own(action.Agent{Own: metal}), own(action.Agent{Own: metal, Installer: true}), own(action.Agent{Own: simulated}),
		reached, site(action.Agent{Site: &action.Site{}}), site(action.Agent{}),
	}
	want := map[string]string{
		"reboot":          "reboot.Executor reboot.Executor reboot.Executor reboot.Executor - -",
		"netboot":         "netboot.Executor netboot.Executor netboot.Executor netboot.Executor - -",
		"reconfig":        "reconfig.Executor reconfig.Executor reconfig.Executor reconfig.Executor - -",
		"repave":          "repave.Executor repave.Disk repave.Executor repave.Executor - -",
		"power":           "power.Executor power.Executor power.Executor power.Executor - -",
		"installer":       "kexec.Executor kexec.Executor - - - -",
		"erase":           "- erase.Executor erase.Executor - - -",
		"script":          "- - - - script.Executor -",
		"cluster":         "- - - - cluster.Executor -",
		"join":            "join.Executor - - - - -",
		"provider_action": "- - - - provideraction.Executor -",
		"preflight":       "- repave.Preflight - - - -",
		"reset_devices":   "resetdevices.Executor resetdevices.Executor resetdevices.Executor - - -",
		"bmc_password":    "- - - - bmcpassword.Executor -",
		"test_hardware":   "testhardware.Executor testhardware.Executor testhardware.Executor - - -",
	}
	for _, spec := range each() {
		var got []string
		for _, way := range ways {
			got = append(got, way(spec))
		}
		name := string(executor.ActionOf(spec))
		line := strings.Join(got, " ")
		if want[name] != "" && line != want[name] {
			t.Errorf("%s: %s, want %s", name, line, want[name])
		}
		if strings.Trim(line, "- ") == "" {
			t.Errorf("no agent has an executor of %s", name)
		}
	}
}

func kindOf(e executor.Executor, _ *executor.Result) string {
	if e == nil {
		return "-"
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", e), "*")
}
