package controller

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/api/agent"
	"github.com/ingot-metal/ingot/controller/api/enroll"
	"github.com/ingot-metal/ingot/controller/api/public"
	"github.com/ingot-metal/ingot/controller/api/public/access"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/limit/ratelimit"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/obs"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
)

const (
	// prefaceTime is how long the first bytes of HTTP/2 may take after a handshake.
	prefaceTime = 20 * time.Second
	// enrolmentMessage is more than a key and its proof have, in bytes. Nobody is known who sends one.
	enrolmentMessage = 64 << 10
	// enrolmentStreams are calls on one connection, enrolmentTime is how long one takes, and enrolmentAge how long a
	// connection is good for. enrolmentBytes is how large the messages are together that wait for their answers.
	enrolmentStreams = 8
	enrolmentBytes   = 16 << 20
	enrolmentTime    = 30 * time.Second
	enrolmentAge     = 5 * time.Minute
	// headerBytes bound the metadata of a call.
	headerBytes = 16 << 10
	// windowBytes are what a call's sender may send before somebody reads it: the least that HTTP/2 has.
	windowBytes = 64<<10 - 1
	// fleetStreams are the calls of an agent on one connection.
	fleetStreams = 100
)

func (c *Controller) openServers(context.Context) error {
	if err := c.boundListeners(); err != nil {
		return err
	}
	atFront := auth.GuardConfig{Listener: auth.Frontpage, Tokens: c.tokens}
	agents := newAgentCalls(c.sessions)
	c.servers = []*grpc.Server{
		c.server(atFront, ratelimit.Handshaken{}, append(c.behindDoor(), c.knock(atFront).option(),
			// Whoever has more than that open on one connection waits on its own side.
			grpc.MaxConcurrentStreams(uint32(c.cfg.Clients.StreamsPerClient+c.cfg.Clients.WaitingPerClient)))...),
		c.server(auth.GuardConfig{Listener: auth.Fleet, Tokens: c.tokens, CheckAgent: c.checkCaller}, ratelimit.Handshaken{},
			append(agents.options(),
				grpc.HeaderTableSize(0), grpc.MaxConcurrentStreams(fleetStreams))...),
		c.server(auth.GuardConfig{Listener: auth.Enrolment}, ratelimit.Handshaken{}, append(c.enrolmentBounds(),
			grpc.MaxRecvMsgSize(enrolmentMessage), grpc.MaxConcurrentStreams(enrolmentStreams), grpc.HeaderTableSize(0),
			grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: enrolmentAge, Time: 30 * time.Second,
				Timeout: 15 * time.Second}))...),
	}
	c.registerFrontpage(c.servers[0])
	roots, err := c.tpmRoots()
	if err != nil {
		return err
	}
	installers := &agent.Installers{
		Engine: c.engine, Identities: c.store.Identities, Operations: c.store.Operations,
		Sessions: c.sessions, CA: c.ca, Secrets: c.secrets, Clock: c.clock, Logger: c.log,
		CertLifetime: c.cfg.Agents.CertLifetime.Duration, Roots: roots,
	}
	fleetv1.RegisterAgentServiceServer(c.servers[1], agent.New(agent.Config{
		Engine: c.engine, Store: agent.Stores{
			Agents: c.store.Agents, Sessions: c.store.Sessions, Operations: c.store.Operations,
			Credentials: c.store.Credentials, Sites: c.store.Sites, Identities: c.store.Identities,
		}, Sessions: c.sessions, CA: c.ca, Installers: installers, Blobs: c.blobs,
		Secrets: c.secrets, Clock: c.clock, Logger: c.log, ControllerID: c.id,
		CertLifetime: c.cfg.Agents.CertLifetime.Duration, Admission: c.cfg.Agents.Admission.Limits(), Spread: c.spread,
		Cut: c.bounded.fleet.CloseConn, Paced: c.metrics.SessionsPaced.Inc,
		MaxMessage: c.cfg.MaxMessageBytes, Draining: c.draining, FleetAddresses: c.cfg.FleetAddresses(),
		EnrolmentAddresses: c.cfg.EnrolmentAddresses(),
	}))
	enrollv1.RegisterEnrollmentServiceServer(c.servers[2], enroll.New(enroll.Config{
		Store:          c.store.Agents,
		CA:             c.ca,
		Installers:     installers,
		Clock:          c.clock,
		CertLifetime:   c.cfg.Agents.CertLifetime.Duration,
		Grace:          c.cfg.Agents.ReenrollGrace.Duration,
		FleetAddresses: c.cfg.FleetAddresses(),
	}))
	return nil
}

