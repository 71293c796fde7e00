package invariants

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/action"
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/controller/domain/kind"
)

func TestEveryPackageHasAComment(t *testing.T) {
	documented := map[string]bool{}
	for _, f := range goFiles(t) {
		if f.test {
			continue
		}
		documented[f.dir] = documented[f.dir] || f.generated || opensWithPackage(f.syntax)
	}
	for _, dir := range slices.Sorted(maps.Keys(documented)) {
		if !documented[dir] {
			t.Errorf("%s: no package comment that starts with \"Package %s\" (or \"Command\" in a main package)", dir, dir)
		}
	}
}

// opensWithPackage reports whether the file carries the package's comment, in the form that go doc expects.
func opensWithPackage(f *ast.File) bool {
	if f.Doc == nil {
		return false
	}
	text := f.Doc.Text()
	if f.Name.Name == "main" {
		return len(text) > 20
	}
	return strings.HasPrefix(text, "Package "+f.Name.Name+" ")
}

// A goroutine without a waiter outlives shutdown, and a panic in it ends the process: internal/task has neither.
func TestGoStatementsOnlyInTask(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.test || f.generated || f.dir == "internal/task" {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s: go statement outside internal/task", position(g))
			}
			return true
		})
	}
}

func TestNoSleepInTests(t *testing.T) {
	for _, f := range goFiles(t) {
		if !f.test {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if isSelector(n, "time", "Sleep") {
				t.Errorf("%s: time.Sleep in a test: wait on a signal or a condition", position(n))
			}
			return true
		})
	}
}

func isSelector(n ast.Node, pkg, name string) bool {
	s, ok := n.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// sqlHomes may hold SQL: the two stores, the test helper that makes and drops databases, and what fills, ages and
// measures them in the lab.
var sqlHomes = []string{
	"controller/store",
	"agent/state",
	"internal/testkit",
	"lab/bench",
	"lab/walks",
	"lab/fill",
	"lab/harness",
	"lab/standby",
}

// looksLikeSQL matches statements as people write them, with capitals or at the start of a string.
var looksLikeSQL = regexp.MustCompile(`(?s)^\s*(` +
	`SELECT\s.+\sFROM\s|INSERT\s+INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s|(CREATE|ALTER|DROP)\s+(TABLE|INDEX|DATABASE|ROLE|SCHEMA)\s|` +
	`WITH\s+\w+\s+AS\s|TRUNCATE\s|LOCK\s+TABLE\s|LISTEN\s+\w|NOTIFY\s+\w|` +
	`select\s.+\sfrom\s|insert\s+into\s|update\s+\w+\s+set\s|delete\s+from\s|(create|alter|drop)\s+(table|index|database|role|schema)\s)`)

func TestSQLOnlyInTheStores(t *testing.T) {
	for _, f := range handWritten(t) {
		if slices.ContainsFunc(sqlHomes, func(home string) bool { return within(f.dir, home) }) {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && looksLikeSQL.MatchString(unquote(lit)) {
				t.Errorf("%s: SQL outside %s", position(lit), strings.Join(sqlHomes, ", "))
			}
			return true
		})
	}
}

func TestLooksLikeSQL(t *testing.T) {
	for text, want := range map[string]bool{
		"SELECT id FROM machines WHERE id = $1":       true,
		"\n\t\tINSERT INTO machines (id) VALUES ($1)": true,
		"update machines set phase = $1":              true,
		"DROP DATABASE x":                             true,
		"select a machine from the list":              true, // Better one sentence rewritten than one query missed.
		"update the machine":                          false,
		"delete the token":                            false,
		"create a table of transitions":               false,
	} {
		if got := looksLikeSQL.MatchString(text); got != want {
			t.Errorf("looksLikeSQL(%q) = %t, want %t", text, got, want)
		}
	}
}

// within reports whether a directory is the other or below it.
func within(dir, parent string) bool {
	return dir == parent || strings.HasPrefix(dir, parent+"/")
}

func unquote(lit *ast.BasicLit) string {
	return strings.Trim(lit.Value, "`\"")
}

