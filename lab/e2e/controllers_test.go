package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// quickReboot makes one of no delay, and gives the time from the call to the end as a watch on the same controller sees
// it.
func quickReboot(t *testing.T, c *harness.Client, machineID, request string) time.Duration {
	t.Helper()
	begun := time.Now()
	op := rig.Reboot(t, c, machineID, request, rig.PatientTime)
	ctx, cancel := context.WithTimeout(t.Context(), rig.Soon)
	defer cancel()
	w, err := c.Operations().WatchOperations(ctx, &baremetalv1.WatchOperationsRequest{Filter: "operation_id=" +
		op.GetOperationId()})
	if err != nil {
		t.Fatal(err)
	}
	for {
		e, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if harness.Ended(e.GetSnapshot()) {
			rig.Ended(t, e.GetSnapshot(), rig.Succeeded, "")
			return time.Since(begun)
		}
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// Clients of one controller work machines whose agents are connected to another, whichever of the two decides. Nobody
// looks for commands that were not handed over.
func TestCommandsAreHandedOver(t *testing.T) {
	t.Parallel()
	blind := failpoint.NewScope()
	blind.Set("handover.before-look", failpoint.Error())
	ctx := failpoint.With(t.Context(), blind)
	a := harness.New(t, harness.Options{Context: ctx})
	b := a.Another(t, harness.Options{Context: ctx})
	testkit.Eventually(t, rig.Soon, func() bool { return a.Controller().Peers() == 1 && b.Controller().Peers() == 1 },
		"they do not know of each other")
	m := b.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	rig.Maintenance(t, a.Client, m.ID)
	var there, here []time.Duration
	for i := range 10 {
		there = append(there, quickReboot(t, a.Client, m.ID, fmt.Sprint("there-", i)))
		here = append(here, quickReboot(t, b.Client, m.ID, fmt.Sprint("here-", i)))
	}
	t.Logf("p50 of a reboot: %v through the controller that has the session, %v through another", median(here),
		median(there))
	if slowest := slices.Max(there); slowest > 25*time.Second { // what was not handed over is decided again after 30 s
		t.Errorf("an operation has waited %v for its command to be handed over", slowest)
	}
	rig.Clean(t, m.WaitQuiet(rig.Soon))
}

// bare is a session without an agent: the test is one.
type bare struct {
	t *testing.T
	fleetv1.AgentService_CommandsClient
	welcome *fleetv1.Welcome
}

// slow lets a session live that sends no heartbeats.
var slow = harness.Options{Configure: func(c *config.Config) { c.Agents.HeartbeatInterval.Duration = time.Minute }}

// openBare opens a session as the agent of a machine, which must not open one of its own meanwhile.
func openBare(t *testing.T, c *harness.Cluster, m *harness.Machine, h *fleetv1.Hello) *bare {
	t.Helper()
	stream, err := c.FleetClient(rig.AgentCert(t, m)).Commands(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := &bare{t: t, AgentService_CommandsClient: stream}
	h.Simulated, h.Capabilities = true, []string{"reboot", "reconfig"}
	b.say(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Hello{Hello: h}})
	b.welcome = hear(b, (*fleetv1.ControllerMessage).GetWelcome)
	return b
}

func (b *bare) say(m *fleetv1.AgentMessage) {
	b.t.Helper()
	if err := b.Send(m); err != nil {
		b.t.Fatal(err)
	}
}

// hear waits for a message of one kind.
func hear[M comparable](b *bare, kind func(*fleetv1.ControllerMessage) M) M {
	b.t.Helper()
	var none M
	for {
		m, err := b.Recv()
		if err != nil {
			b.t.Fatal(err)
		}
		if got := kind(m); got != none {
			return got
		}
	}
}

func helloOf(c *harness.Cluster, m *harness.Machine) *fleetv1.Hello {
	return &fleetv1.Hello{StateId: "st-test", BootId: c.Machine(m.ID).GetStatus().GetBootId(), HardwareFingerprint: "test"}
}

// What a controller decides is sent by the one that has the session: the command, and its cancel.
func TestCancelsAreHandedOver(t *testing.T) {
	t.Parallel()
	a := harness.New(t, slow)
	b := a.Another(t, slow)
	m := b.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	rig.Maintenance(t, a.Client, m.ID)
	m.Isolate()
	agent := openBare(t, b, m, helloOf(b, m))
	begun := time.Now()
	op := harness.Must(t, a.Machines().ReconfigureMachine, &baremetalv1.ReconfigureMachineRequest{
		MachineId: m.ID, RequestId: "r", TimeoutSeconds: rig.PatientTime, Config: &baremetalv1.NetReconfig{Hostname: "other"},
	})
	c := hear(agent, (*fleetv1.ControllerMessage).GetCommand)
	sent := time.Since(begun)
	agent.say(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_GrantRequest{GrantRequest: &fleetv1.GrantRequest{
		CommandId: c.GetCommandId(), Digest: c.GetDigest(), StateId: "st-test", Nonce: []byte("0123456789abcdef"), Seq: 1,
		BootId: helloOf(b, m).GetBootId(),
	}}})
	hear(agent, (*fleetv1.ControllerMessage).GetGrant)
	begun = time.Now()
	harness.Must(t, a.Machines().CancelOperation, &baremetalv1.CancelOperationRequest{OperationId: op.GetOperationId()})
	if got := hear(agent, (*fleetv1.ControllerMessage).GetCancel); got.GetCommandId() != c.GetCommandId() {
		t.Errorf("cancelled %v", got)
	}
	t.Logf("across controllers: the command came %v after the call, the cancel %v", sent.Round(time.Millisecond),
		time.Since(begun).Round(time.Millisecond))
}

// A message that is lost between controllers is found by polling.
func TestCommandsAreFoundWithoutNotifications(t *testing.T) {
	t.Parallel()
	lost := failpoint.NewScope()
	lost.Set("handover.before-notify", failpoint.Error())
	ctx := failpoint.With(t.Context(), lost)
	a := harness.New(t, harness.Options{Context: ctx})
	b := a.Another(t, harness.Options{Context: ctx})
	m := b.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	rig.Maintenance(t, a.Client, m.ID)
	for i := range 3 {
		if took := quickReboot(t, a.Client, m.ID, fmt.Sprint("r", i)); took > 25*time.Second {
			t.Errorf("the command was found after %v", took)
		}
	}
	rig.Clean(t, m.WaitQuiet(rig.Soon))
}

// Revoked on one controller, a certificate opens nothing on the others within 2 s.
func TestARevocationEndsSessionsElsewhere(t *testing.T) {
	t.Parallel()
	a := harness.New(t, harness.Options{})
	b := a.Another(t, harness.Options{})
	m := b.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	begun := time.Now()
	harness.Must(t, a.Admin().RevokeAgent, &baremetalv1.RevokeAgentRequest{AgentId: m.Identity().AgentID})
	testkit.Eventually(t, rig.Soon, func() bool { return b.Controller().Sessions() == 0 }, "the session goes on")
	took := time.Since(begun)
	t.Logf("the session has ended %v after the revocation on another controller", took.Round(time.Millisecond))
	if took > 10*time.Second { // 2 s are promised, of machines that are not as full as those of tests
		t.Errorf("that is more than 10 s")
	}
}

// An agent that goes to another controller while its old connection only seems to stand is in one place.
func TestAnOldSessionElsewhereEnds(t *testing.T) {
	t.Parallel()
	a := harness.New(t, slow)
	b := a.Another(t, slow)
	m := a.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	m.Isolate()
	one := openBare(t, a, m, helloOf(a, m))
	two := openBare(t, b, m, helloOf(a, m))
	if got := hear(one, (*fleetv1.ControllerMessage).GetSuperseded); got.GetByEpoch() != two.welcome.GetEpoch() {
		t.Errorf("superseded by %d, the newer one is %d", got.GetByEpoch(), two.welcome.GetEpoch())
	}
	testkit.Eventually(t, rig.Soon, func() bool { return a.Controller().Sessions() == 0 },
		"two controllers have the session")
	if b.Controller().Sessions() != 1 {
		t.Error("the newer session has ended")
	}
}

// Two machines with one identity on two controllers are found as two on one are.
func TestAClonesSessionElsewhereIsProven(t *testing.T) {
	t.Parallel()
	a := harness.New(t, slow)
	b := a.Another(t, slow)
	m := a.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	m.Isolate()
	one := openBare(t, a, m, helloOf(a, m))
	other := helloOf(a, m)
	other.HardwareFingerprint = "of another machine"
	openBare(t, b, m, other)
	hear(one, (*fleetv1.ControllerMessage).GetSuperseded)
	one.say(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_SupersededAck{SupersededAck: &fleetv1.SupersededAck{}}})
	testkit.Eventually(t, rig.Soon, func() bool {
		return rig.Condition(b.Machine(m.ID), "NeedsIntervention").GetReason() == "CLONE_DETECTED"
	}, "the machine is not quarantined")
}