// behindDoor bounds what clients may ask, by gRPC and by REST together, holds them to their machines, and traces it.
func (c *Controller) behindDoor() []grpc.ServerOption {
	held, out := accessOf(c.store), newAnswers()
	unary := []grpc.UnaryServerInterceptor{c.door.Unary(), held.Unary(), out.unary}
	if c.traces != nil {
		unary = append([]grpc.UnaryServerInterceptor{c.traces.Unary(c.clock, codeOf)}, unary...)
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(c.door.Stream(), held.Stream(), out.stream),
	}
}

// accessOf returns the interceptor that holds clients to the machines of their roles.
func accessOf(s *store.Store) access.Interceptor {
	return access.Interceptor{
		Machines: s.Machines, Operations: s.OperationQueries, Workflows: s.Workflows, Nodes: s.Nodes,
	}
}

// tokenSource returns where bearer tokens, people and refused calls are stored.
func tokenSource(s *store.Store) auth.Source {
	return auth.Source{PeopleSource: s.Access, TokenSource: s.Credentials, RefusalSource: s.History}
}

// codeOf is the code that a client gets for a handler's error.
func codeOf(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	return failure.ToStatus(failure.From(err)).Code()
}

func (c *Controller) registerFrontpage(s *grpc.Server) {
	var signOn func(context.Context) (*baremetalv1.SignOn, error)
	if c.signOn != nil {
		signOn = c.signOn.SignOn
	}
	public.Register(s, service.Config{
		SignOn: signOn,
		Engine: c.engine, Images: c.images, Scripts: c.scripts, Secrets: c.secrets, Clock: c.clock,
		Draining: c.draining, Sessions: c.sessions,
		WebhookPolicy: c.webhookPolicy(), WebhookSource: c.cfg.Webhooks.Source,
		Tokens:      c.tokens,
		Info:        service.Info{Version: c.version, ControllerID: c.id, RESTAddress: c.cfg.Listen.REST},
		Incarnation: c.store.Incarnations.Incarnation, DocumentSigner: c.ca.DocumentSigner, CA: c.ca,
		CAGrace: c.cfg.Agents.ReenrollGrace.Duration,
		Bundle: func(tokenID, secret string, issued time.Time) (string, error) {
			return pki.Bundle{
				TokenID: tokenID, Secret: secret, CAHash: c.ca.RootHash(), Addresses: c.cfg.EnrolmentAddresses(), IssuedAt: issued,
			}.Encode()
		},
	}, c.store)
	healthv1.RegisterHealthServer(s, health.NewServer())
	if c.cfg.Reflection {
		reflection.Register(s)
	}
}

