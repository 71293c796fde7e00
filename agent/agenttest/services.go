package agenttest

import (
	"context"
	"crypto"
	"crypto/x509"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
)

// Session is one session as the controller sees it.
type Session struct {
	Hello   *fleetv1.Hello
	Welcome *fleetv1.Welcome
	// Leaf is the certificate that it was opened with.
	Leaf *x509.Certificate

	mu     sync.Mutex
	stream grpc.BidiStreamingServer[fleetv1.AgentMessage, fleetv1.ControllerMessage]
	kill   chan struct{}
	once   sync.Once

	confirmed *fleetv1.SupersededAck
	endEvents chan error
	ended     chan struct{}
}

// Ended is closed when all that the agent has sent on its command stream has been taken, and the stream is over.
func (s *Session) Ended() <-chan struct{} { return s.ended }

// EndEvents ends the session's event stream, and not its command stream.
func (s *Session) EndEvents(err error) { s.endEvents <- err }

// Confirmed is the agent's confirmation that it was superseded; nil before.
func (s *Session) Confirmed() *fleetv1.SupersededAck {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed
}

// Send sends a message; an error means that the session is over, which the test sees elsewhere.
func (s *Session) Send(m *fleetv1.ControllerMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.stream.Send(m)
}

// Break ends the session as a lost connection would.
func (s *Session) Break() { s.once.Do(func() { close(s.kill) }) }

type fleet struct {
	fleetv1.UnimplementedAgentServiceServer
	c *Controller
}

// Commands implements the service.
func (f *fleet) Commands(stream grpc.BidiStreamingServer[fleetv1.AgentMessage, fleetv1.ControllerMessage]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	s := &Session{Hello: first.GetHello(), stream: stream, kill: make(chan struct{}), endEvents: make(chan error, 1),
		ended: make(chan struct{}), Leaf: leafOf(stream.Context())}
	var open []*fleetv1.Command
	var epoch int64
	f.c.update(func() {
		f.c.epoch++
		epoch = f.c.epoch
	})
	s.Welcome = f.c.welcome(s.Hello, epoch)
	s.Send(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Welcome{Welcome: s.Welcome}})
	f.c.update(func() {
		f.c.sessions = append(f.c.sessions, s)
		for _, cmd := range f.c.commands {
			if len(f.c.results[cmd.GetCommandId()]) == 0 {
				open = append(open, cmd)
			}
		}
	})
	for _, cmd := range open {
		s.Send(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Command{Command: cmd}})
	}
	received := make(chan error, 1)
	task.Background("receive", func() {
		defer close(s.ended)
		received <- f.receive(s)
	})
	select {
	case err := <-received:
		return err
	case <-s.kill:
		return status.Error(codes.Unavailable, "broken by the test")
	}
}

func (f *fleet) receive(s *Session) error {
	for {
		m, err := s.stream.Recv()
		if err != nil {
			return err
		}
		if answer := f.handle(s, m); answer != nil {
			s.Send(answer)
		}
	}
}

func (f *fleet) handle(s *Session, m *fleetv1.AgentMessage) *fleetv1.ControllerMessage {
	hooks := f.c.hook()
	switch b := m.GetMessage().(type) {
	case *fleetv1.AgentMessage_Ack:
		f.c.update(func() { f.c.acks[b.Ack.GetCommandId()] = append(f.c.acks[b.Ack.GetCommandId()], b.Ack.GetState()) })
	case *fleetv1.AgentMessage_GrantRequest:
		return f.ask(s, b.GrantRequest)
	case *fleetv1.AgentMessage_Result:
		id := b.Result.GetCommandId()
		f.c.update(func() { f.c.results[id] = append(f.c.results[id], b.Result) })
		if hooks.Result != nil {
			return hooks.Result(s, b.Result)
		}
		return AckMessage(id, true)
	case *fleetv1.AgentMessage_SupersededAck:
		s.mu.Lock()
		s.confirmed = b.SupersededAck
		s.mu.Unlock()
		s.Break()
	case *fleetv1.AgentMessage_Progress:
		f.c.update(func() { f.c.progress = append(f.c.progress, b.Progress) })
	}
	return nil
}

// ask grants by default, under the rule that a number is used once.
func (f *fleet) ask(s *Session, r *fleetv1.GrantRequest) *fleetv1.ControllerMessage {
	var repeated bool
	f.c.update(func() {
		repeated = r.GetSeq() <= f.c.lastSeq[r.GetStateId()]
		f.c.lastSeq[r.GetStateId()] = max(r.GetSeq(), f.c.lastSeq[r.GetStateId()])
		f.c.asks = append(f.c.asks, r)
	})
	if repeated {
		return RefusedMessage(r, "AGENT_STATE_ROLLED_BACK", true, 0)
	}
	if h := f.c.hook().Grant; h != nil {
		return h(s, r)
	}
	return GrantMessage(f.c.Sign(r, nil))
}

