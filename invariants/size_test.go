package invariants

import (
	"go/ast"
	"go/importer"
	"go/types"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	// mostLines is how many lines the hand-written Go files of a package may have in all, tests not counted.
	mostLines = 3000
	// mostFiles is how many files may lie directly in a folder, tests counted.
	mostFiles = 30
)

// TestPackagesAndFoldersAreSmall holds that a package can be read and that a list of files can be seen at once.
func TestPackagesAndFoldersAreSmall(t *testing.T) {
	for dir, n := range packageLines(t) {
		if n > mostLines {
			t.Errorf("%s has %d lines, and a package has at most %d: cut it along what it is about", dir, n, mostLines)
		}
	}
	for dir, n := range folderFiles(t) {
		if n > mostFiles {
			t.Errorf("%s has %d files, and a folder has at most %d: cut it along what it is about", dir, n, mostFiles)
		}
	}
}

// packageLines counts the lines, as wc -l does, of each folder's hand-written Go files, without those of tests.
func packageLines(t *testing.T) map[string]int {
	t.Helper()
	lines := map[string]int{}
	for _, f := range handWritten(t) {
		lines[f.dir] += fset.File(f.syntax.Pos()).LineCount()
	}
	return lines
}

// folderFiles counts the files of each folder. Migrations, published protocols and fuzz inputs only ever grow.
func folderFiles(t *testing.T) map[string]int {
	t.Helper()
	files := map[string]int{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := relative(p)
		if d.IsDir() {
			if p != root && strings.HasPrefix(d.Name(), ".") || rel == "bin" || rel == "dist" || rel == "migrations" ||
				rel == "api" || d.Name() == "node_modules" || strings.HasSuffix(rel, "/testdata/fuzz") {
				return fs.SkipDir
			}
			return nil
		}
		files[path.Dir(rel)]++
		return nil
	})
	if err != nil {
		t.Fatalf("walk the tree: %v", err)
	}
	return files
}

// mostMethods is how many methods the method set of a type may have.
const mostMethods = 40

// largeMethodSets are the types with more than mostMethods methods: how many, and why they stay. The numbers may only
// fall.
var largeMethodSets = map[string]struct {
	methods int
	why     string
}{
	"agent/dispatch.Dispatcher": {
		61,
		"one lock and one table of jobs, from a command's receipt to its acknowledged result; parts would share both",
	},
	"agent/host.Linux": {
		137,
		"the sum of seven parts by embedding, each with a type and tests of its own; executors see their small interfaces",
	},
	"agent/host/sim.Host": {44, "the same interfaces over a simulated machine"},
	"agent/provider/bmc.Provider": {
		58,
		"the provider's interfaces, each method of which opens one connection and judges its end",
	},
	"agent/provider/maas/maastest.Region": {57, "a handler for each request of MAAS's API that a machine's life makes"},
	"agent/provider/redfish.Client": {
		43,
		"the calls of one connection, which share its login, its system and its entity tags",
	},
	"agent/state.Begun": {
		44,
		"the agent's memory by embedding, and the mark of a started command beside it",
	},
	"cli/admin.commands": {95, "a method for each command"},
	"cli/command.App": {
		86,
		"what every command may use of a terminal, a configuration and a connection",
	},
	"cli/inventory.commands": {69, "a method for each command"},
	"cli/view.Style":         {96, "a method for each kind of thing that is printed"},
	"cli/work.commands":      {55, "a method for each command"},
	"controller/domain/explain/rules.scene": {
		189,
		"a method for each fact that a rule may ask, and for each rule; the order of rules is in one table",
	},
	"controller/store/operation.Store": {
		42,
		"two over: the ways to begin, decide and end an operation, in one transaction's care",
	},
	"lab/bench/agents.bench":        {54, "a method for each measurement"},
	"lab/bench/scale.bench":         {43, "a method for each measurement"},
	"lab/bmc.Redfish":               {63, "a handler for each resource of a BMC"},
	"lab/chaos/trial.agentProgram":  {41, "one over: a method for each fault that an agent's process can have"},
	"lab/harness.Cluster":           {50, "a client by embedding, and what a test may do to a controller"},
	"lab/harness.ControllerProcess": {54, "a client by embedding, and what a test may do to a process"},
	"lab/metal.Machine":             {42, "a chassis by embedding, and its two BMCs"},
	"lab/mutants.finder":            {42, "a method for each form of code that can be changed"},
}

