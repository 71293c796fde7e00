package e2e

import (
	"context"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// fencedMachine is one whose granted command has run into its deadline without a result.
func fencedMachine(
	t *testing.T, c *harness.Cluster, k func(m *harness.Machine) *baremetalv1.Operation, o harness.MachineOptions,
) (*harness.Machine, string) {
	t.Helper()
	m := c.NewMachine(t, o)
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	rig.IsolateAt(m, "agent.after-intent")
	op := k(m)
	rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Failed, "OUTCOME_UNKNOWN")
	st := c.Machine(m.ID)
	command := st.GetStatus().GetUnresolvedCommandId()
	if command == "" || st.GetStatus().GetEffectiveState() != baremetalv1.MachineStatus_ATTENTION {
		t.Fatalf("want a fenced machine that asks for attention: %v", st.GetStatus())
	}
	_, err := harness.Call(t, c.Machines().RebootMachine,
		&baremetalv1.RebootMachineRequest{MachineId: m.ID, RequestId: "fenced"})
	if !harness.HasReason(err, "COMMAND_UNRESOLVED") {
		t.Fatalf("a reboot of a fenced machine: %v", err)
	}
	return m, command
}

// lifted waits until the fence is gone, and returns what settled the command.
func lifted(t *testing.T, c *harness.Cluster, m *harness.Machine, command string) string {
	t.Helper()
	testkit.Eventually(t, rig.Soon, func() bool { return c.Machine(m.ID).GetStatus().GetUnresolvedCommandId() == "" },
		"machine %s is still fenced", m.ID)
	for _, cmd := range c.Commands(m.ID) {
		if cmd.GetCommandId() == command {
			return cmd.GetSettledBy()
		}
	}
	return "nothing"
}

// works proves that a machine takes work again.
func works(t *testing.T, c *harness.Cluster, m *harness.Machine) {
	t.Helper()
	rig.Ended(t, c.Wait(rig.Reboot(t, c.Client, m.ID, "works-again", rig.PatientTime).GetOperationId(), rig.Soon),
		rig.Succeeded, "")
	rig.Clean(t, m.WaitQuiet(rig.Soon))
}

func TestADeadlineWithoutAResultFencesUntilALateResult(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m, command := fencedMachine(t, c, func(m *harness.Machine) *baremetalv1.Operation {
		return harness.Must(t, c.Machines().NetbootMachine,
			&baremetalv1.NetbootMachineRequest{MachineId: m.ID, RequestId: "r", TimeoutSeconds: 6})
	}, harness.MachineOptions{})
	before := m.History()
	m.Rejoin()
	if by := lifted(t, c, m, command); by != "late_result" {
		t.Errorf("settled by %q", by)
	}
	for _, p := range before.Changed(m.History()) {
		t.Error(p)
	}
	works(t, c, m)
}

func TestADeadlineWithoutAResultFencesUntilANewBoot(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m, command := fencedMachine(t, c, func(m *harness.Machine) *baremetalv1.Operation {
		return rig.Reboot(t, c.Client, m.ID, "r", 6)
	}, harness.MachineOptions{})
	m.Rejoin()
	if by := lifted(t, c, m, command); by != "new_boot" && by != "late_result" {
		t.Errorf("settled by %q", by)
	}
	works(t, c, m)
}

func TestADeadlineWithoutAResultFencesUntilAnOperatorSettles(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m, command := fencedMachine(t, c, func(m *harness.Machine) *baremetalv1.Operation {
		return rig.Reboot(t, c.Client, m.ID, "r", 6)
	}, harness.MachineOptions{Script: "reboot:never@1"})
	_, err := harness.Call(t, c.Admin().SettleCommand,
		&baremetalv1.SettleCommandRequest{MachineId: m.ID, CommandId: "cmd-other", Verdict: "happened",
			Comment: "looked at it"})
	if !harness.HasReason(err, "NOTHING_TO_SETTLE") {
		t.Errorf("settle another command: %v", err)
	}
	harness.Must(t, c.Admin().SettleCommand, &baremetalv1.SettleCommandRequest{
		MachineId: m.ID, CommandId: command, Verdict: "did_not_happen", Comment: "stood beside it",
	})
	if by := lifted(t, c, m, command); by != "operator:did_not_happen" {
		t.Errorf("settled by %q", by)
	}
	audit := harness.Must(t, c.Admin().ListAuditLog, &baremetalv1.ListAuditLogRequest{TargetId: m.ID}).GetEntries()
	found := false
	for _, e := range audit {
		found = found || e.GetVerb() == "SETTLE" && e.GetActor() == "tester"
	}
	if !found {
		t.Errorf("no audit entry of the settlement: %v", audit)
	}
	m.Rejoin()
	works(t, c, m)
}

// A hand-over needs a site agent beside the host's own, over the same world.
func handOver(t *testing.T, c *harness.Cluster, at string) (*harness.Machine, *baremetalv1.Operation) {
	t.Helper()
	m := c.NewMachine(t, harness.MachineOptions{SiteToo: "hand-over"})
	m.WaitConnected()
	site := c.NewSite(t, "hand-over", m.World, harness.MachineOptions{})
	site.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	m.FP.Set(at, failpoint.Call(func(ctx context.Context) error {
		m.Isolate()
		<-ctx.Done()
		return ctx.Err()
	}).At(1))
	return m, rig.Reboot(t, c.Client, m.ID, "r", 38)
}

func TestASilentHostAgentWithoutAGrantHandsOver(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m, op := handOver(t, c, "agent.before-grant-request")
	got := c.WaitFor(op.GetOperationId(), "handed over", func(o *baremetalv1.Operation) bool {
		return len(c.Commands(m.ID)) == 2 || harness.Ended(o)
	})
	if harness.Ended(got) && got.GetPhase() != rig.Succeeded {
		t.Fatalf("operation %v", got)
	}
	// The machine has an agent of its own, so the boot that counts is the one that this agent shows.
	testkit.Eventually(t, rig.Soon, func() bool { return len(m.Journal()) > 1 }, "the site agent does nothing: %v", m)
	m.Restart(m.Rejoin)
	rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
	h := m.WaitQuiet(rig.Soon)
	rig.Clean(t, h)
	first, second := h.Commands[0], h.Commands[1]
	if first.GetState() != "CANCELED" || first.GetGrantedAt() != nil ||
		second.GetExecutorAgentId() == first.GetExecutorAgentId() {
		t.Errorf("want the first command canceled, and a second one for another executor: %v", h)
	}
}

func TestASilentHostAgentWithAGrantDoesNotHandOver(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m, op := handOver(t, c, "agent.after-grant")
	rig.Ended(t, c.Wait(op.GetOperationId(), 100*time.Second), rig.Failed, "OUTCOME_UNKNOWN")
	h := m.WaitQuiet(rig.Soon)
	rig.Clean(t, h)
	if len(h.Commands) != 1 || len(h.Journal) != 0 {
		t.Errorf("want one command and nothing done: %v", h)
	}
	if h.Machine.GetStatus().GetUnresolvedCommandId() == "" {
		t.Error("the machine is not fenced")
	}
}
