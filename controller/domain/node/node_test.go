package node_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/node"
)

// The requirements, as they were written: from → to: the triggers of the older text or the newer table of owners.
const required = `
discovered -> pending: admin
pending -> installing: node_report workflow
installing -> installed: node_report workflow
installing -> install_failed: node_report workflow
install_failed -> pending: admin
installed -> active: admin system workflow
active -> reprovision: admin workflow
active -> deprovisioning: admin workflow
active -> migrating: admin workflow
reprovision -> pending: workflow system
deprovisioning -> retired: workflow admin
migrating -> active: workflow

bootstrap_issued -> enrolling: admin system workflow
enrolling -> active: system workflow
enrolling -> quarantined: admin system workflow
active -> offline: system
offline -> active: system
active -> quarantined: system workflow
offline -> quarantined: system workflow
quarantined -> active: admin system
quarantined -> draining: admin workflow
active -> draining: admin workflow
offline -> draining: admin workflow
draining -> retired: workflow admin
draining -> offline: admin workflow system
retired -> offline: admin
retired -> removing: workflow
removing -> retired: workflow admin system
removing -> deleted: workflow admin
`

// Our additions: another image for an unverified node, and a token for a machine that was registered before. A machine
// in whose name another one answers is quarantined in any state. There are ways out of a state of work whose work has
// ended or was lost, and the call that deletes a record.
const ours = `
installing -> pending: workflow system
deprovisioning -> active: workflow
installed -> pending: workflow
discovered -> bootstrap_issued: admin
discovered -> quarantined: system
bootstrap_issued -> quarantined: system
pending -> quarantined: system
installing -> quarantined: system
install_failed -> quarantined: system
installed -> quarantined: system
reprovision -> quarantined: system
deprovisioning -> quarantined: system
migrating -> quarantined: system
draining -> quarantined: system
`

func edges(text string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(text) {
		pair, by, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		for _, trigger := range strings.Fields(by) {
			out[pair+" by "+trigger] = true
		}
	}
	return out
}

// wanted returns every change that may happen. An admin may retire, delete and quarantine any state but deleted, and a
// quarantined node goes back to its former state.
func wanted() map[string]bool {
	out := edges(required + ours)
	for _, s := range node.States() {
		if s != node.Deleted {
			out[edge(s, node.Deleted, node.Admin)] = true
		}
		if s != node.Deleted && s != node.Quarantined {
			out[edge(s, node.Quarantined, node.Admin)] = true
		}
		if node.Resting(s) {
			out[edge(node.Quarantined, s, node.Admin)] = true
		}
		if s != node.Deleted && s != node.Retired {
			out[edge(s, node.Retired, node.Admin)] = true
		}
	}
	return out
}

func edge(from, to node.State, by node.Trigger) string {
	return node.Name(from) + " -> " + node.Name(to) + " by " + string(by)
}

// Every pair of states and every trigger: the listed changes may happen, and no others.
func TestTableIsWhatIsRequired(t *testing.T) {
	want := wanted()
	pairs := 0
	for _, from := range node.States() {
		for _, to := range node.States() {
			for _, by := range node.Triggers() {
				pairs++
				row, found := node.Find(from, to, by)
				if found != want[edge(from, to, by)] {
					t.Errorf("%s: found %t, want %t", edge(from, to, by), found, !found)
				}
				if found && row.Work != node.InProgress(to) {
					t.Errorf("%s: work is %t", edge(from, to, by), row.Work)
				}
				delete(want, edge(from, to, by))
			}
		}
	}
	if pairs != 17*17*4 {
		t.Errorf("looked at %d triples", pairs)
	}
	for e := range want {
		t.Errorf("%s names a state or a trigger that does not exist", e)
	}
}

func TestNoRowRepeatsAnother(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range node.Table() {
		for _, by := range row.Triggers {
			if e := edge(row.From, row.To, by); seen[e] {
				t.Errorf("%s stands twice", e)
			} else {
				seen[e] = true
			}
		}
		if row.From == row.To || row.From == node.Deleted || len(row.Triggers) == 0 {
			t.Errorf("row %v", row)
		}
	}
}

// Facts under which the guard holds.
func satisfying(to node.State) node.Facts {
	return node.Facts{
		Attempts: node.MaxAttempts, PlanID: "b", FailedPlanID: "a", Force: true, ErasureRequired: true, ErasureVerified: true,
		Deleting: true,
		Purge:    true, Comment: true, From: to,
	}
}

// Check is Find and the guard: what the table has not is illegal, what deleted asks is final.
func TestCheckEveryTriple(t *testing.T) {
	want := wanted()
	for _, from := range node.States() {
		for _, to := range node.States() {
			for _, by := range node.Triggers() {
				_, refusal := node.Check(from, to, by, satisfying(to))
				reason := ""
				if refusal != nil {
					reason = refusal.Reason
				}
				expect := "NODE_TRANSITION_ILLEGAL"
				switch {
				case from == node.Deleted:
					expect = "NODE_IDENTITY_DELETED"
				case want[edge(from, to, by)]:
					expect = ""
				}
				if reason != expect {
					t.Errorf("%s: %q, want %q", edge(from, to, by), reason, expect)
				}
			}
		}
	}
}

