package agenttest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
)

// Hooks are what a test may change about the controller. A nil hook means the well-behaved thing. They are called
// without any lock held, and may block.
type Hooks struct {
	// Grant answers an ask; nil as its answer means silence.
	Grant func(s *Session, r *fleetv1.GrantRequest) *fleetv1.ControllerMessage
	// Result answers a result; nil as its answer means silence.
	Result func(s *Session, r *fleetv1.CommandResult) *fleetv1.ControllerMessage
	// Enroll may refuse an enrolment, before it counts (err) or after (lose: the answer is lost).
	Enroll func(r *enrollv1.EnrollRequest) (lose, err error)
	// Certificate chooses the life of the nth certificate, counted from 1.
	Certificate func(n int) (notBefore, notAfter time.Time)
	// Rotate may refuse a rotation after the certificate was made.
	Rotate func() error
	// Vouch may refuse a site agent's call.
	Vouch func(r *fleetv1.VouchInstallerRequest) error
	// Identity may refuse to give an installer the identity of its next system.
	Identity func() error
	// EventAck returns the event number to acknowledge; 0 means none.
	EventAck func(e *fleetv1.Event) uint64
}

// Controller is a scripted controller. Its fields in capitals are fixed.
type Controller struct {
	t         testing.TB
	ca        *authority
	grantKey  ed25519.PrivateKey
	FleetAddr string
	EnrolAddr string
	AgentID   string
	MachineID string
	Role      string

	server  *grpc.Server
	changed chan struct{}

	mu       sync.Mutex
	hooks    Hooks
	epoch    int64
	sessions []*Session
	commands []*fleetv1.Command
	acks     map[string][]string
	asks     []*fleetv1.GrantRequest
	results  map[string][]*fleetv1.CommandResult
	events   []*fleetv1.Event
	beats    int
	progress []*fleetv1.Progress
	enrolled map[[sha256.Size]byte]*enrollv1.EnrollResponse
	certs    int
	reenrols int
	lastSeq  map[string]uint64
	token    pki.Bundle
	site     siteSide
}

// New starts a controller that ends with the test.
func New(t testing.TB, hooks Hooks) *Controller {
	t.Helper()
	_, grantKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &Controller{
		t: t, ca: newAuthority(t), grantKey: grantKey, hooks: hooks, AgentID: ids.New(ids.Agent),
		MachineID: ids.New(ids.Machine),
		Role:      "host", changed: make(chan struct{}), acks: map[string][]string{},
		results: map[string][]*fleetv1.CommandResult{}, enrolled: map[[sha256.Size]byte]*enrollv1.EnrollResponse{},
		lastSeq: map[string]uint64{},
	}
	own := c.ca.server(t)
	roots := x509.NewCertPool()
	roots.AddCert(c.ca.root)
	c.server = grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: roots,
	})))
	fleetv1.RegisterAgentServiceServer(c.server, &fleet{c: c})
	c.FleetAddr = c.serve(c.server)
	enrol := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}})))
	enrollv1.RegisterEnrollmentServiceServer(enrol, &enrolment{c: c})
	c.EnrolAddr = c.serve(enrol)
	c.token = pki.Bundle{
		TokenID: ids.New(ids.Token), Secret: ids.Secret(16), CAHash: c.ca.hash(), Addresses: []string{c.EnrolAddr},
		IssuedAt: time.Now(),
	}
	return c
}

func (c *Controller) serve(s *grpc.Server) string {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	task.Background("test controller", func() {
		defer close(done)
		if err := s.Serve(l); err != nil {
			c.t.Errorf("serve: %v", err)
		}
	})
	c.t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return l.Addr().String()
}

// Bundle is a bootstrap token in its printable form.
func (c *Controller) Bundle() string {
	s, err := c.token.Encode()
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// SetHooks replaces the hooks.
func (c *Controller) SetHooks(h Hooks) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hooks = h
}

func (c *Controller) hook() Hooks {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hooks
}

// Order sends a command to the agent, now or when it connects, and returns the command's id.
func (c *Controller) Order(spec *fleetv1.CommandSpec) string {
	if spec.GetCommandId() == "" {
		spec.CommandId = ids.New(ids.Command)
	}
	if spec.GetTargetId() == "" {
		spec.TargetId = c.MachineID
	}
	spec.NeedsGrant = true
	body, err := proto.Marshal(spec)
	if err != nil {
		c.t.Fatal(err)
	}
	sum := sha256.Sum256(body)
	c.OrderRaw(&fleetv1.Command{CommandId: spec.GetCommandId(), Spec: body, Digest: sum[:]})
	return spec.GetCommandId()
}

// OrderRaw is Order for a command as it goes over the wire.
func (c *Controller) OrderRaw(cmd *fleetv1.Command) {
	c.mu.Lock()
	c.commands = append(c.commands, cmd)
	s := c.current()
	c.mu.Unlock()
	if s != nil {
		s.Send(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Command{Command: cmd}})
	}
}

// Redeliver sends a command again, as after a lost acknowledgement.
func (c *Controller) Redeliver(id string) {
	c.mu.Lock()
	s := c.current()
	var found *fleetv1.Command
	for _, cmd := range c.commands {
		if cmd.GetCommandId() == id {
			found = cmd
		}
	}
	c.mu.Unlock()
	s.Send(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Command{Command: found}})
}