// Events implements the service.
func (f *fleet) Events(stream grpc.BidiStreamingServer[fleetv1.EventsRequest, fleetv1.EventsResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	var end chan error
	f.c.Wait("the session of an event stream", func() bool {
		f.c.mu.Lock()
		defer f.c.mu.Unlock()
		for _, s := range f.c.sessions {
			if s.Welcome.GetSessionId() == first.GetHello().GetSessionId() {
				end = s.endEvents
			}
		}
		return end != nil || stream.Context().Err() != nil
	})
	received := make(chan error, 1)
	task.Background("receive events", func() { received <- f.receiveEvents(stream) })
	select {
	case err := <-received:
		return err
	case err := <-end:
		return err
	}
}

func (f *fleet) receiveEvents(stream grpc.BidiStreamingServer[fleetv1.EventsRequest, fleetv1.EventsResponse]) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		switch b := m.GetMessage().(type) {
		case *fleetv1.EventsRequest_Heartbeat:
			f.c.update(func() { f.c.beats++ })
		case *fleetv1.EventsRequest_Event:
			f.c.update(func() { f.c.events = append(f.c.events, b.Event) })
			seq := b.Event.GetSeq()
			if h := f.c.hook().EventAck; h != nil {
				seq = h(b.Event)
			}
			if seq == 0 {
				continue
			}
			if err := stream.Send(&fleetv1.EventsResponse{AckedSeq: seq}); err != nil {
				return err
			}
		}
	}
}

// RotateAgentCert implements the service.
func (f *fleet) RotateAgentCert(
	_ context.Context, r *fleetv1.RotateAgentCertRequest,
) (*fleetv1.RotateAgentCertResponse, error) {
	csr, err := pki.ParseCSR(r.GetCsr())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	chain := f.c.certify(csr.PublicKey)
	if h := f.c.hook().Rotate; h != nil {
		if err := h(); err != nil {
			return nil, err
		}
	}
	return &fleetv1.RotateAgentCertResponse{CertificateChainPem: chain, TrustBundlePem: pki.EncodeCerts(f.c.ca.root)}, nil
}

func (c *Controller) certify(pub crypto.PublicKey) []byte {
	var n int
	c.update(func() {
		c.certs++
		n = c.certs
	})
	from, to := time.Now().Add(-2*time.Hour), time.Now().Add(7*24*time.Hour)
	if h := c.hook().Certificate; h != nil {
		from, to = h(n)
	}
	return c.ca.agent(c.t, c.AgentID, pub, from, to)
}

type enrolment struct {
	enrollv1.UnimplementedEnrollmentServiceServer
	c *Controller
}

// Enroll implements the service.
func (e *enrolment) Enroll(_ context.Context, r *enrollv1.EnrollRequest) (*enrollv1.EnrollResponse, error) {
	var lose error
	if h := e.c.hook().Enroll; h != nil {
		var err error
		if lose, err = h(r); err != nil {
			return nil, err
		}
	}
	if r.GetTokenSecret() != e.c.token.Secret {
		return nil, status.Error(codes.Unauthenticated, "no such token")
	}
	csr, err := pki.ParseCSR(r.GetCsr())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	answer, err := e.issue(csr.PublicKey)
	if err != nil {
		return nil, err
	}
	return answer, lose
}

func (e *enrolment) issue(pub crypto.PublicKey) (*enrollv1.EnrollResponse, error) {
	hash, err := pki.PublicKeyHash(pub)
	if err != nil {
		return nil, err
	}
	e.c.mu.Lock()
	before, used := e.c.enrolled[hash], len(e.c.enrolled) > 0
	e.c.mu.Unlock()
	if before != nil {
		return before, nil
	}
	if used {
		return nil, status.Error(codes.Unauthenticated, "no such token")
	}
	answer := &enrollv1.EnrollResponse{
		AgentId: e.c.AgentID, MachineId: e.c.MachineID, Role: e.c.Role, CertificateChainPem: e.c.certify(pub),
		TrustBundlePem: pki.EncodeCerts(e.c.ca.root), FleetAddresses: []string{e.c.FleetAddr},
	}
	e.c.update(func() { e.c.enrolled[hash] = answer })
	return answer, nil
}

// Reenroll implements the service: it checks the proof.
func (e *enrolment) Reenroll(ctx context.Context, r *enrollv1.ReenrollRequest) (*enrollv1.ReenrollResponse, error) {
	old, err := x509.ParseCertificate(r.GetCertificate())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	csr, err := pki.ParseCSR(r.GetCsr())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	p, _ := peer.FromContext(ctx)
	message, err := pki.ReenrollMessage(p.AuthInfo.(credentials.TLSInfo).State, csr.PublicKey)
	if err != nil {
		return nil, err
	}
	if err := pki.VerifyReenroll(old.PublicKey, message, r.GetSignature()); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	chain := e.c.certify(csr.PublicKey)
	e.c.update(func() { e.c.reenrols++ })
	return &enrollv1.ReenrollResponse{
		AgentId: e.c.AgentID, CertificateChainPem: chain, TrustBundlePem: pki.EncodeCerts(e.c.ca.root),
		FleetAddresses: []string{e.c.FleetAddr},
	}, nil
}

func leafOf(ctx context.Context) *x509.Certificate {
	p, _ := peer.FromContext(ctx)
	return p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0]
}
