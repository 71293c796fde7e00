package fleet_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// TestAFreezeSaysWhatItIsFor: who or what began it, under which reason, and what comes before the thaw.
func TestAFreezeSaysWhatItIsFor(t *testing.T) {
	for _, c := range []struct {
		freeze        fleet.Freeze
		cause, reason string
		compare       bool
	}{
		{fleet.Freeze{Restored: true}, "the database was restored from a backup", "FLEET_FROZEN", true},
		{fleet.Freeze{WentBack: true, Comment: "17 events"}, "the database has gone back: 17 events", "DATABASE_WENT_BACK",
			true},
		{fleet.Freeze{}, "an admin froze it", "FLEET_FROZEN", false},
		{fleet.Freeze{Actor: "ann"}, "ann froze it, and gave no reason", "FLEET_FROZEN", false},
		{fleet.Freeze{Actor: "ann", Comment: "rack 42"}, "ann froze it: rack 42", "FLEET_FROZEN", false},
	} {
		f := c.freeze
		if f.Cause() != c.cause || f.Reason() != c.reason {
			t.Errorf("%+v: %q, %s", f, f.Cause(), f.Reason())
		}
		if got := strings.Contains(f.Cure(), "compare what agents hold"); got != c.compare ||
			!strings.Contains(f.Cure(), "ingot server thaw") {
			t.Errorf("%+v: %q", f, f.Cure())
		}
	}
}

// TestNodeStatesByWhatTheyMean: the lists that a filter of machines is made from agree with each machine's effective
// state.
func TestNodeStatesByWhatTheyMean(t *testing.T) {
	if got := fleet.EffectiveStates(); len(got) != 6 {
		t.Errorf("effective states %v", got)
	}
	for _, s := range nodeStates {
		f := fleet.Facts{Phase: fleet.Ready, NodeState: s}
		blocked := fleet.Effective(f) == fleet.StateBlocked
		if blocked != slices.Contains(fleet.OutOfService(), s) {
			t.Errorf("%s: blocked %t", s, blocked)
		}
		// A removal under way is out of service first.
		if busy := fleet.Effective(f) == fleet.StateBusy; !blocked && busy != slices.Contains(fleet.WorkInProgress(), s) {
			t.Errorf("%s: busy %t", s, busy)
		}
	}
	if !slices.Contains(fleet.WorkInProgress(), fleet.Removing) {
		t.Error("a removal is work")
	}
	deleted := fleet.Facts{Phase: fleet.Ready, NodeState: fleet.Active, Deleted: true}
	if got := fleet.Effective(deleted); got != fleet.StateBlocked {
		t.Errorf("a deleted machine is %s", got)
	}
}

// TestWhatAMachineInServiceLacks: each lack has its own reason.
func TestWhatAMachineInServiceLacks(t *testing.T) {
	up := map[fleet.ConditionType]bool{fleet.Provisioned: true, fleet.Reachable: true}
	for want, f := range map[string]fleet.Facts{
		"NOT_PROVISIONED":     {NodeState: fleet.Offline},
		"NODE_OFFLINE":        {NodeState: fleet.Offline, Conditions: up},
		"NODE_NOT_VERIFIED":   {NodeState: fleet.Installed, Conditions: up},
		"NODE_NOT_ACTIVE":     {NodeState: fleet.Pending, Conditions: up},
		"MACHINE_UNREACHABLE": {NodeState: fleet.Active, Conditions: map[fleet.ConditionType]bool{fleet.Provisioned: true}},
		"":                    {NodeState: fleet.Active, Conditions: up},
	} {
		f.Phase = fleet.Ready
		if _, attention := fleet.Evaluate(f); attention.Reason != want {
			t.Errorf("%+v: %q, want %q", f, attention.Reason, want)
		}
	}
}

// TestARefusalNamesOnlyWhatWouldHelp: the end of a return where it can run, and maintenance where it opens the way.
func TestARefusalNamesOnlyWhatWouldHelp(t *testing.T) {
	rma := map[fleet.ConditionType]bool{fleet.RMA: true}
	for name, c := range map[string]struct {
		facts fleet.Facts
		op    fleet.OperationType
		hint  string
		want  bool
	}{
		"RMA, in maintenance": {fleet.Facts{Phase: fleet.Maintenance, Conditions: rma}, fleet.Reboot, "--return",
			true},
		"RMA, in maintenance and busy": {fleet.Facts{Phase: fleet.Maintenance, Conditions: rma, ActiveOperation: true},
			fleet.Reboot, "--return", false},
		"RMA, in service": {fleet.Facts{Phase: fleet.Ready, Conditions: rma}, fleet.Reboot, "--return", false},
		"RMA, in service and busy": {fleet.Facts{Phase: fleet.Ready, Conditions: rma, ActiveOperation: true}, fleet.Reboot,
			"--return", false},
		"a reimage in service":    {fleet.Facts{Phase: fleet.Ready}, fleet.Reimage, "enter-maintenance", true},
		"what no phase allows":    {fleet.Facts{Phase: fleet.Ready}, "NO_SUCH", "enter-maintenance", false},
		"the same in maintenance": {fleet.Facts{Phase: fleet.Maintenance}, "NO_SUCH", "enter-maintenance", false},
	} {
		r := fleet.Admit(c.facts, c.op, false)
		if r == nil || strings.Contains(r.Message, c.hint) != c.want {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestAMachinesOwnAgentIsNoSiteAgent: whatever capabilities it claims, it is not asked to act on other machines.
func TestAMachinesOwnAgentIsNoSiteAgent(t *testing.T) {
	claims := []string{"provider:fake", "ssh", "cluster"}
	liar := fleet.Candidate{AgentID: "host", Role: "host", Live: true, LastSeen: time.Unix(1, 0), Capabilities: claims}
	for name, choose := range map[string]func([]fleet.Candidate) *fleet.Candidate{
		"a provider": func(c []fleet.Candidate) *fleet.Candidate { return fleet.SiteFor(c, "power", "fake") },
		"ssh":        fleet.SiteForSSH,
		"clusters":   fleet.SiteForClusters,
	} {
		if got := choose([]fleet.Candidate{liar}); got != nil {
			t.Errorf("%s: %s is asked", name, got.AgentID)
		}
		away := site("away", false, claims...)
		if got := choose([]fleet.Candidate{liar, away, site("site", true, claims...)}); got == nil || got.AgentID != "site" {
			t.Errorf("%s: %+v is asked", name, got)
		}
	}
}