// A controller that has stood still for longer than its lease ends its sessions before it does anything else with them:
// what it was asked for meanwhile is refused, and nothing is done twice.
func TestAControllerThatHasStoodStill(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	holding, ask := make(chan struct{}), make(chan struct{})
	m.FP.Set("agent.before-grant-request", failpoint.Call(func(context.Context) error {
		close(holding)
		<-ask
		return nil
	}).At(1))
	op := rig.Reboot(t, c.Client, m.ID, "r", 60)
	<-holding
	dials := m.Dials()
	c.Process.Stand()
	close(ask)
	<-time.After(rig.Lease + time.Second)
	if n := len(m.Journal()); n != 0 {
		t.Errorf("%d effects without a grant", n)
	}
	begun := time.Now()
	c.Process.Continue()
	testkit.Eventually(t, rig.Soon, func() bool { return m.Dials() > dials }, "the session outlives the lease")
	t.Logf("the agent was sent away %v after the controller went on", time.Since(begun).Round(time.Millisecond))
	rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
	rig.Clean(t, m.WaitQuiet(rig.Soon))
}

// A session that others have ended, since the lease that it is under seemed to be over, does not go on as one that
// nothing is sent to: its agent comes again.
func TestASessionThatOthersHaveEndedBeginsAnew(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	dials := m.Dials()
	if err := c.Controller().Store().Sessions.EndSessionsOf(t.Context(), "", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, rig.Soon, func() bool { return m.Dials() > dials }, "the session goes on")
	rig.Ended(t, c.Wait(rig.Reboot(t, c.Client, m.ID, "r", rig.PatientTime).GetOperationId(), rig.Soon), rig.Succeeded, "")
	rig.Clean(t, m.WaitQuiet(rig.Soon))
}

