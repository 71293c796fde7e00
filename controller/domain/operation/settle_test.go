package operation_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
)

// TestWhichBootSettles walks every state of a command, who executes it, whether it restarts the machine, and which
// system has come up. Only a boot after the one that the command ran in settles one that is unknown.
func TestWhichBootSettles(t *testing.T) {
	t.Parallel()
	settled := 0
	for _, state := range allCommandStates {
		for _, role := range []string{"host", "site", "installer"} {
			for k, restarts := range map[kind.Kind]bool{
				kind.Reboot: true, kind.Power: true, kind.Net: false, kind.Repave: false,
			} {
				c := &operation.Command{
					Kind: k, State: state, ExecutorRole: role, BootIDBefore: "boot-of-the-command",
					Evidence: map[string]string{evidence.HostAgentID: "a-old", evidence.HostBootID: "boot-of-the-host"},
				}
				for _, b := range []operation.Booted{
					{AgentID: "a-old", Role: "host"}, {AgentID: "a-new", Role: "host"}, {AgentID: "a-old", Role: "installer"},
				} {
					for _, boot := range []string{"", "boot-of-the-command", "boot-of-the-host", "boot-later"} {
						b.BootID = boot
						// What the system had as its boot before: the machine's own one is noted with the grant.
						before := "boot-of-the-command"
						if b.AgentID == "a-old" && b.Role == "host" && role != "host" {
							before = "boot-of-the-host"
						}
						want := state == operation.Unknown && (restarts || role == "installer") && boot != "" && boot != before
						if got := operation.ProofSettles(c, b); got != want {
							t.Errorf("%s %s of %s, and %+v has come up: settled %t", k, state, role, b, got)
						}
						if want {
							settled++
						}
					}
				}
			}
		}
	}
	if settled == 0 || operation.ProofSettles(nil, operation.Booted{BootID: "b"}) {
		t.Error("nothing is settled, or no command is")
	}
}

// TestWhichPowerOffSettles: one that was seen after the grant, of a command that ran on the machine.
func TestWhichPowerOffSettles(t *testing.T) {
	t.Parallel()
	for _, state := range allCommandStates {
		for _, role := range []string{"host", "site", "installer"} {
			for _, after := range []time.Duration{-1, 0, 1} {
				c := &operation.Command{State: state, ExecutorRole: role, GrantedAt: t0}
				want := state == operation.Unknown && role != "site" && after > 0
				if got := operation.PowerOffSettles(c, t0.Add(after)); got != want {
					t.Errorf("%s of %s, off %v after the grant: settled %t", state, role, after, got)
				}
			}
		}
	}
	if operation.PowerOffSettles(nil, t0) {
		t.Error("no command is settled")
	}
}

