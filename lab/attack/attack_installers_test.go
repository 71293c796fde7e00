package attack

import (
	"context"
	"fmt"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/lab/harness"
)

// installerAttempts are those of boxes that were certified as the installer of a machine.
func installerAttempts() []Attempt {
	return []Attempt{
		{Party: Box, Attempt: "keep an installer's certificate after its operation", Rule: 11, Run: outliveOperation},
		{Party: Box, Attempt: "be the first to claim a machine by its MAC", Rule: 11, Run: claimFirst},
	}
}

// certified is a box with the certificate of an installer.
type certified struct {
	*box
	fleet fleetv1.AgentServiceClient
}

// firstClaim has a box without a TPM certified for an assignment, by its MAC address alone.
func (s *segment) firstClaim(ctx context.Context, a *fleetv1.BootAssignment) (*certified, error) {
	b, err := s.newBox("")
	if err != nil {
		return nil, err
	}
	v, err := b.claim(ctx, a, nil)
	if err != nil {
		return nil, fmt.Errorf("the first claim: %w", err)
	}
	client, err := s.r.asAgent(b.key, v.GetCertificateChainPem())
	return &certified{b, client}, err
}

// rotate asks for a further certificate.
func (c *certified) rotate(ctx context.Context) error {
	_, csr, err := newKey()
	if err != nil {
		return err
	}
	_, err = c.fleet.RotateAgentCert(ctx, &fleetv1.RotateAgentCertRequest{Csr: csr})
	return err
}

// hello opens a session that lasts as long as the test, and keeps it alive.
func (c *certified) hello(bootID string) error {
	stream, err := c.fleet.Commands(c.s.r.T.Context())
	if err != nil {
		return err
	}
	err = stream.Send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Hello{Hello: &fleetv1.Hello{
		Version: "hostile", Roles: []string{"installer"}, BootId: bootID, StateId: "state-of-" + bootID,
	}}})
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	events, err := c.fleet.Events(c.s.r.T.Context())
	if err != nil {
		return err
	}
	err = events.Send(&fleetv1.EventsRequest{Message: &fleetv1.EventsRequest_Hello{Hello: &fleetv1.EventsHello{
		SessionId: first.GetWelcome().GetSessionId(), Epoch: first.GetWelcome().GetEpoch(), StateId: "state-of-" + bootID}}})
	if err == nil {
		go beat(events)
	}
	return err
}

// outliveOperation: the installer of an operation that has ended asks for another certificate, and speaks for the
// machine.
func outliveOperation(ctx context.Context, r *Rig) (Outcome, error) {
	s, err := newSegment(ctx, r)
	if err != nil {
		return Outcome{}, err
	}
	a, op, err := s.netboot(ctx, "1")
	if err != nil {
		return Outcome{}, err
	}
	first, err := s.firstClaim(ctx, a)
	if err != nil {
		return Outcome{}, err
	}
	if err := first.rotate(ctx); !harness.HasReason(err, "REENROLL_REFUSED") {
		return breached("an installer rotates its certificate: %v", err), nil
	}
	if err := s.end(ctx, op); err != nil {
		return Outcome{}, err
	}
	later, _, err := s.netboot(ctx, "2")
	if err != nil {
		return Outcome{}, err
	}
	if err := first.rotate(ctx); err == nil {
		return breached("the installer of an ended operation gets another certificate"), nil
	}
	if err := first.hello("hostile-boot"); err == nil {
		return breached("the installer of an ended operation opens a session"), nil
	}
	m, err := r.C.Machines().GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: s.Machine})
	if err != nil {
		return Outcome{}, err
	}
	if strings.Contains(m.String(), "hostile-boot") || m.GetStatus().GetBootAssignment() != later.GetMode() {
		return breached("the installer of an ended operation has changed the machine: %v", m.GetStatus()), nil
	}
	return held("no rotation; after the end no session, boot and assignment of the machine stay"), nil
}

// claimFirst: a box claims the machine before the machine itself does, and reports as its rescue system.
func claimFirst(ctx context.Context, r *Rig) (Outcome, error) {
	s, err := newSegment(ctx, r)
	if err != nil {
		return Outcome{}, err
	}
	a, op, err := s.netboot(ctx, "1")
	if err != nil {
		return Outcome{}, err
	}
	first, err := s.firstClaim(ctx, a)
	if err != nil {
		return Outcome{}, err
	}
	if err := first.hello("hostile-boot"); err != nil {
		return Outcome{}, fmt.Errorf("the first claimer's session: %w", err)
	}
	machine, err := s.newBox("")
	if err != nil {
		return Outcome{}, err
	}
	if _, err := machine.claim(ctx, a, nil); !harness.HasReason(err, "ENROLMENT_CONTESTED") ||
		strings.Contains(err.Error(), "over") {
		return breached("the first claimer has ended the assignment for the machine itself: %v", err), nil
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ; ctx.Err() == nil; <-tick.C {
		_, err := machine.claim(ctx, a, nil)
		got, getErr := r.C.Operations().GetOperation(ctx, &baremetalv1.GetOperationRequest{OperationId: op.GetOperationId()})
		switch {
		case getErr != nil:
			return Outcome{}, getErr
		case err == nil:
			return breached("the second claimer was certified while the first one was alive"), nil
		case got.GetPhase() == baremetalv1.Operation_SUCCEEDED:
			return breached("the operation succeeded for the first claimer"), nil
		case got.GetError().GetCode() == "ENROLMENT_CONTESTED":
			return held("the machine's own claim contests the first: the operation ends with ENROLMENT_CONTESTED"), nil
		}
	}
	return Outcome{}, ctx.Err()
}
