package hardware

import (
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

func TestMain(m *testing.M) { rig.Main(m) }

func test(t *testing.T, c *harness.Client, id, request string, seconds int32) *baremetalv1.Operation {
	t.Helper()
	return harness.Must(t, c.Machines().TestMachine,
		&baremetalv1.TestMachineRequest{MachineId: id, RequestId: request, DurationSeconds: seconds})
}

func tests(t *testing.T, c *harness.Client, id string) []*baremetalv1.HardwareTest {
	t.Helper()
	return harness.Must(t, c.Machines().GetHardwareTests,
		&baremetalv1.GetHardwareTestsRequest{MachineId: id, History: 9}).GetTests()
}

// contains fails the test unless the text has all the parts.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("no %q in:\n%s", p, text)
		}
	}
}

// TestHardwareIsTestedByTheCommandLine: machines of one model are compared, a slow disk is a warning, and one that
// expects to fail fails the test. The machine needs an operator until it is well.
func TestHardwareIsTestedByTheCommandLine(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	all := map[string]string{"well-1": "", "well-2": "", "well-3": "", "slow": "disk-health:late=1s",
		"ill": "disk-health:never@1"}
	machines := map[string]*harness.Machine{}
	for id, script := range all {
		machines[id] = c.NewMachine(t, harness.MachineOptions{ID: id, Script: script})
	}
	for id, m := range machines {
		m.WaitConnected()
		if code, out := c.Ingot("test", id, "--no-wait"); code == 0 || !strings.Contains(out, "WRONG_PHASE") {
			t.Errorf("%s, which may be in use, is tested: %d\n%s", id, code, out)
		}
		rig.Maintenance(t, c.Client, id)
	}
	if code, out := c.Ingot("machine", "tests", "ill"); code != 0 || !strings.Contains(out, "ingot test ill") {
		t.Errorf("never tested: %d\n%s", code, out)
	}
	for _, id := range []string{"well-1", "well-2", "well-3", "slow"} {
		if code, out := c.Ingot("test", id, "--duration", "1s"); code != 0 {
			t.Errorf("%s: %d\n%s", id, code, out)
		}
	}
	code, out := c.Ingot("test", "ill", "--duration", "1s")
	if code == 0 {
		t.Errorf("a failing disk passes:\n%s", out)
	}
	contains(t, out, "HARDWARE_TEST_FAILED", "SMART: simulated: the disk expects to fail", "ingot machine tests ill")
	_, out = c.Ingot("machine", "tests", "ill")
	contains(
		t,
		out,
		"failed: 1 of",
		"SMART: simulated: the disk expects to fail",
		"Ingot simulated host Simulated machine",
	)
	_, out = c.Ingot("machine", "tests", "slow")
	contains(t, out, "passed, with 1 warnings", "300 MB/s is far below the 3000 MB/s of 3 other machines of its model")
	_, out = c.Ingot("machine", "tests", "well-1")
	if strings.Contains(out, "warning") {
		t.Errorf("a machine like the others is warned of:\n%s", out)
	}
	status := c.Machine("ill").GetStatus()
	if status.GetEffectiveState() != baremetalv1.MachineStatus_ATTENTION {
		t.Errorf("a machine with a failing disk is %s", status.GetEffectiveState())
	}
	_, out = c.Ingot("why", "ill")
	contains(t, out, "HARDWARE_TEST_FAILED", "ingot test ill", "ingot machine tests ill")
	if code, out := c.Ingot("test", "ill", "--duration", "1s"); code != 0 { // with another disk
		t.Errorf("a test of a machine that is well again: %d\n%s", code, out)
	}
	if got := c.Machine("ill").GetStatus().GetEffectiveState(); got != baremetalv1.MachineStatus_MAINTENANCE_IDLE {
		t.Errorf("after a test that succeeded it is %s", got)
	}
	if got := tests(t, c.Client, "ill"); len(got) != 2 || !got[0].GetPassed() || got[1].GetPassed() {
		t.Errorf("%d tests are kept: %v", len(got), got)
	}
}

