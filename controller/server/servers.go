// Package server opens the controller's listeners, bounds their connections and calls, and puts interceptors before
// their handlers.
package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/ingot-metal/ingot/controller/api/public/access"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/limit/ratelimit"
	"github.com/ingot-metal/ingot/controller/session"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/obs"
	"github.com/ingot-metal/ingot/internal/obs/metrics"
	"github.com/ingot-metal/ingot/internal/obs/traces"
)

const (
	// prefaceTime is how long the first bytes of HTTP/2 may take after a handshake.
	prefaceTime = 20 * time.Second
	// enrolmentMessage is more than a key and its proof have, in bytes. The sender is not authenticated.
	enrolmentMessage = 64 << 10
	// enrolmentStreams are calls on one connection, enrolmentTime is how long one takes, and enrolmentAge how long a
	// connection is good for. enrolmentBytes is how large the messages are together that wait for their answers.
	enrolmentStreams = 8
	enrolmentBytes   = 16 << 20
	enrolmentTime    = 30 * time.Second
	enrolmentAge     = 5 * time.Minute
	// headerBytes bound the metadata of a call.
	headerBytes = 16 << 10
	// windowBytes are what a call's sender may send before it is read: the least that HTTP/2 has.
	windowBytes = 64<<10 - 1
	// fleetStreams are the calls of an agent on one connection.
	fleetStreams = 100
)

// Config is what the servers work with. All but Traces is required.
type Config struct {
	Config   *config.Config
	Logger   *slog.Logger
	Clock    clock.Clock
	CA       *ca.Authority
	Certs    *ca.ServerCerts
	Tokens   *auth.Tokens
	Sessions *session.Registry
	// Agents holds the certificates of agents.
	Agents  *agentstore.Store
	Metrics *metrics.Metrics
	// Limiter bounds what clients may ask, by gRPC and by REST together.
	Limiter *ratelimit.Limiter
	// Access holds clients to the machines of their roles.
	Access access.Interceptor
	// Traces writes the traces of calls; nil writes none.
	Traces *traces.Tracer
	// Started is closed once calls are served.
	Started <-chan struct{}
}

// Servers are the gRPC servers of a controller, each on its listener. Their services are registered by the caller.
type Servers struct {
	cfg       Config
	listeners Listeners
	bounded   bounded
	// frontpageEnds is the end of the frontpage's certificate from a file; zero where it has none.
	frontpageEnds time.Time

	// Frontpage serves clients, Fleet agents with a certificate, and Enrolment those without one.
	Frontpage, Fleet, Enrolment *grpc.Server
}

// New puts bounds on the listeners and makes their servers. It serves nothing yet.
func New(c Config, l Listeners) (*Servers, error) {
	s := &Servers{cfg: c, listeners: l}
	if err := s.boundListeners(); err != nil {
		return nil, err
	}
	front := s.frontpageGuard()
	agents := newAgentCalls(c.Sessions)
	clients := c.Config.Clients
	s.Frontpage = s.server(front, ratelimit.Handshaken{}, append(s.clientBounds(), s.knock(front).option(),
		// Whoever has more than that open on one connection waits on its own side.
		grpc.MaxConcurrentStreams(uint32(clients.StreamsPerClient+clients.WaitingPerClient)))...)
	s.Fleet = s.server(auth.GuardConfig{Listener: auth.Fleet, Tokens: c.Tokens, CheckAgent: s.checkCaller},
		ratelimit.Handshaken{},
		append(agents.options(), grpc.HeaderTableSize(0), grpc.MaxConcurrentStreams(fleetStreams))...)
	s.Enrolment = s.server(auth.GuardConfig{Listener: auth.Enrolment}, ratelimit.Handshaken{}, append(s.enrolmentBounds(),
		grpc.MaxRecvMsgSize(enrolmentMessage), grpc.MaxConcurrentStreams(enrolmentStreams), grpc.HeaderTableSize(0),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: enrolmentAge, Time: 30 * time.Second,
			Timeout: 15 * time.Second}))...)
	return s, nil
}

func (s *Servers) frontpageGuard() auth.GuardConfig {
	return auth.GuardConfig{Listener: auth.Frontpage, Tokens: s.cfg.Tokens}
}

// FrontpageEnds returns the end of the frontpage's certificate from a file; zero where it has none.
func (s *Servers) FrontpageEnds() time.Time { return s.frontpageEnds }

// CutAgent closes the connection of a call of an agent.
func (s *Servers) CutAgent(ctx context.Context) { s.bounded.fleet.CloseConn(ctx) }