func TestGuards(t *testing.T) {
	for name, c := range map[string]struct {
		from, to node.State
		by       node.Trigger
		spoil    func(*node.Facts)
		reason   string
	}{
		"two attempts": {node.Installing, node.InstallFailed, node.NodeReport, func(f *node.Facts) { f.Attempts = 2 },
			"NODE_GUARD_FAILED"},
		"no force": {node.InstallFailed, node.Pending, node.Admin, func(f *node.Facts) { f.Force = false },
			"NODE_GUARD_FAILED"},
		"the same plan": {node.InstallFailed, node.Pending, node.Admin, func(f *node.Facts) { f.PlanID = "a" },
			"NODE_GUARD_FAILED"},
		"busy": {node.Active, node.Retired, node.Admin, func(f *node.Facts) { f.ActiveOperation = "op-1" },
			"MACHINE_BUSY"},
		"busy, back to use": {node.Retired, node.Offline, node.Admin, func(f *node.Facts) { f.ActiveOperation = "op-1" },
			"MACHINE_BUSY"},
		"disks not erased": {node.Removing, node.Deleted, node.Workflow, func(f *node.Facts) { f.ErasureVerified = false },
			"NODE_GUARD_FAILED"},
		"not by the call": {node.Active, node.Deleted, node.Admin, func(f *node.Facts) { f.Deleting = false },
			"NODE_GUARD_FAILED"},
		"retired in service": {node.Active, node.Retired, node.Admin, func(f *node.Facts) { f.Purge = false },
			"DECOMMISSION_REQUIRED"},
		"retired, silent": {node.Offline, node.Retired, node.Admin, func(f *node.Facts) { f.Purge = false },
			"DECOMMISSION_REQUIRED"},
		"deleted in service": {node.Active, node.Deleted, node.Admin, func(f *node.Facts) { f.Purge = false },
			"DECOMMISSION_REQUIRED"},
		"never in service": {node.Pending, node.Retired, node.Admin, func(f *node.Facts) { f.Purge = false }, ""},
		"without a comment": {node.Active, node.Quarantined, node.Admin, func(f *node.Facts) { f.Comment = false },
			"NODE_GUARD_FAILED"},
		"by the system": {node.Active, node.Quarantined, node.System, func(f *node.Facts) { f.Comment = false }, ""},
		"back to another": {node.Quarantined, node.Active, node.Admin, func(f *node.Facts) { f.From = node.Installed },
			"NODE_GUARD_FAILED"},
		"back from work": {node.Quarantined, node.Active, node.Admin, func(f *node.Facts) { f.From = node.Draining },
			"NODE_GUARD_FAILED"},
		"on to draining": {node.Quarantined, node.Draining, node.Admin, func(f *node.Facts) { f.From = node.Installing },
			""},
		"a mode that retains": {node.Removing, node.Deleted, node.Workflow,
			func(f *node.Facts) { f.ErasureRequired, f.ErasureVerified = false, false }, ""},
	} {
		f := satisfying(c.to)
		c.spoil(&f)
		_, refusal := node.Check(c.from, c.to, c.by, f)
		if (refusal == nil) != (c.reason == "") || refusal != nil && refusal.Reason != c.reason {
			t.Errorf("%s: %+v, want %q", name, refusal, c.reason)
		}
	}
}

// A walk of chance through the table: whatever has happened to a node, there is a legal way out of where it is, and one
// that an admin may ask for. A node that is deleted stays so; its hardware comes back as another record.
func TestRandomWalkNeverGetsStuck(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 88))
	seen := map[node.State]int{}
	s := node.Discovered
	for range 100_000 {
		seen[s]++
		ways := node.From(s)
		if s == node.Deleted {
			if len(ways) != 0 {
				t.Fatalf("deleted has ways out: %v", ways)
			}
			s = []node.State{node.Discovered, node.BootstrapIssued}[r.IntN(2)]
			continue
		}
		if len(ways) == 0 || len(node.Targets(s, node.Admin)) == 0 {
			t.Fatalf("no way out of %s", node.Name(s))
		}
		way := ways[r.IntN(len(ways))]
		if _, refusal := node.Check(s, way.To, way.Triggers[r.IntN(len(way.Triggers))], satisfying(way.To)); refusal != nil {
			t.Fatalf("%s → %s: %v", node.Name(s), node.Name(way.To), refusal)
		}
		s = way.To
	}
	for _, s := range node.States() {
		if seen[s] == 0 {
			t.Errorf("the walk never came to %s", node.Name(s))
		}
	}
}

func TestNames(t *testing.T) {
	for _, s := range node.States() {
		if node.Parse(node.Name(s)) != s || node.Parse(s.String()) != s {
			t.Errorf("%s: named %q", s, node.Name(s))
		}
	}
	if got := node.Parse("sleeping"); got != 0 {
		t.Errorf("parsed nonsense as %s", got)
	}
	if got := node.Targets(node.Installed, node.Admin); !slices.Equal(got,
		[]node.State{node.Active, node.Quarantined, node.Retired, node.Deleted}) {
		t.Errorf("an admin may move an installed node to %v", got)
	}
}