// Cancel asks the agent to cancel.
func (c *Controller) Cancel(id string) {
	c.Session().Send(
		&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Cancel{Cancel: &fleetv1.CancelCommand{CommandId: id}}})
}

func (c *Controller) current() *Session {
	if len(c.sessions) == 0 {
		return nil
	}
	return c.sessions[len(c.sessions)-1]
}

// Session is the newest session; nil before the first.
func (c *Controller) Session() *Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current()
}

// Sign makes the grant that answers the ask. edit may spoil the claims before they are signed.
func (c *Controller) Sign(r *fleetv1.GrantRequest, edit func(*pki.GrantClaims)) *fleetv1.Grant {
	claims := pki.GrantClaims{
		CommandID: r.GetCommandId(), TargetID: c.targetOf(r.GetCommandId()), AgentID: c.AgentID, StateID: r.GetStateId(),
		Nonce: r.GetNonce(), Digest: r.GetDigest(), Seq: r.GetSeq(), IssuedAtUnixMs: time.Now().UnixMilli(),
	}
	if edit != nil {
		edit(&claims)
	}
	sig, err := pki.SignGrant(c.grantKey, claims)
	if err != nil {
		c.t.Errorf("sign grant: %v", err)
	}
	return &fleetv1.Grant{
		CommandId: claims.CommandID, TargetId: claims.TargetID, Digest: claims.Digest, Nonce: claims.Nonce, Seq: claims.Seq,
		IssuedAtUnixMs: claims.IssuedAtUnixMs, Signature: sig,
	}
}

// GrantMessage wraps a grant.
func GrantMessage(g *fleetv1.Grant) *fleetv1.ControllerMessage {
	return &fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Grant{Grant: g}}
}

// RefusedMessage wraps a refusal of the ask.
func RefusedMessage(
	r *fleetv1.GrantRequest, reason string, final bool, after time.Duration,
) *fleetv1.ControllerMessage {
	return &fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_GrantRefused{GrantRefused: &fleetv1.GrantRefused{
		CommandId: r.GetCommandId(), Nonce: r.GetNonce(), Reason: reason, Final: final,
		RetryAfterMs: int32(after.Milliseconds()),
	}}}
}

// AckMessage acknowledges a result.
func AckMessage(id string, settled bool) *fleetv1.ControllerMessage {
	return &fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_ResultAck{
		ResultAck: &fleetv1.ResultAck{CommandId: id, Settled: settled}}}
}

func (c *Controller) targetOf(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range c.commands {
		spec := &fleetv1.CommandSpec{}
		if cmd.GetCommandId() == id && proto.Unmarshal(cmd.GetSpec(), spec) == nil {
			return spec.GetTargetId()
		}
	}
	return ""
}

func (c *Controller) update(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn()
	close(c.changed)
	c.changed = make(chan struct{})
}

// Wait returns when ok is true; it is looked at after every change. The test fails after a minute.
func (c *Controller) Wait(what string, ok func() bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond): // for conditions outside the controller
		case <-ctx.Done():
			c.t.Fatalf("gave up waiting for %s", what)
		}
	}
}

// WaitResult waits for the first result of a command.
func (c *Controller) WaitResult(id string) *fleetv1.CommandResult {
	c.t.Helper()
	c.Wait("the result of "+id, func() bool { return len(c.Results(id)) > 0 })
	return c.Results(id)[0]
}

// WaitSessions waits until n sessions were opened in all.
func (c *Controller) WaitSessions(n int) *Session {
	c.t.Helper()
	c.Wait(fmt.Sprintf("session %d", n), func() bool { return c.Sessions() >= n })
	return c.Session()
}

// Sessions is how many sessions were opened.
func (c *Controller) Sessions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sessions)
}

// Results lists what came for a command, repeats included.
func (c *Controller) Results(id string) []*fleetv1.CommandResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*fleetv1.CommandResult(nil), c.results[id]...)
}

// Acks lists the states in which a command was acknowledged.
func (c *Controller) Acks(id string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.acks[id]...)
}

// Asks lists all asks for grants.
func (c *Controller) Asks() []*fleetv1.GrantRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*fleetv1.GrantRequest(nil), c.asks...)
}

// Events lists all events, repeats included.
func (c *Controller) Events() []*fleetv1.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*fleetv1.Event(nil), c.events...)
}

// Heartbeats is how many came live.
func (c *Controller) Heartbeats() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.beats
}

// Certificates is how many agent certificates were made.
func (c *Controller) Certificates() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.certs
}

// Reenrolments is how many of them were made by Reenroll.
func (c *Controller) Reenrolments() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reenrols
}

func (c *Controller) welcome(h *fleetv1.Hello, epoch int64) *fleetv1.Welcome {
	w := &fleetv1.Welcome{
		SessionId: ids.New(ids.Session), Epoch: epoch, HeartbeatIntervalMs: 200, ControllerTime: timestamppb.Now(),
		GrantKeys: [][]byte{c.grantKey.Public().(ed25519.PublicKey)}, TrustBundle: pki.EncodeCerts(c.ca.root),
		ControllerId: "c-test", AgentId: c.AgentID, MachineId: c.MachineID,
	}
	c.mu.Lock()
	w.StateRolledBack = c.lastSeq[h.GetStateId()] > h.GetLastGrantSeq()
	c.mu.Unlock()
	return w
}
