// Package agent serves fleet.v1 to enrolled agents: sessions with commands, grants and results; events; and the
// rotation of certificates.
//
// An agent's identity is its certificate's, whatever it sends. A session's epoch is taken in Postgres. A stale session
// changes nothing, but a result counts over any session, as long as it comes from the executor.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/controller/engine"
	"github.com/ingot-metal/ingot/controller/limit/reconnect"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/controller/session"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/hwid"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
)

// Config is what the service works with.
type Config struct {
	Engine       *engine.Agents
	Store        Stores
	Sessions     *session.Registry
	CA           *ca.Authority
	Blobs        blob.Store
	Secrets      *secret.Box
	Installers   *Installers
	Clock        clock.Clock
	Logger       *slog.Logger
	ControllerID string
	CertLifetime time.Duration
	MaxMessage   int
	// FleetAddresses and EnrolmentAddresses are where agents connect to, host:port.
	FleetAddresses, EnrolmentAddresses []string
	// Admission bounds how fast sessions are opened.
	Admission reconnect.Limits
	// Paced is called for each agent that must come again later; may be nil.
	Paced func()
	// Draining ends when the controller shuts down. Spread is over what time its agents then go elsewhere.
	Draining context.Context
	Spread   func() time.Duration
	// Cut closes the connection of a call whose other end does not read.
	Cut func(call context.Context)
}

// Server implements fleet.v1.AgentService.
type Server struct {
	fleetv1.UnimplementedAgentServiceServer
	cfg  Config
	gate sessionLimit
}

// New makes the service.
func New(c Config) *Server {
	return &Server{cfg: c, gate: sessionLimit{limits: c.Admission, clock: c.Clock}}
}

// capDiscovery is the capability of agents that look for BMCs.
const capDiscovery = "bmc-discovery"

// cutAfter is how long a session's stream may take to end before its connection is closed under it.
const cutAfter = 5 * time.Second

// helloTimeout is how long a new stream may take to say hello.
const helloTimeout = 10 * time.Second

// Commands opens a session and serves it until it ends.
func (s *Server) Commands(stream grpc.BidiStreamingServer[fleetv1.AgentMessage, fleetv1.ControllerMessage]) error {
	who, err := agentOf(stream.Context())
	if err != nil {
		return err
	}
	if !s.cfg.Engine.LeaseFresh() {
		return failure.Unavailable("CONTROLLER_LEASE_LOST", "this controller is cut off from its database; try again")
	}
	if s.cfg.Draining.Err() != nil {
		return draining()
	}
	hello, err := s.receiveHello(stream)
	if err != nil {
		return err
	}
	sess, opened, err := s.admit(stream.Context(), who, hello)
	if err != nil {
		return err
	}
	defer s.close(sess)
	defer s.cutWhereStuck(stream.Context(), sess)()
	return s.serve(stream, sess, opened)
}

// cutWhereStuck cuts the connection when the session has ended and its stream has not, since the peer does not read.
// The caller calls the returned function when the stream has ended.
func (s *Server) cutWhereStuck(call context.Context, sess *session.Session) (ended func()) {
	done := make(chan struct{})
	context.AfterFunc(sess.Context(), func() {
		select {
		case <-done:
		case <-s.cfg.Clock.After(cutAfter):
			s.cfg.Cut(call)
		}
	})
	return func() { close(done) }
}

// admit opens a session when it is its turn.
func (s *Server) admit(
	ctx context.Context, who auth.Agent, h *fleetv1.Hello,
) (sess *session.Session, opened *sessionstore.Opened, err error) {
	if err := s.gate.enter(ctx); err != nil {
		if s.cfg.Paced != nil && failure.ReasonOf(err) == "ADMISSION_PACED" {
			s.cfg.Paced()
		}
		return nil, nil, err
	}
	defer s.gate.leave()
	err = task.Apart(ctx, "open session", func(ctx context.Context) error {
		sess, opened, err = s.open(ctx, who, h)
		return err
	})
	return sess, opened, err
}

type commandStream = grpc.BidiStreamingServer[fleetv1.AgentMessage, fleetv1.ControllerMessage]

