package attack

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/tpmdevice"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/tpm"
	"github.com/ingot-metal/ingot/lab/swtpm"
)

const (
	victimMAC = "52:54:00:aa:00:01"
	siteName  = "segment"
)

// segment is a provisioning network whose site agent is honest: it passes on what boxes with the victim's address say.
type segment struct {
	r     *Rig
	fleet fleetv1.AgentServiceClient
	// session and epoch are those of the site agent's session.
	session string
	epoch   int64
	// Machine is the victim.
	Machine string
}

// newSegment registers the victim, and connects a site agent that speaks the protocol by hand.
func newSegment(ctx context.Context, r *Rig) (*segment, error) {
	_, err := r.C.Admin().SetSite(ctx, &baremetalv1.SetSiteRequest{Site: siteName, Segments: []*baremetalv1.Segment{{
		Name: "boot", Interface: "eth1", Address: "10.77.0.1/24", PoolStart: "10.77.0.10", PoolEnd: "10.77.0.20",
	}}})
	if err != nil {
		return nil, err
	}
	m := r.C.Register(&baremetalv1.Machine{Spec: &baremetalv1.MachineSpec{
		MacAddresses: []string{victimMAC}, Site: siteName, BmcEndpoint: "10.77.0.9",
	}})
	s := &segment{r: r, Machine: m.GetMachineId()}
	bundle, err := pki.ParseBundle(r.C.IssueToken(&baremetalv1.IssueBootstrapTokenRequest{
		Role: baremetalv1.AgentRole_AGENT_ROLE_SITE, Site: siteName,
	}))
	if err != nil {
		return nil, err
	}
	key, csr, err := newKey()
	if err != nil {
		return nil, err
	}
	conn, err := r.enrolment(nil)
	if err != nil {
		return nil, err
	}
	got, err := enrollv1.NewEnrollmentServiceClient(conn).Enroll(ctx,
		&enrollv1.EnrollRequest{TokenId: bundle.TokenID, TokenSecret: bundle.Secret, Csr: csr})
	if err != nil {
		return nil, err
	}
	if s.fleet, err = r.asAgent(key, got.GetCertificateChainPem()); err != nil {
		return nil, err
	}
	return s, s.open(ctx)
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, nil, err
	}
	csr, err := pki.NewCSR(key, "")
	return key, csr, err
}

// enrolment connects to the enrolment listener; see transport.Conn.
func (r *Rig) enrolment(cert *tls.Certificate) (*transport.Conn, error) {
	return r.dialTLS(r.Addresses().Enrolment, cert)
}

func (r *Rig) dialTLS(address string, cert *tls.Certificate) (*transport.Conn, error) {
	cfg := r.TLS()
	if cert != nil {
		cfg.Certificates = []tls.Certificate{*cert}
	}
	conn, err := transport.Dial(address, cfg, transport.NetDialer(), transport.Patience)
	if err == nil {
		r.T.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

func (r *Rig) asAgent(key *ecdsa.PrivateKey, chainPEM []byte) (fleetv1.AgentServiceClient, error) {
	chain, err := pki.DecodeCerts(chainPEM)
	if err != nil {
		return nil, err
	}
	cert := tls.Certificate{PrivateKey: key, Leaf: chain[0]}
	for _, c := range chain {
		cert.Certificate = append(cert.Certificate, c.Raw)
	}
	conn, err := r.dialTLS(r.Addresses().Fleet, &cert)
	if err != nil {
		return nil, err
	}
	return fleetv1.NewAgentServiceClient(conn), nil
}

// open starts the site agent's session, which lasts as long as the test.
func (s *segment) open(ctx context.Context) error {
	stream, err := s.fleet.Commands(s.r.T.Context())
	if err != nil {
		return err
	}
	err = stream.Send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Hello{Hello: &fleetv1.Hello{
		Version: "hostile", Roles: []string{"site"}, Capabilities: []string{"netboot", "power", "provider:agent", "reboot"},
		BootId: "boot-1", StateId: "state-1",
	}}})
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("open the site's session: %w", err)
	}
	s.session, s.epoch = first.GetWelcome().GetSessionId(), first.GetWelcome().GetEpoch()
	events, err := s.fleet.Events(s.r.T.Context())
	if err != nil {
		return err
	}
	if err := events.Send(&fleetv1.EventsRequest{Message: &fleetv1.EventsRequest_Hello{Hello: &fleetv1.EventsHello{
		SessionId: s.session, Epoch: s.epoch, StateId: "state-1"}}}); err != nil {
		return err
	}
	go beat(events)
	return ctx.Err()
}

// beat keeps a session alive until its stream ends.
func beat(events fleetv1.AgentService_EventsClient) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	alive := &fleetv1.EventsRequest{Message: &fleetv1.EventsRequest_Heartbeat{Heartbeat: &fleetv1.Heartbeat{}}}
	for events.Send(alive) == nil {
		select {
		case <-tick.C:
		case <-events.Context().Done():
		}
	}
}

