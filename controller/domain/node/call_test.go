package node_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/internal/failure"
)

func TestCoursesOfCalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, to node.State
		active   string
		facts    node.Facts
		course   node.Course
		reason   string
	}{
		"no row":                {node.Active, node.Installed, "", node.Facts{}, 0, "NODE_TRANSITION_ILLEGAL"},
		"no row, and busy":      {node.Active, node.Installed, "op-1", node.Facts{}, 0, "NODE_TRANSITION_ILLEGAL"},
		"a guard, and busy":     {node.Active, node.Quarantined, "op-1", node.Facts{}, 0, "NODE_GUARD_FAILED"},
		"busy":                  {node.Active, node.Draining, "op-1", node.Facts{}, 0, "MACHINE_BUSY"},
		"work":                  {node.Active, node.Draining, "", node.Facts{}, node.Worked, ""},
		"at once":               {node.Active, node.Quarantined, "", node.Facts{Comment: true}, node.Recorded, ""},
		"a busy one retired":    {node.Pending, node.Retired, "op-1", node.Facts{Purge: true}, node.RetiresBusy, ""},
		"a busy one set aside":  {node.Active, node.Quarantined, "op-1", node.Facts{Comment: true}, node.QuarantinesBusy, ""},
		"an idle one retired":   {node.Pending, node.Retired, "", node.Facts{}, node.Recorded, ""},
		"a full one, not purge": {node.Pending, node.Retired, "op-1", node.Facts{Holds: true}, 0, "DECOMMISSION_REQUIRED"},
	} {
		call := node.Call{MachineID: "m-1", State: node.Name(c.from), To: c.to, Facts: c.facts, ActiveOperation: c.active}
		course, err := call.Decide()
		f := failure.From(err)
		if course != c.course || failure.ReasonOf(err) != c.reason || f != nil && f.Metadata["machine_id"] != "m-1" {
			t.Errorf("%s: course %d, %v", name, course, err)
		}
		if f != nil && (f.Metadata["active_operation_id"] == "op-1") != (c.reason == "MACHINE_BUSY") {
			t.Errorf("%s: %v", name, f.Metadata)
		}
	}
}

func TestWorkOfStates(t *testing.T) {
	t.Parallel()
	for to, want := range map[node.State]node.Work{
		node.Reprovision: {Type: fleet.Reimage}, node.Installing: {Type: fleet.Reimage},
		node.Deprovisioning: {Type: fleet.RunPlan, Plan: "erase"}, node.Migrating: {Type: fleet.RMAType, Plan: "replace"},
		node.Draining: {Type: fleet.RunPlan, Plan: node.DrainPlan},
	} {
		if got, err := node.MayStart("m-1", to); got != want || err != nil {
			t.Errorf("%s: %+v, %v", node.Name(to), got, err)
		}
		if got, ok := node.WorkOf(to); ok != (to != node.Installing) || ok && got != want {
			t.Errorf("%s: %+v, %t", node.Name(to), got, ok)
		}
	}
	if _, err := node.MayStart("m-1", node.Removing); failure.ReasonOf(err) != "NODE_GUARD_FAILED" {
		t.Error(err)
	}
}

func TestRefusalsOfReportsInTheirOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status, active string
		waits, blocked bool
		state          node.State
		taken          node.Taken
		reason         string
	}{
		"one that does not fit":     {"started", "op-1", true, true, node.Active, 0, "REPORT_REFUSED"},
		"one that is waited for":    {"complete", "op-1", true, true, node.Installing, node.Awaited, ""},
		"progress of another's":     {"progress", "op-1", false, true, node.Installing, node.Shown, ""},
		"the end of another's":      {"complete", "op-1", false, true, node.Installing, 0, "REPORT_REFUSED"},
		"the first, of a blocked":   {"started", "", false, true, node.Pending, 0, "MACHINE_BLOCKED"},
		"progress, of a blocked":    {"progress", "", false, true, node.Installing, 0, "MACHINE_BLOCKED"},
		"the first":                 {"started", "", false, false, node.Pending, node.Begins, ""},
		"progress that begins work": {"progress", "", false, false, node.Installing, node.Begins, ""},
	} {
		taken, err := node.Reported{MachineID: "m-1", State: node.Name(c.state), Install: node.Install{State: c.state},
			Report: node.Report{Status: c.status}, ActiveOperation: c.active, Waits: c.waits, Blocked: c.blocked}.Take()
		if taken != c.taken || failure.ReasonOf(err) != c.reason {
			t.Errorf("%s: %d, %v", name, taken, err)
		}
	}
}

func TestOtherRefusalsOfNodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		got    error
		reason string
	}{
		"an idle record":                {node.MayDelete("", ""), ""},
		"a busy one":                    {node.MayDelete("op-1", "c-1"), "MACHINE_BUSY"},
		"one with an unknown outcome":   {node.MayDelete("", "c-1"), "COMMAND_UNRESOLVED"},
		"a discovery":                   {node.Discovery{Seen: true}.Refuse(), ""},
		"one that was never seen":       {node.Discovery{Taken: true}.Refuse(), "DISCOVERY_NOT_FOUND"},
		"one under another's id":        {node.Discovery{Seen: true, Taken: true}.Refuse(), "NODE_GUARD_FAILED"},
		"a provider's state":            {node.MayAdopt("m-1", true), ""},
		"one that is not known":         {node.MayAdopt("m-1", false), "NODE_GUARD_FAILED"},
		"a repeat of a quarantine":      {node.MayRepeat("m-1", "quarantined", "op-1"), ""},
		"another quarantine of the one": {node.MayRepeat("m-1", "quarantined", ""), "NODE_TRANSITION_ILLEGAL"},
	} {
		if got := failure.ReasonOf(c.got); got != c.reason {
			t.Errorf("%s: %q", name, got)
		}
	}
}