func (s *Server) receiveHello(stream commandStream) (*fleetv1.Hello, error) {
	type received struct {
		m   *fleetv1.AgentMessage
		err error
	}
	got := make(chan received, 1)
	task.Background("receive hello", func() {
		m, err := stream.Recv()
		got <- received{m, err}
	})
	select {
	case r := <-got:
		if r.err != nil {
			return nil, r.err
		}
		h := r.m.GetHello()
		if h == nil || h.GetStateId() == "" || h.GetBootId() == "" {
			return nil,
				failure.Invalid("INVALID_FIELD", "the first message must be a hello with state_id and boot_id").WithField("hello",
					"missing")
		}
		return h, nil
	case <-s.cfg.Clock.After(helloTimeout):
		return nil, failure.Invalid("INVALID_FIELD", "no hello came").WithField("hello", "missing")
	}
}

func (s *Server) open(
	ctx context.Context, who auth.Agent, h *fleetv1.Hello,
) (*session.Session, *sessionstore.Opened, error) {
	now := s.cfg.Clock.Now()
	if err := s.cfg.Engine.StartedGrant(ctx, who.ID, h.GetStartedGrant()); err != nil {
		return nil, nil, err
	}
	p := session.Peer{
		AgentID: who.ID, SessionID: ids.New(ids.Session), Fingerprint: pki.Fingerprint(who.Cert.Raw), StateID: h.GetStateId(),
		BootID: h.GetBootId(), Hardware: h.GetHardwareFingerprint(), Simulated: h.GetSimulated(),
		Locked: h.GetLockedReason() != "", Discovers: slices.Contains(h.GetCapabilities(), capDiscovery),
		CertificateEnds: who.Cert.NotAfter,
	}
	p.Generation, _ = s.cfg.CA.Of(who.Cert) // the handshake has refused generations that are not in force
	opened, err := s.cfg.Store.Sessions.OpenSession(ctx, sessionstore.Hello{
		AgentID: p.AgentID, Fingerprint: p.Fingerprint, SessionID: p.SessionID, ControllerID: s.cfg.ControllerID,
		Version: h.GetVersion(), Capabilities: h.GetCapabilities(), Simulated: h.GetSimulated(), BootID: h.GetBootId(),
		HardwareFingerprint: h.GetHardwareFingerprint(), StateID: h.GetStateId(), ImageDigest: h.GetOsImageDigest(),
		LockedReason: h.GetLockedReason(), LastGrantSeq: h.GetLastGrantSeq(), LastEventSeq: h.GetLastEventSeq(),
		PreviousStateID: h.GetPreviousStateId(),
	}, now)
	if err != nil {
		return nil, nil, err
	}
	p.MachineID, p.Role, p.Site, p.Epoch = opened.MachineID, opened.Role, opened.Site, opened.Epoch
	sess := session.New(ctx, p, now)
	old, ok := s.cfg.Sessions.Add(sess)
	if !ok {
		return nil, nil, failure.Aborted("SESSION_SUPERSEDED", "a newer session of this agent is open")
	}
	if old != nil {
		session.Retire(old, s.cfg.Clock)
	}
	remarks := hwid.Compare(opened.PreviousHardware, p.Hardware)
	s.cfg.Logger.Info("session opened", "agent_id", p.AgentID, "machine_id", p.MachineID, "session_id", p.SessionID,
		"epoch", p.Epoch, "boot_id", p.BootID, "fingerprint", p.Fingerprint, "simulated", p.Simulated,
		"rolled_back", opened.RolledBack, "cloned", opened.Cloned, "hardware", remarks.String())
	return sess, opened, nil
}

func (s *Server) close(sess *session.Session) {
	sess.Close(context.Canceled)
	s.cfg.Sessions.Remove(sess)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(sess.Context()), 2*time.Second)
	defer cancel()
	if err := s.cfg.Store.Sessions.EndSession(ctx, sess.AgentID, sess.SessionID, s.cfg.Clock.Now()); err != nil {
		s.cfg.Logger.Warn("session end not recorded; missed heartbeats will show it", "agent_id", sess.AgentID, "error",
			err.Error())
	}
	s.cfg.Logger.Info("session closed", "agent_id", sess.AgentID, "session_id", sess.SessionID, "why",
		context.Cause(sess.Context()).Error())
}