// begunElsewhere are the files of the controller that begin transactions by the driver's own functions. Each has the
// reason why it needs no outcome of a lost COMMIT. All others go through controller/store/pgtx, which reads it.
var begunElsewhere = map[string]string{
	"controller/store/explain/explain.go": "reads only",
	"controller/store/site/site.go":       "reads only",
	"controller/store/timeline/verify.go": "reads only",
	"controller/store/workflow/offers.go": "is always rolled back",
	"controller/store/schema/migrate.go":  "goes on from the version that is stored",
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

// reader is the one place that reads a kind of thing: a second one, written beside it, is right in less than it is.
type reader struct {
	what string
	// calls and imports are of other people's code that reads it, texts are parts of paths and formats.
	calls, imports, texts []string
	// taken are parts of names: values with such names are not taken apart by package strings. functions are names.
	taken, functions *regexp.Regexp
	// homes and the packages below them may have them.
	homes []string
}

// readers: the laboratory plays the other side, and may read as it likes.
var readers = []reader{
	{what: "MAC addresses", calls: []string{"net.ParseMAC"}, homes: []string{"internal/hwid"}},
	{what: "CSV", imports: []string{"encoding/csv"}, homes: []string{"cli/table"}},
	{
		what:    "UUIDs",
		imports: []string{"github.com/google/uuid", "github.com/gofrs/uuid"},
		homes:   []string{"internal/hwid"},
	},
	{what: "texts of DMI", texts: []string{"class/dmi/id", "to be filled by", "03000200-0400"},
		homes: []string{"internal/hwid", "agent/inventory"}},
	{what: "disks in sysfs", texts: []string{"sys/block", "vpd_pg8"},
		homes: []string{"agent/disk", "agent/inventory"}},
	{what: "user-data", imports: []string{"net/mail"}, texts: []string{"#cloud-config-archive", "#cloud-boothook"},
		homes: []string{"internal/userdata", "controller/validate"}},
	{what: "names of machines", texts: []string{"^[a-z0-9][a-z0-9.-]{0,62}$"}, homes: []string{"internal/dnsname"}},
	{what: "superblocks", texts: []string{"_BHRfS_M", "XFSB"}, homes: []string{"agent/disk/firstboot"}},
	{what: "zstd streams", calls: []string{"zstd.NewReader"}, homes: []string{"internal/zstream"}},
	{
		what:  "times",
		calls: []string{"time.Parse", "time.ParseInLocation", "http.ParseTime"},
		taken: regexp.MustCompile(`(?i)retry-?after`),
		homes: []string{"internal/when"},
	},
	{
		what: "versions",
		imports: []string{
			"go/version",
			"golang.org/x/mod/semver",
			"github.com/blang/semver/v4",
			"github.com/Masterminds/semver/v3",
			"github.com/hashicorp/go-version",
			"k8s.io/apimachinery/pkg/util/version",
		},
		calls:     []string{"fmt.Sscanf"},
		taken:     regexp.MustCompile(`(^[vV]|[^iI]V)ersion$|osrelease$`),
		functions: regexp.MustCompile(`(?i)^(compare|parse|less|older|newer|sort)_?versions?$|version(less|cmp|compare)$`),
		homes:     []string{"internal/version"},
	},
}

func TestEachThingHasOneReader(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.test || f.generated || within(f.dir, "lab") {
			continue
		}
		for _, r := range readers {
			if slices.ContainsFunc(r.homes, func(home string) bool { return within(f.dir, home) }) {
				continue
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				if r.reads(n) {
					t.Errorf("%s: reads %s; so do %s: use that", position(n), r.what, strings.Join(r.homes, ", "))
				}
				return true
			})
		}
	}
}

func (r reader) reads(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec:
		return slices.Contains(r.imports, unquote(n.Path))
	case *ast.CallExpr:
		return r.takesApart(n) || slices.ContainsFunc(r.calls, func(call string) bool {
			pkg, name, _ := strings.Cut(call, ".")
			return isSelector(n.Fun, pkg, name)
		})
	case *ast.FuncDecl:
		return r.functions != nil && r.functions.MatchString(n.Name.Name)
	case *ast.BasicLit:
		return n.Kind == token.STRING && slices.ContainsFunc(r.texts, func(text string) bool {
			return strings.Contains(strings.ToLower(unquote(n)), strings.ToLower(text))
		})
	}
	return false
}

