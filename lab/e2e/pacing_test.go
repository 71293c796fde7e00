package e2e

import (
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ingot-metal/ingot/agent"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// Agents that come back at one moment are taken one after the other, on the connections that they come with.
func TestAFleetThatComesAtOnceIsPaced(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{Configure: func(c *config.Config) {
		c.Agents.Admission = config.Admission{Rate: 5, Burst: 2, Concurrent: 2, Handshakes: 4}
	}})
	const n = 12
	var all []*harness.Machine
	for range n {
		all = append(all, c.NewMachine(t, harness.MachineOptions{}))
	}
	for _, m := range all {
		m.WaitConnected()
	}
	before, begun := c.Fleet.Accepted(), time.Now()
	c.Fleet.Cut()
	testkit.Eventually(t, rig.Soon, func() bool { return c.Controller().Sessions() == 0 },
		"sessions outlive their connections")
	testkit.Eventually(t, rig.Soon, func() bool { return c.Controller().Sessions() == n }, "agents stay away")
	took := time.Since(begun)
	t.Logf("%d agents were back after %v, on %d connections", n, took.Round(time.Millisecond), c.Fleet.Accepted()-before)
	if fastest := (n - 2 - 1) * time.Second / 5; took < fastest {
		t.Errorf("%d sessions were opened in %v, at 5 a second after a burst of 2", n, took)
	}
	// An agent may connect twice where its first connection ended before its hello was answered.
	if again := c.Fleet.Accepted() - before; again > 2*n {
		t.Errorf("%d agents have made %d connections", n, again)
	}
}

// What a hello beyond the rate is answered, an agent can obey.
func TestAHelloBeyondTheRateIsToldWhenToComeAgain(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{Configure: func(c *config.Config) {
		c.Agents.Admission = config.Admission{Rate: 1, Burst: 1, Concurrent: 1, Handshakes: 4}
	}})
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	m.Isolate()
	client := c.FleetClient(rig.AgentCert(t, m))
	var refused *status.Status
	testkit.Eventually(t, rig.Soon, func() bool {
		stream, err := client.Commands(t.Context())
		if err == nil {
			err = stream.Send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Hello{Hello: helloOf(c, m)}})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		refused = status.Convert(err)
		return err != nil
	}, "any number of sessions a second is opened")
	if refused.Code() != codes.ResourceExhausted || !harness.HasReason(refused.Err(), "ADMISSION_PACED") {
		t.Fatalf("refused with %v", refused)
	}
	for _, d := range refused.Details() {
		if r, ok := d.(*errdetails.RetryInfo); ok && r.GetRetryDelay().AsDuration() > 0 {
			return
		}
	}
	t.Errorf("no RetryInfo in %v", refused.Details())
}

// An agent that takes none of its messages costs no more than what was queued for it, and is cut off.
func TestAnAgentThatDoesNotReadIsCutOff(t *testing.T) {
	t.Parallel()
	c := harness.New(t, slow)
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	m.Isolate()
	b := openBare(t, c, m, helloOf(c, m))
	// Each result is acknowledged under its own id, and the acknowledgements are not read.
	unknown := strings.Repeat("x", 8<<10)
	testkit.Eventually(t, rig.Soon, func() bool {
		for range 100 {
			err := b.Send(
				&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Result{Result: &fleetv1.CommandResult{CommandId: unknown}}})
			if err == io.EOF {
				return true
			}
		}
		return false
	}, "the agent goes on for ever")
	testkit.Eventually(t, rig.Soon, func() bool { return c.Controller().Sessions() == 0 }, "the session stays")
}

// A controller that stops sends its agents to another one, and what they are doing goes on there.
func TestAStoppingControllerSendsItsAgentsElsewhere(t *testing.T) {
	t.Parallel()
	a := harness.New(t, harness.Options{})
	b := a.Another(t, harness.Options{})
	both := func(c *agent.Config) { c.Addresses = []string{a.Fleet.Address(), b.Fleet.Address()} }
	m := a.NewMachine(t, harness.MachineOptions{Change: both, Script: "reboot:late=3s"})
	m.WaitConnected()
	rig.Maintenance(t, a.Client, m.ID)
	// Whichever the agent has begun with: it is the other one's record that is read in the end.
	a.Fleet.Block()
	testkit.Eventually(t, rig.Soon, func() bool { return b.Controller().Sessions() == 1 },
		"the agent does not find the other controller")
	a.Fleet.Unblock()
	from, to := b, a
	op := rig.Reboot(t, to.Client, m.ID, "r", rig.PatientTime)
	to.WaitCommand(m.ID, "granted", harness.InState("GRANTED"))
	begun := time.Now()
	from.Stop()
	t.Logf("stopped in %v", time.Since(begun).Round(time.Millisecond))
	testkit.Eventually(t, rig.Soon, func() bool { return to.Controller().Sessions() == 1 }, "the agent does not come")
	rig.Ended(t, to.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
	rig.Clean(t, m.WaitQuiet(rig.Soon))
}