// serve sends Welcome, then reads until the session ends. When the controller stops, the agent is asked to connect
// elsewhere in its own time; meanwhile the session goes on.
func (s *Server) serve(stream commandStream, sess *session.Session, opened *sessionstore.Opened) error {
	if err := stream.Send(s.welcome(sess, opened)); err != nil {
		return err
	}
	defer closeWithSession(stream.Context(), sess)()
	sess.Serve(func(m *fleetv1.ControllerMessage) error {
		if !s.maySend(m) {
			return nil
		}
		return stream.Send(m)
	})
	defer context.AfterFunc(s.cfg.Draining, func() {
		sess.Send(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Drain{
			Drain: &fleetv1.Drain{SpreadMs: int32(s.cfg.Spread().Milliseconds())},
		}})
	})()
	task.Background("settle session", func() { s.settle(sess, opened) })
	err := receive(s, sess, stream.Recv, func(list []*fleetv1.AgentMessage) error { return s.take(sess, list) })
	if stuck := sess.Finish(orCanceled(err)); stuck {
		s.cfg.Cut(stream.Context()) // our last message would wait behind unread ones
	}
	return statusOf(context.Cause(sess.Context()))
}

func (s *Server) settle(sess *session.Session, opened *sessionstore.Opened) {
	if err := s.cfg.Engine.SessionOpened(sess.Context(), sess, opened); err != nil && sess.Context().Err() == nil {
		// The agent opens a new session and everything is looked at again.
		s.cfg.Logger.Error("session not settled; closing it", "agent_id", sess.AgentID, "error", err.Error())
		sess.Close(err)
	}
	if opened.Cloned || opened.RolledBack {
		s.cfg.Logger.Warn("agent's memory or boot is older than what has been seen", "agent_id", sess.AgentID, "machine_id",
			sess.MachineID)
	}
}

func orCanceled(err error) error {
	if err == nil {
		return context.Canceled
	}
	return err
}

func (s *Server) welcome(sess *session.Session, opened *sessionstore.Opened) *fleetv1.ControllerMessage {
	return &fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Welcome{Welcome: &fleetv1.Welcome{
		SessionId: sess.SessionID, Epoch: sess.Epoch,
		HeartbeatIntervalMs: int32(s.cfg.Engine.HeartbeatInterval().Milliseconds()),
		MaxMessageBytes:     int32(s.cfg.MaxMessage), ControllerTime: timestamppb.New(s.cfg.Clock.Now()),
		GrantKeys: [][]byte{grantPublicKey(s.cfg.CA)}, StateRolledBack: opened.RolledBack, TrustBundle: s.cfg.CA.RootPEM(),
		ControllerId: s.cfg.ControllerID, AgentId: sess.AgentID, MachineId: sess.MachineID,
		PreviousEventSeq: opened.PreviousEventSeq,
	}}}
}

// maySend reports whether a message may be sent: commands and grants only under a lease that is not in doubt, since
// this process may have stood still since then. The look for unanswered commands sends a command again, and the agent
// asks for a grant again.
func (s *Server) maySend(m *fleetv1.ControllerMessage) bool {
	switch m.GetMessage().(type) {
	case *fleetv1.ControllerMessage_Command, *fleetv1.ControllerMessage_Grant:
		return s.cfg.Engine.LeaseFresh()
	}
	return true
}

// statusOf returns the status by which an agent learns why its session has ended.
func statusOf(cause error) error {
	switch {
	case errors.Is(cause, session.ErrSuperseded):
		return failure.Aborted("SESSION_SUPERSEDED", "%s", cause.Error())
	case errors.Is(cause, session.ErrRevoked):
		return failure.Unauthenticated("CERTIFICATE_REVOKED", "%s", cause.Error())
	case errors.Is(cause, session.ErrLeaseLost):
		return failure.Unavailable("CONTROLLER_LEASE_LOST", "%s", cause.Error())
	case errors.Is(cause, session.ErrHistory):
		return failure.Unavailable("DATABASE_WENT_BACK", "%s", cause.Error())
	case errors.Is(cause, session.ErrDraining):
		return draining()
	case errors.Is(cause, session.ErrSlow):
		return failure.Exhausted("SLOW_READER", "%s", cause.Error())
	case errors.Is(cause, session.ErrSilent):
		return failure.Aborted("SESSION_UNKNOWN", "%s", cause.Error())
	default:
		return cause
	}
}

const (
	// takenAtOnce bounds the messages that are taken together.
	takenAtOnce = 64
	// largeMessage is the size, in bytes, from which a message is taken before the next one is received: takenAtOnce
	// messages of the largest size would fill memory.
	largeMessage = 64 << 10
)

