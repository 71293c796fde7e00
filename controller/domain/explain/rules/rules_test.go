package rules_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/explain/rules"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/clock"
)

// TestEveryFailureHasItsWords: an operation can end with any of these codes, and the generic answer is given for none.
func TestEveryFailureHasItsWords(t *testing.T) {
	for _, name := range endsOperations(t) {
		l := newLab(t).host().reboot().look().granted()
		l.fails(name, "what the executor says")
		e := l.explain()
		if e.Cause.Reason != name && name != "GRANT_REFUSED" {
			t.Errorf("%s is explained as %s", name, e.Cause.Reason)
		}
		if strings.Contains(e.Cause.Text, "tried, and it failed") || e.Cause.Text == "" {
			t.Errorf("%s: %q", name, e.Cause.Text)
		}
		if !strings.Contains(everything(e), "what the executor says") {
			t.Errorf("%s hides what the executor says:\n%s", name, everything(e))
		}
	}
}

// endsOperations are the reasons that docs/reference/errors.md has for operations, but for the one without more
// information.
func endsOperations(t *testing.T) (out []string) {
	t.Helper()
	manual, err := os.ReadFile("../../../../docs/reference/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(manual)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[2], "OPERATION") {
			continue
		}
		name := strings.Trim(cells[1], " `")
		if _, known := baremetalv1.Reason_value[name]; known && name != "EXECUTION_FAILED" {
			out = append(out, name)
		}
	}
	for name, number := range baremetalv1.Reason_value {
		if number >= 140 && number < 200 && name != "EXECUTION_FAILED" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// TestActionsAreLegal: whatever is offered to start would be let in.
func TestActionsAreLegal(t *testing.T) {
	starts := []string{"ingot reimage", "ingot exit-maintenance", "ingot enter-maintenance"}
	for _, c := range faults() {
		l := newLab(t)
		c.inject(l)
		e := l.explain()
		for _, a := range e.Actions {
			started := slices.ContainsFunc(starts, func(s string) bool { return strings.HasPrefix(a.Command, s) })
			busy := l.f.Machine.GetStatus().GetActiveOperationId() != ""
			if started && (busy || l.f.Machine.GetDeletedAt() != nil) {
				t.Errorf("%s: %s is offered to a machine that is busy or deleted", c.name, a.Command)
			}
			if strings.HasPrefix(a.Command, "ingot reimage") && (!a.Destructive || l.fenced != "" || l.f.Freeze.Active()) {
				t.Errorf("%s: %+v", c.name, a)
			}
			if strings.HasPrefix(a.Command, "ingot cancel") && !busy {
				t.Errorf("%s: %s is offered, and nothing is active", c.name, a.Command)
			}
		}
	}
}

// TestAnythingIsExplained: facts in any combination have an answer, and no rule panics on missing ones.
func TestAnythingIsExplained(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := faults()
	for range 3000 {
		l := newLab(t)
		c := all[r.IntN(len(all))]
		c.inject(l)
		l.now = l.now.Add(time.Duration(r.IntN(7200)) * time.Second)
		scramble(r, l)
		if e := l.explain(); e.Summary == "" || e.Rule == "" || e.WaitsOn == "" {
			t.Fatalf("%s, scrambled: %+v", c.name, e)
		}
	}
}

// scramble takes facts away, or turns them.
func scramble(r *rand.Rand, l *lab) {
	change := []func(){
		func() { l.f.Site = nil },
		func() { l.f.Agents = nil },
		func() { l.f.Commands = nil; l.fenced = "" },
		func() { l.f.Machine.Spec = nil },
		func() { l.f.Machine.Status.Conditions = nil },
		func() { l.f.Named = true },
		func() { l.f.Op = nil; l.f.Commands = nil; l.fenced = ""; l.f.Named = false },
		func() { l.f.Boot.ContenderAt = l.now },
		func() {
			if l.f.Op != nil {
				l.f.Op.WaitReason = []string{operation.WaitAgent, operation.WaitSite, operation.WaitInstaller, operation.WaitRetry,
					operation.WaitEvidence, ""}[r.IntN(6)]
			}
		},
		func() {
			if l.f.Op != nil {
				l.f.Op.CurrentStep = r.IntN(len(l.f.Op.Steps))
			}
		},
		func() {
			if l.f.Op != nil {
				l.f.Op.Error = nil
			}
		},
	}
	for range r.IntN(4) {
		change[r.IntN(len(change))]()
	}
}

func TestNamedOperation(t *testing.T) {
	l := newLab(t).poweredOn()
	l.f.Named = true
	if e := l.after(time.Minute).explain(); e.Rule != "installer" || e.OperationID != "op-1" {
		t.Errorf("active: %+v", e)
	}
	l = newLab(t).host().reboot().look()
	l.do(operation.CancelAsked{Actor: "ann"})
	l.f.Named = true
	e := l.explain()
	if e.Rule != "canceled" || e.Actions[0].Command != "ingot why m-1" {
		t.Errorf("ended: %+v", e)
	}
}

func TestNormals(t *testing.T) {
	var all []explain.Sample
	for i := range 100 {
		all = append(all, explain.Sample{Kind: kind.Reboot, Group: "web", Took: time.Duration(i+1) * time.Second})
	}
	for range 4 { // too few for a group of their own
		all = append(all, explain.Sample{Kind: kind.Reboot, Group: "db", Took: time.Second})
	}
	n := explain.Measure(all)
	if got := n.For(kind.Reboot, "web", "", false); got != (explain.Baseline{P50: 50 * time.Second,
		P95: 95 * time.Second, Samples: 100, Population: "group web"}) {
		t.Errorf("web: %+v", got)
	}
	if got := n.For(kind.Reboot, "db", "", false); got.Population != "fleet" || got.Samples != 104 {
		t.Errorf("db: %+v", got)
	}
	if got := n.For(kind.Repave, "web", "", false); got != (explain.Baseline{}) {
		t.Errorf("never seen: %+v", got)
	}
	var none explain.Baselines
	if got := none.For(kind.Reboot, "", "", false); got.Samples != 0 {
		t.Errorf("nothing measured: %+v", got)
	}
}

func TestStuck(t *testing.T) {
	n := explain.Baseline{P50: time.Minute, P95: 2 * time.Minute, Samples: 10}
	fast := explain.Baseline{P50: time.Second, P95: time.Second, Samples: 10}
	now := t0
	cases := []struct {
		name string
		ran  time.Duration
		n    explain.Baseline
		next time.Time
		want bool
	}{
		{"within three times p95", 6 * time.Minute, n, time.Time{}, false},
		{"longer", 6*time.Minute + 1, n, time.Time{}, true},
		{"longer, and something happens soon", 7 * time.Minute, n, now.Add(2 * time.Minute), false},
		{"longer, and something happens later", 7 * time.Minute, n, now.Add(2*time.Minute + 1), true},
		{"longer, and what should have happened did not", 7 * time.Minute, n, now.Add(-time.Second), true},
		{"a fast step has its floor", 2 * time.Minute, fast, time.Time{}, false},
		{"a fast step over its floor", 2*time.Minute + 1, fast, now.Add(time.Hour), true},
		{"nothing known", 15 * time.Minute, explain.Baseline{}, time.Time{}, false},
		{"nothing known, for long", 16 * time.Minute, explain.Baseline{}, time.Time{}, true},
	}
	for _, c := range cases {
		if got := explain.Stuck(c.ran, c.n, now, c.next); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestStuckOperation: a reconfiguration that takes minutes where seconds are normal.
func TestStuckOperation(t *testing.T) {
	l := newLab(t).host().reconfigure().look().granted()
	l.f.Normal = explain.Baseline{P50: time.Second, P95: 3 * time.Second, Samples: 20, Population: "fleet"}
	if l.after(time.Minute).explain().Stuck {
		t.Error("stuck after a minute")
	}
	if e := l.after(2 * time.Minute).explain(); !e.Stuck || e.Normal.P95 != 3*time.Second {
		t.Errorf("not stuck after three: %+v", e)
	}
	if e := l.after(6*time.Minute + 30*time.Second).explain(); e.Stuck {
		t.Errorf("the deadline is in sight: %s at %s", e.Next, e.NextAt)
	}
}

func TestLastEvidence(t *testing.T) {
	l := newLab(t).poweredOn().after(30 * time.Second)
	e := l.explain()
	if !strings.Contains(e.LastEvidence, "result of command cmd-1: SUCCEEDED") ||
		!e.LastEvidenceAt.Equal(t0.Add(8*time.Second)) {
		t.Errorf("%q at %s", e.LastEvidence, e.LastEvidenceAt)
	}
	l.f.Site.Leases = []explain.Lease{{MAC: mac, Address: "10.20.0.101", Given: l.now}}
	if e = l.explain(); !strings.Contains(e.LastEvidence, "DHCP gave "+mac+" the address 10.20.0.101") {
		t.Errorf("%q", e.LastEvidence)
	}
}

// TestActionsAreCommandLines: each offered command of ingot is valid, flags included.
func TestActionsAreCommandLines(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range faults() {
		l := newLab(t)
		c.inject(l)
		for _, a := range l.explain().Actions {
			line, _, _ := strings.Cut(a.Command, "   (")
			words := strings.Fields(strings.TrimSuffix(line, "…"))
			if words[0] != "ingot" || seen[line] {
				continue
			}
			seen[line] = true
			var out, bad strings.Builder
			code := cli.Run(t.Context(), command.Config{
				Args: append(words[1:], "--help"), In: strings.NewReader(""), Out: &out, Err: &bad,
				Getenv: func(string) string { return "" }, Clock: clock.Real(),
			})
			if code != 0 || !strings.Contains(out.String(), "Usage:\n  "+strings.Join(words[:2], " ")) {
				t.Errorf("%s: exit code %d, %s", line, code, bad.String())
			}
		}
	}
	if len(seen) < 20 {
		t.Errorf("only %d commands were offered", len(seen))
	}
}

// TestDocumentListsEveryRule: and every rule is reached by some fault.
func TestDocumentListsEveryRule(t *testing.T) {
	doc, err := os.ReadFile("../../../../docs/reference/why-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	reached := map[string]bool{}
	for _, c := range faults() {
		l := newLab(t)
		c.inject(l)
		reached[l.explain().Rule] = true
		l.f.Named = true
		reached[l.explain().Rule] = true
	}
	for _, name := range rules.RuleNames() {
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/reference/why-rules.md does not speak of rule %s", name)
		}
		if !reached[name] {
			t.Errorf("no fault reaches rule %s", name)
		}
	}
}
