package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/state"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

func TestTheFleetListenerRefusesStrangersInTheHandshake(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	own := rig.AgentCert(t, m)
	if err := c.Handshake(own); err != nil {
		t.Fatalf("an enrolled agent is refused: %v", err)
	}
	stranger, err := ca.New(ca.Config{Dir: t.TempDir() + "/ca"})
	if err != nil {
		t.Fatal(err)
	}
	now, id := time.Now(), m.Identity().AgentID
	expired := harness.Certificate(t, c.Authority(), id, time.Second, now)
	testkit.Eventually(t, rig.Soon, func() bool { return time.Now().After(expired.Leaf.NotAfter) }, "does not expire")
	for name, certs := range map[string][]tls.Certificate{
		"no certificate":                  nil,
		"another CA":                      {harness.Certificate(t, stranger, id, time.Hour, now)},
		"expired":                         {expired},
		"signed by our CA, not recorded":  {harness.Certificate(t, c.Authority(), id, time.Hour, now)},
		"signed by our CA, unknown agent": {harness.Certificate(t, c.Authority(), ids.New(ids.Agent), time.Hour, now)},
	} {
		err := c.Handshake(certs...)
		if err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "tls:") {
			t.Errorf("%s: %v, want a TLS alert", name, err)
		}
	}
	harness.Must(t, c.Admin().RevokeAgent, &baremetalv1.RevokeAgentRequest{AgentId: id, Reason: "stolen"})
	if err := c.Handshake(own); err == nil || !strings.Contains(err.Error(), "tls:") {
		t.Errorf("revoked: %v, want a TLS alert", err)
	}
}

func TestRevocationEndsALiveSession(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	stream, err := c.FleetClient(rig.AgentCert(t, m)).Commands(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.Isolate() // one session per identity: this one is the test's
	hello := &fleetv1.Hello{StateId: "st-test", BootId: c.Machine(m.ID).GetStatus().GetBootId(),
		HardwareFingerprint: "test"}
	if err := stream.Send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Hello{Hello: hello}}); err != nil {
		t.Fatal(err)
	}
	if first, err := stream.Recv(); err != nil || first.GetWelcome() == nil {
		t.Fatalf("got %v, %v", first, err)
	}
	begin := time.Now()
	harness.Must(t, c.Admin().RevokeAgent, &baremetalv1.RevokeAgentRequest{AgentId: m.Identity().AgentID,
		Reason: "stolen"})
	for err == nil {
		_, err = stream.Recv()
	}
	took := time.Since(begin)
	// 2 s are promised, of machines that are not as full as those of tests.
	if status.Code(err) != codes.Unauthenticated || took > 10*time.Second {
		t.Errorf("the session ended after %v with %v", took, err)
	}
	t.Logf("the session ended %v after the call", took.Round(time.Millisecond))
	m.Rejoin()
	testkit.Eventually(t, rig.Soon, func() bool { return m.Dials() > 1 }, "the agent does not come back")
	// The end of the session is stored right after the agent has been told.
	testkit.Eventually(t, rig.Soon, func() bool {
		return !harness.Must(t, c.Admin().GetAgent,
			&baremetalv1.GetAgentRequest{AgentId: m.Identity().AgentID}).GetConnected()
	}, "a revoked agent is connected")
}

func TestTooLargeMessagesAreRefusedAndNothingElse(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{Configure: func(c *config.Config) { c.MaxMessageBytes = 256 << 10 }})
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	large := strings.Repeat("x", 300<<10)
	ctx, cancel := context.WithTimeout(t.Context(), rig.Soon)
	defer cancel()
	_, err := c.Machines().RegisterMachine(ctx, &baremetalv1.RegisterMachineRequest{Machine: &baremetalv1.Machine{
		MachineId: "m-large", Labels: map[string]string{"note": large},
	}})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("frontpage: %v", err)
	}
	stream, err := c.FleetClient(rig.AgentCert(t, m)).Commands(ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(
		&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Hello{Hello: &fleetv1.Hello{StateId: "st-x", BootId: "b",
			Hostname: large}}})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("fleet: %v", err)
	}
	_, err = c.EnrollClient().Enroll(ctx, enrollRequest(t, "t-x", "s", large))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("enrolment: %v", err)
	}
	rig.Maintenance(t, c.Client, m.ID)
	works(t, c, m)
}