// takers take a text apart, or make a number of it.
var takers = []string{
	"strings.Split",
	"strings.SplitN",
	"strings.SplitSeq",
	"strings.Cut",
	"strings.Fields",
	"strings.FieldsFunc",
	"strconv.Atoi",
	"strconv.ParseInt",
	"strconv.ParseUint",
	"strconv.ParseFloat",
}

// takesApart reports whether a call takes apart a value of such a name, or a header of such a name.
func (r reader) takesApart(call *ast.CallExpr) (found bool) {
	if r.taken == nil || len(call.Args) == 0 || !slices.ContainsFunc(takers, func(taker string) bool {
		pkg, name, _ := strings.Cut(taker, ".")
		return isSelector(call.Fun, pkg, name)
	}) {
		return false
	}
	ast.Inspect(call.Args[0], func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			found = found || r.taken.MatchString(n.Name)
		case *ast.BasicLit:
			found = found || r.taken.MatchString(unquote(n))
		}
		return !found
	})
	return found
}

// TestSecondReadersAreSeen: the rule finds what it is for.
func TestSecondReadersAreSeen(t *testing.T) {
	lit := func(s string) ast.Node { return &ast.BasicLit{Kind: token.STRING, Value: `"` + s + `"`} }
	expr := func(text string) ast.Node {
		x, err := parser.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	seen := func(n ast.Node) bool { return slices.ContainsFunc(readers, func(r reader) bool { return r.reads(n) }) }
	for i, n := range []ast.Node{lit("/sys/block/sda/size"), lit("To Be Filled By O.E.M."),
		&ast.ImportSpec{Path: lit("encoding/csv").(*ast.BasicLit)}, expr("net.ParseMAC(x)"), expr("time.Parse(form, text)"),
		expr("http.ParseTime(text)"), expr(`strconv.Atoi(resp.Header.Get("Retry-After"))`), expr(`strings.SplitN(n.Version, ".", 3)`),
		expr(`strings.Split(strings.TrimPrefix(version, "v"), ".")`), expr(`fmt.Sscanf(read("proc/sys/kernel/osrelease"), "%d", &n)`),
		&ast.FuncDecl{Name: ast.NewIdent("compareVersions")}} {
		if !seen(n) {
			t.Errorf("%d: %T is not seen", i, n)
		}
	}
	for _, text := range []string{"version.Parse(text)", `strings.Cut(apiVersion, "/")`, "time.ParseDuration(s)", "strconv.Itoa(version)"} {
		if seen(expr(text)) {
			t.Errorf("%s is taken for a second reader", text)
		}
	}
}

// TestKindsAreDeclaredInOnePlace: code outside controller/domain/kind distinguishes no work by its kind, neither by
// cases, keys of maps nor comparisons. A declaration answers such a question in one place. The package that makes
// commands of steps is the wire's encoder, and may.
func TestKindsAreDeclaredInOnePlace(t *testing.T) {
	kinds := declaredKinds(t)
	for _, f := range goFiles(t) {
		if f.test || f.generated || f.dir == "controller/domain/kind" || f.dir == "controller/store/commandspec" {
			continue
		}
		if n := kindsAsked(f.syntax, kinds); n > 0 {
			t.Errorf("%s asks for a kind %d times; declare the answer in controller/domain/kind", f.path, n)
		}
	}
}

// declaredKinds returns the names of the constants of type Kind.
func declaredKinds(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, f := range goFiles(t) {
		if f.test || f.dir != "controller/domain/kind" {
			continue
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			if v, ok := node.(*ast.ValueSpec); ok {
				if id, ok := v.Type.(*ast.Ident); ok && id.Name == "Kind" {
					out[v.Names[0].Name] = true
				}
			}
			return true
		})
	}
	if len(out) < 20 {
		t.Fatalf("found the kinds %v", out)
	}
	return out
}

func kindsAsked(f *ast.File, kinds map[string]bool) (n int) {
	ast.Inspect(f, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.CaseClause:
			for _, e := range x.List {
				n += namesKind(e, kinds)
			}
		case *ast.KeyValueExpr:
			n += namesKind(x.Key, kinds)
		case *ast.BinaryExpr:
			if x.Op == token.EQL || x.Op == token.NEQ {
				n += namesKind(x.X, kinds) + namesKind(x.Y, kinds)
			}
		case *ast.CallExpr:
			if sel, ok := x.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Contains" {
				for _, e := range x.Args {
					n += namesKind(e, kinds)
				}
			}
		}
		return true
	})
	return n
}