// received is a message that waits to be taken. taken is closed then; it is nil for a message that is not large.
type received[M any] struct {
	message M
	taken   chan struct{}
}

// receive passes an agent's messages on in their order, and returns the first error. Those of a site's agent or of an
// installer that have arrived together are passed on together: a site has many machines, and an installation many log
// lines. A host's are passed on one by one; there are too many hosts for a buffer and a goroutine each.
func receive[M proto.Message](
	s *Server, sess *session.Session, recv func() (M, error), take func([]M) error,
) error {
	if sess.Role == "host" {
		for {
			m, err := recv()
			if err != nil {
				return err
			}
			sess.Beat(s.cfg.Clock.Now())
			err = task.Apart(sess.Context(), "take message", func(context.Context) error { return take([]M{m}) })
			if err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithCancel(sess.Context())
	defer cancel() // ends the reader where a message cannot be taken
	messages, ended := make(chan received[M], takenAtOnce), make(chan error, 1)
	task.Background("read messages of an agent", func() {
		defer close(messages)
		ended <- readAhead(ctx, messages, func() (M, error) {
			m, err := recv()
			if err == nil {
				sess.Beat(s.cfg.Clock.Now())
			}
			return m, err
		})
	})
	for first := range messages {
		all := []received[M]{first}
		for len(messages) > 0 && len(all) < takenAtOnce {
			all = append(all, <-messages)
		}
		list := make([]M, len(all))
		for i, r := range all {
			list[i] = r.message
		}
		err := task.Run(sess.Context(), "take messages", func(context.Context) error { return take(list) })
		if err != nil {
			return err
		}
		for _, r := range all {
			if r.taken != nil {
				close(r.taken)
			}
		}
	}
	return <-ended
}

// readAhead receives messages until one fails or ctx ends, and returns why. After a large message it waits until that
// is taken.
func readAhead[M proto.Message](ctx context.Context, messages chan<- received[M], recv func() (M, error)) error {
	for {
		m, err := recv()
		if err != nil {
			return err
		}
		r := received[M]{message: m}
		if proto.Size(m) >= largeMessage {
			r.taken = make(chan struct{})
		}
		select {
		case messages <- r:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if r.taken == nil {
			continue
		}
		select {
		case <-r.taken:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take takes messages in their order. Requests for grants and results are decided together up to a message of another
// kind; an acknowledgement is written later anyway.
func (s *Server) take(sess *session.Session, list []*fleetv1.AgentMessage) error {
	var asking []*fleetv1.AgentMessage
	for _, m := range list {
		switch m.GetMessage().(type) {
		case *fleetv1.AgentMessage_GrantRequest, *fleetv1.AgentMessage_Result:
			asking = append(asking, m)
			continue
		case *fleetv1.AgentMessage_Ack:
			s.cfg.Engine.Ack(sess, m.GetAck().GetCommandId())
			continue
		}
		if err := s.answer(sess, asking); err != nil {
			return err
		}
		asking = nil
		if err := s.takeOne(sess, m); err != nil {
			return err
		}
	}
	return s.answer(sess, asking)
}

func (s *Server) answer(sess *session.Session, asking []*fleetv1.AgentMessage) error {
	if len(asking) == 0 {
		return nil
	}
	replies, err := s.cfg.Engine.Take(sess.Context(), sess, asking...)
	for _, r := range replies {
		sess.Send(r)
	}
	return err
}

func (s *Server) takeOne(sess *session.Session, m *fleetv1.AgentMessage) error {
	ctx := sess.Context()
	switch m := m.GetMessage().(type) {
	case *fleetv1.AgentMessage_SupersededAck:
		if sess.CloneSuspect() {
			if err := s.cfg.Engine.CloneProven(context.WithoutCancel(ctx), sess); err != nil {
				return err
			}
		}
		return session.ErrSuperseded
	case *fleetv1.AgentMessage_BmcsDiscovered:
		sess.Discovered(m.BmcsDiscovered)
	case *fleetv1.AgentMessage_Progress:
		p := m.Progress
		return s.cfg.Store.Operations.RecordProgress(ctx, sess.AgentID, p.GetCommandId(), p.GetPercent(), p.GetMessage(),
			s.cfg.Clock.Now())
	}
	return nil
}