// TestNothingElseRunsMeanwhile: a machine under test is busy, and one that is busy is not tested.
func TestNothingElseRunsMeanwhile(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	m := c.NewMachine(t, harness.MachineOptions{Script: "reboot:late=5s"})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	op := test(t, c.Client, m.ID, "t-1", 600)
	c.WaitCommand(m.ID, "granted", harness.InState("GRANTED"))
	if code, out := c.Ingot("reboot", m.ID, "--no-wait"); code == 0 || !strings.Contains(out, "MACHINE_BUSY") {
		t.Errorf("a reboot meanwhile: %d\n%s", code, out)
	}
	if again := test(t, c.Client, m.ID, "t-1", 600); again.GetOperationId() != op.GetOperationId() {
		t.Errorf("the same request is %s and %s", op.GetOperationId(), again.GetOperationId())
	}
	// Ten minutes of tests end at once when they are cancelled, and leave no result.
	harness.Must(t, c.Machines().CancelOperation,
		&baremetalv1.CancelOperationRequest{OperationId: op.GetOperationId()})
	rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Canceled, "CANCELED_BY_REQUEST")
	if got := tests(t, c.Client, m.ID); len(got) != 0 {
		t.Errorf("a cancelled test has results: %v", got)
	}
	reboot := rig.Reboot(t, c.Client, m.ID, "r-1", 60)
	_, err := harness.Call(t, c.Machines().TestMachine, &baremetalv1.TestMachineRequest{MachineId: m.ID, RequestId: "t-2"})
	if err == nil || !strings.Contains(err.Error(), "another operation is active") {
		t.Errorf("a test during a reboot: %v", err)
	}
	rig.Ended(t, c.Wait(reboot.GetOperationId(), rig.Soon), rig.Succeeded, "")
	rig.Clean(t, m.WaitQuiet(rig.Soon))
}

// TestKill9DuringATest kills controller and agent with SIGKILL: the results are those of one complete test.
func TestKill9DuringATest(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	m := c.NewMachine(t, harness.MachineOptions{Stopped: true})
	agent := m.AgentProcess("")
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)

	op := test(t, c.Client, m.ID, "controller", 4)
	c.WaitCommand(m.ID, "granted", harness.InState("GRANTED"))
	c.Process.Kill()
	c.Start("")
	rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
	if got := c.Commands(m.ID); len(got) != 1 {
		t.Errorf("%d commands for one test, though only the controller was killed", len(got))
	}

	op = test(t, c.Client, m.ID, "agent", 4)
	c.WaitCommand(m.ID, "granted", func(x *baremetalv1.Command) bool {
		return x.GetOperationId() == op.GetOperationId() && x.GetState() == "GRANTED"
	})
	begun := time.Now()
	agent.Kill()
	m.AgentProcess("")
	rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
	if took := time.Since(begun); took < 4*time.Second {
		t.Errorf("a test of 4 s was whole %v after its agent was killed", took)
	}
	tries := 0
	for _, x := range c.Commands(m.ID) {
		if x.GetOperationId() == op.GetOperationId() {
			tries++
		}
	}
	if tries != 1 && tries != 2 {
		t.Errorf("%d tries, want a whole one, and before it the one that was lost if the agent had begun", tries)
	}
	if got := tests(
		t,
		c.Client,
		m.ID,
	); len(got) != 2 || !got[0].GetPassed() ||
		got[0].GetOperationId() != op.GetOperationId() {
		t.Errorf("results: %v", got)
	}
	if fence := c.Machine(m.ID).GetStatus().GetUnresolvedCommandId(); fence != "" {
		t.Errorf("a test leaves command %s open", fence)
	}
	rig.Clean(t, m.WaitQuiet(rig.Soon))
}

// TestProvisionTests puts machines in service that pass, and stops before one that does not.
func TestProvisionTests(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	for id, script := range map[string]string{"well": "", "ill": "disk-health:never"} {
		c.NewMachine(t, harness.MachineOptions{ID: id, Script: script, RepaveTime: 50 * time.Millisecond,
			Delay: 50 * time.Millisecond}).WaitConnected()
	}
	cmd := c.Command(
		t,
		"provision",
		"well",
		"ill",
		"--image",
		"ubuntu-2204",
		"--test-duration",
		"1s",
		"--max-failures",
		"2",
		"--yes",
		"--request-id",
		"rack",
	)
	select {
	case <-cmd.Gone():
	case <-time.After(5 * time.Minute):
		t.Fatalf("it does not end:\n%s", cmd.Output())
	}
	contains(
		t,
		cmd.Output(),
		"HARDWARE_TEST_FAILED",
		"COMPLETED_WITH_FAILURES: 1 of 2 machines done, 1 failed",
		"ingot why ill",
	)
	if got := c.Machine("well").GetStatus(); got.GetPhase() != baremetalv1.MachineStatus_READY {
		t.Errorf("the machine that is well is in phase %s: %s", got.GetPhase(), got.GetAttentionMessage())
	}
	testkit.Eventually(t, rig.Soon, func() bool {
		s := c.Machine("ill").GetStatus()
		return s.GetPhase() == baremetalv1.MachineStatus_MAINTENANCE &&
			s.GetEffectiveState() == baremetalv1.MachineStatus_ATTENTION
	}, "the machine with a failing disk is %v", c.Machine("ill").GetStatus())
}