// TestMethodSetsAreSmall holds that an object has one purpose: no type has more than mostMethods methods. Embedded ones
// count; those in generated files do not, nor those of a generated server interface that the type implements.
func TestMethodSetsAreSmall(t *testing.T) {
	// These are the flags with which this test itself is built: the compiler's cache has the packages.
	packages := goList(t, "-export", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace",
		"-json=ImportPath,GoFiles,Export,Module")
	counted := map[string]int{}
	check := newMethodCounter(t, packages)
	for _, pkg := range packages {
		if pkg.Module == nil || !pkg.Module.Main {
			continue
		}
		for name, n := range check.countAll(pkg) {
			if n > mostMethods {
				counted[name] = n
			}
		}
	}
	for name, n := range counted {
		if most := max(largeMethodSets[name].methods, mostMethods); n > most {
			t.Errorf("%s has %d methods, and may have %d: move what belongs together to a type of its own", name, n, most)
		}
	}
	for name, l := range largeMethodSets {
		if counted[name] < l.methods || l.why == "" {
			t.Errorf("%s has %d methods, and the list has %d, with the reason %q: lower it, or remove it below %d", name,
				counted[name], l.methods, l.why, mostMethods+1)
		}
	}
}

// methodCounter checks the types of packages: their sources against the export data of what they import.
type methodCounter struct {
	t         *testing.T
	files     map[string][]sourceFile // hand-written and generated, by directory
	generated map[string]bool         // by path
	imports   types.Importer
	servers   []*types.Interface // generated from services
}

func newMethodCounter(t *testing.T, packages map[string]listedPackage) *methodCounter {
	t.Helper()
	m := &methodCounter{t: t, files: map[string][]sourceFile{}, generated: map[string]bool{}}
	for _, f := range goFiles(t) {
		if !f.test {
			m.files[f.dir] = append(m.files[f.dir], f)
			m.generated[f.path] = f.generated
		}
	}
	m.imports = importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(packages[path].Export)
	})
	for path := range packages {
		if within(short(path), "api") {
			m.servers = append(m.servers, m.serversOf(path)...)
		}
	}
	return m
}

// serversOf returns the interfaces that a package of generated code has for servers.
func (m *methodCounter) serversOf(path string) (out []*types.Interface) {
	m.t.Helper()
	pkg, err := m.imports.Import(path)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, name := range pkg.Scope().Names() {
		if server, ok := pkg.Scope().Lookup(name).Type().Underlying().(*types.Interface); ok &&
			strings.HasSuffix(name, "Server") {
			out = append(out, server)
		}
	}
	return out
}

// countAll returns the number of counted methods for each type of a package, by its path and name.
func (m *methodCounter) countAll(listed listedPackage) map[string]int {
	m.t.Helper()
	dir := short(listed.ImportPath)
	var syntax []*ast.File
	for _, f := range m.files[dir] {
		if slices.Contains(listed.GoFiles, path.Base(f.path)) {
			syntax = append(syntax, f.syntax)
		}
	}
	cfg := types.Config{Importer: m.imports, IgnoreFuncBodies: true, FakeImportC: true}
	pkg, err := cfg.Check(listed.ImportPath, fset, syntax, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	out := map[string]int{}
	for _, name := range pkg.Scope().Names() {
		if declared, ok := pkg.Scope().Lookup(name).(*types.TypeName); ok && !declared.IsAlias() {
			out[dir+"."+name] = m.count(declared.Type())
		}
	}
	return out
}

// count returns the number of methods of a type and of pointers to it, without generated ones and those of servers.
func (m *methodCounter) count(typ types.Type) int {
	if !types.IsInterface(typ) {
		typ = types.NewPointer(typ)
	}
	served := map[string]bool{}
	for _, server := range m.servers {
		if types.Implements(typ, server) {
			for method := range server.Methods() {
				served[method.Name()] = true
			}
		}
	}
	n := 0
	for method := range types.NewMethodSet(typ).Methods() {
		// The compiler's export data has paths of the module, and sources have those from here.
		file := fset.Position(method.Obj().Pos()).Filename
		if !m.generated[short(file)] && !m.generated[relative(file)] && !served[method.Obj().Name()] {
			n++
		}
	}
	return n
}