func TestRotationSurvivesCrashes(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{Configure: func(c *config.Config) {
		c.Agents.CertLifetime = config.Duration{Duration: 9 * time.Second}
	}})
	for _, at := range []string{"", "agent.rotate-after-key", "agent.rotate-after-next-durable"} {
		t.Run("crash at "+at, func(t *testing.T) {
			t.Parallel()
			m := c.NewMachine(t, harness.MachineOptions{Supervised: true, Stopped: true})
			if at != "" {
				m.FP.Set(at, failpoint.Error().At(1))
			}
			m.Start()
			m.WaitConnected()
			first := rig.AgentCert(t, m)
			testkit.Eventually(t, rig.Soon, func() bool {
				now, err := state.Dir(m.StateDir).Credentials()
				return err == nil && !now.Leaf().Equal(first.Leaf)
			}, "the certificate is not rotated")
			m.WaitConnected()
			testkit.Eventually(t, rig.Soon, func() bool { return c.Handshake(first) != nil },
				"the replaced certificate still works")
			if (at != "") != (m.Crashes() > 0) {
				t.Errorf("%d crashes", m.Crashes())
			}
		})
	}
}

func TestAMachineThatWasOffPastItsExpiryComesBackByItself(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{Configure: func(c *config.Config) {
		c.Agents.CertLifetime = config.Duration{Duration: 4 * time.Second}
	}})
	m := c.NewMachine(t, harness.MachineOptions{Supervised: true})
	m.WaitConnected()
	id := m.Identity().AgentID
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	old, err := state.Dir(m.StateDir).Credentials()
	if err != nil {
		t.Fatal(err)
	}
	// On a slow machine it has its next certificate already.
	if next, found, err := state.Dir(m.StateDir).Next(); err != nil {
		t.Fatal(err)
	} else if found {
		old = next
	}
	testkit.Eventually(t, rig.Soon, func() bool { return time.Now().After(old.Leaf().NotAfter) }, "does not expire")
	testkit.Eventually(t, rig.Soon, func() bool {
		return !harness.Must(t, c.Admin().GetAgent, &baremetalv1.GetAgentRequest{AgentId: id}).GetConnected()
	}, "the session that ended counts as connected")
	// The first answer is lost.
	m.FP.Set("agent.reenroll-before-save", failpoint.Error().At(1))
	m.Start()
	m.WaitConnected()
	if m.Identity().AgentID != id || m.FP.Hits("agent.reenroll-before-save") < 2 {
		t.Errorf("came back as %s, was %s; answered %d times", m.Identity().AgentID, id,
			m.FP.Hits("agent.reenroll-before-save"))
	}
}

func TestEnrolmentSurvivesCrashes(t *testing.T) {
	faults := harness.ArmControllers(t)
	c := harness.New(t, harness.Options{})
	for _, at := range []string{"agent.after-enroll-key", "agent.after-enroll-answer", "enroll.after-sign",
		"enroll.after-commit"} {
		t.Run(at, func(t *testing.T) {
			m := c.NewMachine(t, harness.MachineOptions{Supervised: true, Stopped: true})
			before := c.Controller().Signatures()
			if strings.HasPrefix(at, "agent.") {
				m.FP.Set(at, failpoint.Error().At(1))
			} else {
				faults.Order(at)
			}
			m.Start()
			m.WaitConnected()
			a := harness.Must(t, c.Admin().GetAgent, &baremetalv1.GetAgentRequest{AgentId: m.Identity().AgentID})
			if n := len(a.GetCerts()); n != 1 {
				t.Errorf("%d certificates", n)
			}
			signed := c.Controller().Signatures() - before
			// What was signed and not committed opens nothing, so that one more may be signed; nothing else may.
			if want := map[bool]uint64{true: 2, false: 1}[at == "enroll.after-sign"]; signed != want {
				t.Errorf("%d signatures, want %d", signed, want)
			}
			if strings.HasPrefix(at, "agent.") && m.Crashes() != 1 || !strings.HasPrefix(at, "agent.") &&
				faults.Struck()[at] != 1 {
				t.Errorf("the crash did not happen: %d, %v", m.Crashes(), faults.Struck())
			}
		})
	}
}

func TestAnEnrolledAgentNeedsNoTokenAgain(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{Change: func(a *agent.Config) { a.NoInventory = true }})
	m.WaitConnected()
	m.Config.Bundle = ""
	m.Restart(nil)
	m.WaitConnected()
}