// Operators see who is there: which controllers serve, how many agents each has, one that leads, and those that have
// ended.
func TestControllersAreListed(t *testing.T) {
	t.Parallel()
	a := harness.New(t, harness.Options{})
	b := a.Another(t, harness.Options{})
	b.NewMachine(t, harness.MachineOptions{}).WaitConnected()
	list := func(all bool, state baremetalv1.Controller_State) (out []*baremetalv1.Controller) {
		for _, k := range harness.Must(t, a.Admin().ListControllers,
			&baremetalv1.ListControllersRequest{All: all}).GetControllers() {
			if k.GetState() == state {
				out = append(out, k)
			}
		}
		return out
	}
	testkit.Eventually(t, rig.Soon, func() bool {
		both := list(false, baremetalv1.Controller_SERVING)
		if len(both) != 2 || both[0].GetControllerId() <= both[1].GetControllerId() {
			return false
		}
		one, two := both[0], both[1]
		return one.GetSessions() == 1 && two.GetSessions() == 0 && !one.GetAnswering() && two.GetAnswering() &&
			one.GetLeads() != two.GetLeads() &&
			one.GetHostname() != "" && one.GetVersion() != "" && one.GetLeaseUntil().AsTime().After(one.GetStartedAt().AsTime())
	}, "not two that serve, of which one leads: %v", list(true, baremetalv1.Controller_SERVING))
	b.Stop()
	testkit.Eventually(t, rig.Soon, func() bool {
		gone := list(true, baremetalv1.Controller_GONE)
		return len(gone) == 1 && gone[0].GetDrainingSince() != nil && len(list(false, baremetalv1.Controller_SERVING)) == 1
	}, "the one that has stopped is still there")
}