// namesKind is 1 for a constant of package kind, and for its conversion to a string.
func namesKind(e ast.Expr, kinds map[string]bool) int {
	if call, ok := e.(*ast.CallExpr); ok && len(call.Args) == 1 {
		e = call.Args[0]
	}
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return 0
	}
	pkg, ok := s.X.(*ast.Ident)
	if !ok || pkg.Name != "kind" || pkg.Obj != nil || !kinds[s.Sel.Name] {
		return 0
	}
	return 1
}

// actionQuestions is how often code distinguishes commands by their action: by cases of a type switch, type assertions
// and, in the agent, comparisons of an action with nil. Declarations answer such questions. The number may only fall.
const actionQuestions = 5

// TestActionsAreDeclaredInOnePlace counts the questions.
func TestActionsAreDeclaredInOnePlace(t *testing.T) {
	all := map[string]int{}
	n := 0
	for _, f := range goFiles(t) {
		if f.test || f.generated {
			continue
		}
		if here := actionsAsked(f.syntax, within(f.dir, "agent")); here > 0 {
			all[f.dir] += here
			n += here
		}
	}
	if n != actionQuestions {
		t.Errorf("%d questions, and %d are written down: %v", n, actionQuestions, all)
	}
}

func actionsAsked(f *ast.File, inAgent bool) (n int) {
	ast.Inspect(f, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.CaseClause:
			for _, e := range x.List {
				n += namesAction(e)
			}
		case *ast.TypeAssertExpr:
			n += namesAction(x.Type)
		case *ast.BinaryExpr:
			if inAgent && (x.Op == token.EQL || x.Op == token.NEQ) && (readsAction(x.X) || readsAction(x.Y)) {
				n++
			}
		}
		return true
	})
	return n
}

// namesAction is 1 for the type of a CommandSpec's action.
func namesAction(e ast.Expr) int {
	star, ok := e.(*ast.StarExpr)
	if !ok {
		return 0
	}
	if s, ok := star.X.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "CommandSpec_") {
		return 1
	}
	return 0
}

// readsAction reports whether an expression is a getter of one action, such as spec.GetReboot().
func readsAction(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	fields := (&fleetv1.CommandSpec{}).ProtoReflect().Descriptor().Oneofs().ByName("action").Fields()
	for i := range fields.Len() {
		if s.Sel.Name == "Get"+goName(fields.Get(i)) {
			return true
		}
	}
	return false
}

// goName returns the name of a field in generated Go.
func goName(f protoreflect.FieldDescriptor) string {
	return strings.ToUpper(f.JSONName()[:1]) + f.JSONName()[1:]
}