// server makes a gRPC server behind the interceptors that every listener has.
func (c *Controller) server(
	g auth.GuardConfig, t credentials.TransportCredentials, more ...grpc.ServerOption,
) *grpc.Server {
	guard := auth.NewGuard(g)
	calls := obs.CallLog{Logger: c.log, Observe: c.metrics.ObserveCall}
	errs := failure.Interceptor{Logger: c.log}
	texts := textsOf(g.Listener)
	return grpc.NewServer(append([]grpc.ServerOption{
		grpc.Creds(t),
		grpc.MaxRecvMsgSize(c.cfg.MaxMessageBytes),
		grpc.ChainUnaryInterceptor(calls.Unary(), errs.Unary(), guard.Unary(), c.gateUnary, texts.unary),
		grpc.ChainStreamInterceptor(calls.Stream(), errs.Stream(), guard.Stream(), c.gateStream, texts.stream),
		// What a connection costs before it is known whose it is: no buffers of its own, and no windows that grow.
		grpc.ConnectionTimeout(prefaceTime), grpc.ReadBufferSize(0), grpc.MaxHeaderListSize(headerBytes),
		grpc.StaticStreamWindowSize(windowBytes), grpc.StaticConnWindowSize(windowBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 15 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}, more...)...)
}

// gate refuses calls until the database has answered once and its schema is up to date.
func (c *Controller) gate() error {
	select {
	case <-c.started:
		return nil
	default:
		return failure.Unavailable("DATABASE_UNAVAILABLE", "the controller is waiting for its database")
	}
}

func (c *Controller) gateUnary(
	ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	if err := c.gate(); err != nil {
		return nil, err
	}
	return next(ctx, r)
}

func (c *Controller) gateStream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := c.gate(); err != nil {
		return err
	}
	return next(srv, s)
}

// ownTLS serves certificates of our own CA, renewed in time.
func (c *Controller) ownTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, GetCertificate: c.certs.GetCertificate, NextProtos: []string{"h2"}, Time: c.clock.Now,
	}
}

func (c *Controller) frontpageTLS() (*tls.Config, error) {
	t := c.ownTLS()
	if c.cfg.TLS.CertFile == "" {
		return t, nil
	}
	cert, err := tls.LoadX509KeyPair(c.cfg.TLS.CertFile, c.cfg.TLS.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load the frontpage's certificate: %w", err)
	}
	t.GetCertificate, t.Certificates = nil, []tls.Certificate{cert}
	c.frontpageEnds = cert.Leaf.NotAfter
	return t, nil
}

// fleetTLS lets in nobody without a certificate of our CA that is recorded and not revoked, and decides it in the
// handshake, before a message is read.
func (c *Controller) fleetTLS() *tls.Config {
	t := c.ownTLS()
	t.ClientAuth = tls.RequireAndVerifyClientCert
	// A resumed session would skip what a fresh handshake shows.
	t.SessionTicketsDisabled = true
	t.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("a client certificate is required")
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		id, err := pki.AgentID(s.PeerCertificates[0])
		if err != nil {
			return err
		}
		return c.checkAgent(ctx, id, s.PeerCertificates[0])
	}
	return c.withRoots(t)
}

// checkCaller is checkAgent for the goroutine of a call, which may live as long as a session.
func (c *Controller) checkCaller(ctx context.Context, agentID string, cert *x509.Certificate) error {
	return task.Apart(ctx, "check certificate",
		func(ctx context.Context) error { return c.checkAgent(ctx, agentID, cert) })
}

// checkAgent refuses a certificate that is not recorded for this agent, revoked, or replaced by a newer one in use, and
// one of a generation of the CA that has been withdrawn.
func (c *Controller) checkAgent(ctx context.Context, agentID string, cert *x509.Certificate) error {
	known, err := c.store.Agents.GetCert(ctx, pki.Fingerprint(cert.Raw))
	switch {
	case err != nil:
		return err
	case known == nil || known.AgentID != agentID:
		return failure.Unauthenticated("CERTIFICATE_UNKNOWN", "the certificate is not recorded")
	case known.Revoked || known.Replaced || !c.signedInForce(cert):
		return failure.Unauthenticated("CERTIFICATE_REVOKED", "the certificate has been revoked or replaced")
	}
	return nil
}

func (c *Controller) signedInForce(cert *x509.Certificate) bool {
	_, inForce := c.ca.Of(cert)
	return inForce
}
