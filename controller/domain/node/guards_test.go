package node_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// enough returns the facts that alone make a guard pass, with all other facts against it.
func enough(g node.Guard, to node.State) node.Facts {
	f := node.Facts{ActiveOperation: "op-1", ErasureRequired: true, Holds: true}
	switch g {
	case node.AttemptsSpent:
		f.Attempts = node.MaxAttempts
	case node.ForcedNewPlan:
		f.Force, f.PlanID, f.FailedPlanID = true, "b", "a"
	case node.Idle:
		f.ActiveOperation = ""
	case node.Erased:
		f.ErasureVerified = true
	case node.Purged:
		f.Purge, f.ActiveOperation = true, ""
	case node.PurgedByDelete:
		f.Deleting, f.Purge = true, true
	case node.CameFrom:
		f.From = to
	case node.Commented:
		f.Comment = true
	}
	return f
}

// TestAGuardLooksAtItsOwnFactsOnly: another guard's facts neither stop a change nor let it through.
func TestAGuardLooksAtItsOwnFactsOnly(t *testing.T) {
	rows := node.Table()
	if len(rows) == 0 {
		t.Fatal("the table is empty")
	}
	for _, row := range rows {
		for _, by := range row.Triggers {
			name := edge(row.From, row.To, by)
			if _, refusal := node.Check(row.From, row.To, by, enough(row.Guard, row.To)); refusal != nil {
				t.Errorf("%s, guarded by %q: %v", name, row.Guard, refusal)
			}
			if row.Guard == "" {
				continue
			}
			all := node.Facts{
				Attempts: node.MaxAttempts, PlanID: "b", FailedPlanID: "a", Force: true, ErasureVerified: true, Deleting: true,
				Purge: true, Holds: true, Comment: true, From: row.To, Installs: row.Guard != node.ForcedNewPlan,
			}
			without(row.Guard, &all)
			if _, refusal := node.Check(row.From, row.To, by, all); refusal == nil {
				t.Errorf("%s passes without what %q wants", name, row.Guard)
			}
		}
	}
}

// without takes away what a guard wants.
func without(g node.Guard, f *node.Facts) {
	switch g {
	case node.AttemptsSpent:
		f.Attempts--
	case node.ForcedNewPlan:
		f.Force = false
	case node.Idle:
		f.ActiveOperation = "op-1"
	case node.Erased:
		f.ErasureRequired, f.ErasureVerified = true, false
	case node.Purged, node.PurgedByDelete:
		f.Purge = false
	case node.CameFrom:
		f.From = node.Draining
	case node.Commented:
		f.Comment = false
	}
}

// TestAnotherInstallationIsANewPlanAndAForce: an operator who asks for it need not say either.
func TestAnotherInstallationIsANewPlanAndAForce(t *testing.T) {
	if _, refusal := node.Check(node.InstallFailed, node.Pending, node.Admin, node.Facts{Installs: true}); refusal != nil {
		t.Error(refusal)
	}
}

// TestWhereANodeMayBeMovedNow: the rows whose guards pass, and no others.
func TestWhereANodeMayBeMovedNow(t *testing.T) {
	for name, c := range map[string]struct {
		from  node.State
		by    node.Trigger
		facts node.Facts
		want  []node.State
	}{
		"active, without a reason": {node.Active, node.Admin, node.Facts{},
			[]node.State{node.Reprovision, node.Deprovisioning, node.Migrating, node.Draining}},
		"active, with a comment": {node.Active, node.Admin, node.Facts{Comment: true},
			[]node.State{node.Quarantined, node.Reprovision, node.Deprovisioning, node.Migrating, node.Draining}},
		"retired, idle":           {node.Retired, node.Admin, node.Facts{}, []node.State{node.Offline}},
		"retired, busy":           {node.Retired, node.Admin, node.Facts{ActiveOperation: "op-1"}, nil},
		"by an installer, active": {node.Active, node.NodeReport, node.Facts{}, nil},
		"deleted":                 {node.Deleted, node.Admin, satisfying(node.Offline), nil},
	} {
		if got := node.Open(c.from, c.by, c.facts); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestARefusalNamesTheWayOut: where a node may go instead, and what a quarantined one was doing.
func TestARefusalNamesTheWayOut(t *testing.T) {
	for name, c := range map[string]struct {
		from, to node.State
		by       node.Trigger
		was      node.State
		says     string
	}{
		"no way by this trigger":      {node.Active, node.Installed, node.NodeReport, 0, "to no other state"},
		"another way":                 {node.Retired, node.Active, node.Admin, 0, "to offline, quarantined, deleted"},
		"quarantined while it rested": {node.Quarantined, node.Active, node.Admin, node.Installed, "it goes back to that"},
		"quarantined while it was work": {node.Quarantined, node.Active, node.Admin, node.Draining,
			"its workflow is resumed"},
	} {
		_, refusal := node.Check(c.from, c.to, c.by, node.Facts{From: c.was})
		if refusal == nil || !strings.Contains(refusal.Message, c.says) {
			t.Errorf("%s: %+v, want %q", name, refusal, c.says)
		}
	}
}

// TestListsAreComplete: clients and the tests beside this one go through them.
func TestListsAreComplete(t *testing.T) {
	if got := node.Statuses(); !slices.Equal(got, []string{node.Started, node.Progress, node.Complete, node.Failed}) {
		t.Errorf("statuses %v", got)
	}
	if got := node.States(); len(got) != 17 || !slices.IsSorted(got) {
		t.Errorf("states %v", got)
	}
}

// TestASimulatedMachineHasNoHardwareToCompare: neither its serial number nor its MAC addresses.
func TestASimulatedMachineHasNoHardwareToCompare(t *testing.T) {
	registered := node.Health{Serial: "x", MACs: []string{"52:54:00:00:00:01"}, Inventoried: true,
		Seen: hwid.Facts{Serial: "x"}}
	if got := node.Failing(node.Evaluate(node.Checks(), node.Health{Live: true, Serial: "x", MACs: registered.MACs,
		Simulated: true})); len(got) != 0 {
		t.Errorf("simulated: %v", got)
	}
	registered.Live = true
	if got := node.Failing(node.Evaluate(node.Checks(), registered)); len(got) != 1 {
		t.Errorf("with hardware: %v", got)
	}
}