// netboot has the victim booted into its RAM system, and returns its assignment.
func (s *segment) netboot(
	ctx context.Context, request string,
) (*fleetv1.BootAssignment, *baremetalv1.Operation, error) {
	if request == "1" {
		op, err := s.r.C.Machines().EnterMaintenance(ctx,
			&baremetalv1.EnterMaintenanceRequest{MachineId: s.Machine, RequestId: "maintain"})
		if err != nil {
			return nil, nil, err
		}
		s.r.C.Wait(op.GetOperationId(), time.Minute)
	}
	op, err := s.r.C.Machines().NetbootMachine(ctx, &baremetalv1.NetbootMachineRequest{MachineId: s.Machine,
		RequestId: request})
	if err != nil {
		return nil, nil, err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	// The site never reports the assignment as served, so no command waits for an answer when the operation is ended.
	for ; ctx.Err() == nil; <-tick.C {
		got, err := s.fleet.SyncSite(ctx, &fleetv1.SyncSiteRequest{})
		if err != nil {
			return nil, nil, err
		}
		for _, a := range got.GetDocument().GetAssignments() {
			if a.GetOperationId() == op.GetOperationId() {
				return a, op, nil
			}
		}
	}
	return nil, nil, ctx.Err()
}

// end cancels the operation of a network boot, so that another can begin.
func (s *segment) end(ctx context.Context, op *baremetalv1.Operation) error {
	_, err := s.r.C.Machines().CancelOperation(ctx, &baremetalv1.CancelOperationRequest{OperationId: op.GetOperationId()})
	s.r.C.Wait(op.GetOperationId(), time.Minute)
	return err
}

// box is a computer on the segment with the victim's MAC address.
type box struct {
	s   *segment
	tpm *tpmdevice.Device // nil for none
	key *ecdsa.PrivateKey
	csr []byte
}

// newBox has a TPM of its own where named.
func (s *segment) newBox(chip string) (*box, error) {
	b := &box{s: s}
	var err error
	if b.key, b.csr, err = newKey(); err != nil || chip == "" {
		return b, err
	}
	_, conn, err := swtpm.Open(s.r.T.Context(), filepath.Join(s.r.T.TempDir(), chip))
	if err != nil {
		return nil, err
	}
	s.r.T.Cleanup(func() { conn.Close() })
	b.tpm, err = tpmdevice.Load(conn)
	return b, err
}

// claim asks to be certified as the victim's RAM system, showing the keys of a TPM.
func (b *box) claim(
	ctx context.Context, a *fleetv1.BootAssignment, shown *tpmdevice.Device,
) (*fleetv1.VouchInstallerResponse, error) {
	r := &fleetv1.VouchInstallerRequest{
		MachineId: a.GetMachineId(), OperationId: a.GetOperationId(), BootToken: a.GetToken(), Csr: b.csr,
		MacAddress: victimMAC, Address: "10.77.0.10",
	}
	if shown != nil {
		r.EndorsementKey, r.AttestationKey = shown.Endorsement, shown.Attestation
	}
	return b.s.fleet.VouchInstaller(ctx, r)
}

// proofOver computes a proof over a connection of the box's own, for its own key.
func (b *box) proofOver(ctx context.Context, conn *transport.Conn, secret, sealed []byte) ([]byte, error) {
	state, err := conn.Connect(ctx)
	if err != nil {
		return nil, err
	}
	exported, err := tpm.Exported(state)
	if err != nil {
		return nil, err
	}
	digest, err := pki.PublicKeyHash(b.key.Public())
	return tpm.Proof(secret, tpm.Binding{Exported: exported, KeyDigest: digest[:], Sealed: sealed}), err
}

// bring sends a proof for the box's own key.
func (b *box) bring(ctx context.Context, conn *transport.Conn, sealed, proof []byte) error {
	_, err := enrollv1.NewEnrollmentServiceClient(conn).ActivateCredential(ctx, &enrollv1.ActivateCredentialRequest{
		Challenge: sealed, Csr: b.csr, Proof: proof,
	})
	return err
}

// enrol claims and proves, as the machine itself does.
func (b *box) enrol(ctx context.Context, a *fleetv1.BootAssignment) error {
	v, err := b.claim(ctx, a, b.tpm)
	if err != nil || len(v.GetChallenge()) == 0 {
		return errors.Join(err, errors.New("no challenge"))
	}
	secret, err := b.tpm.Activate(v.GetCredentialBlob(), v.GetEncryptedSeed())
	if err != nil {
		return err
	}
	conn, err := b.s.r.enrolment(nil)
	if err != nil {
		return err
	}
	proof, err := b.proofOver(ctx, conn, secret, v.GetChallenge())
	if err != nil {
		return err
	}
	return b.bring(ctx, conn, v.GetChallenge(), proof)
}

// installers counts the certified installers that the victim has had.
func (s *segment) installers(ctx context.Context) (int, error) {
	list, err := s.r.C.Admin().ListAgents(ctx, &baremetalv1.ListAgentsRequest{Filter: "role=INSTALLER"})
	return len(list.GetAgents()), err
}