// TestWhatMayBeSettled: the machine's unresolved command alone.
func TestWhatMayBeSettled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ unresolved, id, reason, field string }{
		{"c-1", "c-1", "", ""}, {"", "c-1", "NOTHING_TO_SETTLE", ""}, {"c-2", "c-1", "NOTHING_TO_SETTLE", "command_id"},
		{"", "", "NOTHING_TO_SETTLE", ""},
	} {
		err := operation.MaySettle("m-1", c.unresolved, c.id)
		if failure.ReasonOf(err) != c.reason {
			t.Errorf("%+v: %v", c, err)
		}
		if f := failure.From(err); c.field != "" && (len(f.Fields) != 1 || f.Fields[0].Path != c.field) {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}

// TestASettledCommandIsACopy: done, with who settled it, and nothing else of it changed.
func TestASettledCommandIsACopy(t *testing.T) {
	t.Parallel()
	c := &operation.Command{ID: "c", State: operation.Unknown, Reason: "OUTCOME_UNKNOWN",
		Outcome: operation.OutcomeUnknown}
	out := operation.Settle(c, "new_boot")
	if out.State != operation.Done || out.SettledBy != "new_boot" || out.ID != "c" || out.Reason != "OUTCOME_UNKNOWN" ||
		out.Outcome != operation.OutcomeUnknown || c.State != operation.Unknown || c.SettledBy != "" {
		t.Errorf("%+v became %+v", c, out)
	}
	for _, state := range allCommandStates {
		for _, reason := range []string{"", "EVIDENCE_MISSING", "OUTCOME_UNKNOWN"} {
			want := state == operation.Unknown && reason == "EVIDENCE_MISSING"
			if got := operation.Repeatable(&operation.Command{State: state, Reason: reason}); got != want {
				t.Errorf("a command %s for %q is repeatable: %t", state, reason, got)
			}
		}
	}
}

// TestWhatAnOperationNeedsAndWrites: slots by the harms, and by its steps whether it writes a system.
func TestWhatAnOperationNeedsAndWrites(t *testing.T) {
	t.Parallel()
	both := operation.Operation{Destructive: true, Interrupts: true}.Slots()
	loses := operation.Operation{Destructive: true}.Slots()
	interrupts := operation.Operation{Interrupts: true}.Slots()
	if both == loses || both == interrupts || loses == interrupts {
		t.Errorf("%q, %q, %q", both, loses, interrupts)
	}
	for op, want := range map[*operation.Operation]bool{
		{}: false, {Destructive: true}: true, {Interrupts: true}: true, {Destructive: true, Interrupts: true}: true,
	} {
		if op.NeedsSlot() != want {
			t.Errorf("%+v needs a slot: %t", op, !want)
		}
	}
	repave, without := operation.Step{Kind: kind.Repave}, operation.Step{Kind: kind.Repave, Agentless: true}
	reboot := operation.Step{Kind: kind.Reboot, Agentless: true}
	for _, c := range []struct {
		steps             []operation.Step
		writes, agentless bool
	}{
		{nil, false, false}, {[]operation.Step{reboot}, false, false}, {[]operation.Step{reboot, repave}, true, false},
		{[]operation.Step{without, reboot}, true, true},
	} {
		op := operation.Operation{Steps: c.steps}
		if op.WritesSystem() != c.writes || op.WritesAgentless() != c.agentless || len(op.Kinds()) != len(c.steps) {
			t.Errorf("%v: writes %t, agentless %t", op.Kinds(), op.WritesSystem(), op.WritesAgentless())
		}
	}
	for _, c := range []struct {
		of    fleet.OperationType
		kinds []kind.Kind
		want  bool
	}{
		{fleet.Reimage, []kind.Kind{kind.Netboot, kind.Repave}, true}, {fleet.RunPlan, []kind.Kind{kind.Repave}, true},
		{fleet.Onboard, []kind.Kind{kind.Repave}, false}, {fleet.Decommission, []kind.Kind{kind.Repave}, false},
		{fleet.Reimage, []kind.Kind{kind.ProviderAction}, true}, {fleet.RunPlan, []kind.Kind{kind.ProviderAction}, false},
		{fleet.Reimage, []kind.Kind{kind.Reboot}, false}, {fleet.Reimage, nil, false},
	} {
		if got := operation.Installs(c.of, c.kinds...); got != c.want {
			t.Errorf("%s of %v installs: %t", c.of, c.kinds, got)
		}
	}
	for i, want := range map[operation.Install]bool{
		{Failed: 0, Max: 3}: false, {Failed: 1, Max: 3}: false, {Failed: 2, Max: 3}: true, {Failed: 3, Max: 3}: true,
		{}: true,
	} {
		if i.Last() != want {
			t.Errorf("%+v is the last: %t", i, !want)
		}
	}
	for applied, want := range map[int64]bool{6: false, 7: true, 8: true} {
		if got := (operation.Boot{Revision: 7, Applied: applied}).Served(); got != want {
			t.Errorf("revision 7 is served at %d: %t", applied, got)
		}
	}
}

// TestWhatLacksAnExecutor: a step that waits for an agent, unless it waits for the machine by itself.
func TestWhatLacksAnExecutor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		step   operation.Step
		reason string
		want   bool
	}{
		{operation.Step{Kind: kind.Reboot}, operation.WaitAgent, true},
		{operation.Step{Kind: kind.Reboot}, operation.WaitNobody, true},
		{operation.Step{Kind: kind.Reboot}, operation.WaitSite, false},
		{operation.Step{Kind: kind.Reboot}, "", false},
		{operation.Step{Kind: kind.WaitForAgent}, operation.WaitAgent, false},
		{operation.Step{Kind: kind.WorkflowStage, Mode: "await_replacement"}, operation.WaitAgent, false},
		{operation.Step{Kind: kind.WorkflowStage, Mode: "switch_off"}, operation.WaitAgent, true},
	} {
		if got := c.step.LacksExecutor(c.reason); got != c.want {
			t.Errorf("%s %s that waits for %q lacks an executor: %t", c.step.Kind, c.step.Mode, c.reason, got)
		}
	}
}

// TestTheEarlierTime: of equal ones either.
func TestTheEarlierTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b, want time.Time }{
		{t0, t0.Add(1), t0}, {t0.Add(1), t0, t0}, {t0, t0, t0},
	} {
		if got := operation.Earliest(c.a, c.b); !got.Equal(c.want) {
			t.Errorf("%v and %v: %v", c.a, c.b, got)
		}
	}
}