// REST is how requests of REST reach the frontpage's services.
type REST struct {
	// Server has the interceptors of the frontpage. It is reached from inside the process alone.
	Server *grpc.Server
	// Listener has the bounds of the listener.
	Listener *ratelimit.Listener
	// Knock looks at a request before its body is read.
	Knock func(ctx context.Context, method string, authorization []string) error
}

// REST makes the server behind the listener of REST and the console.
func (s *Servers) REST() REST {
	front := s.frontpageGuard()
	knock := s.knock(front)
	knock.conns = s.bounded.rest
	return REST{
		Server:   s.server(front, insecure.NewCredentials(), s.clientBounds()...),
		Listener: s.bounded.rest, Knock: knock.rest,
	}
}

// HTTP returns the listener of health and metrics, with its bounds.
func (s *Servers) HTTP() *ratelimit.Listener { return s.bounded.http }

// clientBounds bounds what clients may ask, by gRPC and by REST together, holds them to their machines, and traces it.
func (s *Servers) clientBounds() []grpc.ServerOption {
	out := newAnswers()
	unary := []grpc.UnaryServerInterceptor{s.cfg.Limiter.Unary(), s.cfg.Access.Unary(), out.unary}
	if s.cfg.Traces != nil {
		unary = append([]grpc.UnaryServerInterceptor{s.cfg.Traces.Unary(s.cfg.Clock, codeOf)}, unary...)
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(unary...),
		grpc.ChainStreamInterceptor(s.cfg.Limiter.Stream(), s.cfg.Access.Stream(), out.stream),
	}
}

// codeOf returns the code that a client gets for a handler's error.
func codeOf(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	return failure.ToStatus(failure.From(err)).Code()
}

// server makes a gRPC server behind the interceptors that every listener has.
func (s *Servers) server(
	g auth.GuardConfig, t credentials.TransportCredentials, more ...grpc.ServerOption,
) *grpc.Server {
	guard := auth.NewGuard(g)
	calls := obs.CallLog{Logger: s.cfg.Logger, Observe: s.cfg.Metrics.ObserveCall}
	errs := failure.Interceptor{Logger: s.cfg.Logger}
	texts := textsOf(g.Listener)
	return grpc.NewServer(append([]grpc.ServerOption{
		grpc.Creds(t),
		grpc.MaxRecvMsgSize(s.cfg.Config.MaxMessageBytes),
		grpc.ChainUnaryInterceptor(calls.Unary(), errs.Unary(), guard.Unary(), s.gateUnary, texts.unary),
		grpc.ChainStreamInterceptor(calls.Stream(), errs.Stream(), guard.Stream(), s.gateStream, texts.stream),
		// What a connection costs before its caller is known: no buffers of its own, and no windows that grow.
		grpc.ConnectionTimeout(prefaceTime), grpc.ReadBufferSize(0), grpc.MaxHeaderListSize(headerBytes),
		grpc.StaticStreamWindowSize(windowBytes), grpc.StaticConnWindowSize(windowBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 15 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}, more...)...)
}

// Gate refuses calls until the database has answered once and its schema is up to date.
func (s *Servers) Gate() error {
	select {
	case <-s.cfg.Started:
		return nil
	default:
		return failure.Unavailable("DATABASE_UNAVAILABLE", "the controller is waiting for its database")
	}
}

func (s *Servers) gateUnary(
	ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	if err := s.Gate(); err != nil {
		return nil, err
	}
	return next(ctx, r)
}

func (s *Servers) gateStream(
	srv any,
	stream grpc.ServerStream,
	_ *grpc.StreamServerInfo,
	next grpc.StreamHandler,
) error {
	if err := s.Gate(); err != nil {
		return err
	}
	return next(srv, stream)
}

// ServeFrontpage serves calls of clients until ctx ends.
func (s *Servers) ServeFrontpage(ctx context.Context) error {
	return s.Run(ctx, s.Frontpage, s.listeners.Frontpage)
}

// ServeFleet serves calls of agents until ctx ends.
func (s *Servers) ServeFleet(ctx context.Context) error {
	return s.Run(ctx, s.Fleet, s.listeners.Fleet)
}

// ServeEnrolment serves calls of agents without a certificate until ctx ends.
func (s *Servers) ServeEnrolment(ctx context.Context) error {
	return s.Run(ctx, s.Enrolment, s.listeners.Enrolment)
}

// Run runs one gRPC server until ctx ends: from then on it takes nothing new, and it returns when the calls under way
// have ended or were cut off.
func (s *Servers) Run(ctx context.Context, server *grpc.Server, l net.Listener) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		force := time.AfterFunc(s.cfg.Config.Drain.Timeout.Duration, server.Stop)
		defer force.Stop()
		server.GracefulStop()
	})
	if err := server.Serve(l); err != nil && ctx.Err() == nil {
		stop()
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	<-ctx.Done()
	<-ended
	return nil
}