// TestActionQuestionsAreSeen holds that the count finds each form.
func TestActionQuestionsAreSeen(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
func f(spec *fleetv1.CommandSpec) {
	switch spec.GetAction().(type) {
	case *fleetv1.CommandSpec_Reboot, *fleetv1.CommandSpec_Netboot:
	}
	_, _ = spec.GetAction().(*fleetv1.CommandSpec_Erase)
	_ = spec.GetProviderAction() != nil
	_ = spec.GetAction() == nil
	_ = &fleetv1.CommandSpec_Reboot{}
}`, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := actionsAsked(f, true); got != 4 {
		t.Errorf("%d questions in the agent", got)
	}
	if got := actionsAsked(f, false); got != 3 {
		t.Errorf("%d questions elsewhere", got)
	}
}

// worseOnTheAgent are the actions whose harm depends on the fields of a step, each with the reason. The controller
// reads those fields; the agent declares the worst.
var worseOnTheAgent = map[protoreflect.Name]string{
	"script":          "a plan declares what its script does",
	"provider_action": "what a provider is asked for may lose data",
}

// TestBothSidesDeclareTheSameHarm compares each action that the agent declares with the worst kind of work that makes
// it.
func TestBothSidesDeclareTheSameHarm(t *testing.T) {
	same := map[kind.Harm][]executor.Harm{
		kind.Harmless:   {executor.Harmless, executor.Changes},
		kind.Interrupts: {executor.Interrupts},
		kind.Destroys:   {executor.Destroys},
	}
	for _, a := range action.All() {
		worst, made := kind.Harmless, 0
		for _, d := range kind.All() {
			if d.Action == string(a.Action) {
				worst, made = max(worst, d.Harm), made+1
			}
		}
		if made == 0 {
			t.Errorf("no kind makes action %s", a.Action)
		}
		agrees := slices.Contains(same[worst], a.Harm)
		switch why := worseOnTheAgent[a.Action]; {
		case why == "" && !agrees:
			t.Errorf("%s: harm %s at the controller, %d at the agent", a.Action, worst, a.Harm)
		case why != "" && (agrees || a.Harm != executor.Destroys):
			t.Errorf("%s: harm %s at the controller and %d at the agent, which is no exception", a.Action, worst, a.Harm)
		}
	}
}

// storeRefusal is a refusal that a package of the store makes itself.
type storeRefusal struct{ dir, reason string }

// storeRefusals are all of them, each with the reason why it is no rule. Rules belong into the domain: the store reads
// facts, and a pure function of package controller/domain refuses. A row that is missing, exists already or has changed
// is no rule, so that NotFound, AlreadyExists and Aborted are not counted.
var storeRefusals = map[storeRefusal]string{
	{"controller/store/pgtx", "VERSION_CONFLICT"}:     "the row has another version than the one that the client has read, or is gone",
	{"controller/store/pgtx", "ReasonOutcomeUnknown"}: "the answer to a COMMIT is lost, whatever was decided",
	{"controller/store/workflow", "WORKFLOW_ACTIVE"}:  "the unique index workflows_one_open has refused the row",
}

// TestTheStoreHoldsNoRules compares the refusals with the list.
func TestTheStoreHoldsNoRules(t *testing.T) {
	found := map[storeRefusal]bool{}
	for _, f := range handWritten(t) {
		if !within(f.dir, "controller/store") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			reason, ok := refusesByRule(n)
			if !ok {
				return true
			}
			r := storeRefusal{f.dir, reason}
			found[r] = true
			if storeRefusals[r] == "" {
				t.Errorf("%s: the store refuses with %s by a rule of its own: decide it in controller/domain", position(n), reason)
			}
			return true
		})
	}
	for r := range storeRefusals {
		if !found[r] {
			t.Errorf("%s does not refuse with %s any more: remove it from storeRefusals", r.dir, r.reason)
		}
	}
}

// refusesByRule returns the reason of a refusal, or the name of the constant that holds it. It reports whether a node
// makes one that is about more than the presence of a row.
func refusesByRule(n ast.Node) (reason string, ok bool) {
	const computed = "a reason that is computed"
	switch n := n.(type) {
	case *ast.CompositeLit:
		return computed, isSelector(n.Type, "failure", "Error")
	case *ast.CallExpr:
		if !slices.ContainsFunc([]string{"Precondition", "Invalid", "Denied", "Unimplemented", "Exhausted", "Unavailable",
			"Unauthenticated"}, func(name string) bool { return isSelector(n.Fun, "failure", name) }) {
			return "", false
		}
		switch x := n.Args[0].(type) {
		case *ast.BasicLit:
			return unquote(x), true
		case *ast.Ident:
			return x.Name, true
		}
		return computed, true
	}
	return "", false
}

// TestRefusalsOfTheStoreAreSeen holds that the search finds each form.
func TestRefusalsOfTheStoreAreSeen(t *testing.T) {
	for text, want := range map[string]string{
		`failure.Precondition("A", "text")`: "A", `failure.Denied(reasonB, "text")`: "reasonB",
		`failure.Invalid(r.Reason, "text")`: "a reason that is computed", `failure.Error{Reason: "C"}`: "a reason that is computed",
	} {
		x, err := parser.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := refusesByRule(x); got != want || !ok {
			t.Errorf("%s: %q, %t", text, got, ok)
		}
	}
	for _, text := range []string{`failure.NotFound("A", "text")`, `failure.AlreadyExists("A", "text")`, `start.Admit(f)`} {
		if x, err := parser.ParseExpr(text); err != nil {
			t.Fatal(err)
		} else if _, ok := refusesByRule(x); ok {
			t.Errorf("%s is taken for a rule", text)
		}
	}
}
