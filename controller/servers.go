package controller

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
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
	"github.com/ingot-metal/ingot/controller/server"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/pki"
)

func (c *Controller) openServers(context.Context) error {
	var err error
	if c.servers, err = server.New(server.Config{
		Config: &c.cfg, Logger: c.log, Clock: c.clock, CA: c.ca, Certs: c.certs, Tokens: c.tokens, Sessions: c.sessions,
		Agents: c.store.Agents, Metrics: c.metrics, Limiter: c.limiter, Access: accessOf(c.store), Traces: c.traces,
		Started: c.started,
	}, c.listeners); err != nil {
		return err
	}
	c.registerFrontpage(c.servers.Frontpage)
	roots, err := c.tpmRoots()
	if err != nil {
		return err
	}
	installers := &agent.Installers{
		Engine: c.engine.Agents, Identities: c.store.Identities, Operations: c.store.Operations,
		Sessions: c.sessions, CA: c.ca, Secrets: c.secrets, Clock: c.clock, Logger: c.log,
		CertLifetime: c.cfg.Agents.CertLifetime.Duration, Roots: roots,
	}
	fleetv1.RegisterAgentServiceServer(c.servers.Fleet, agent.New(agent.Config{
		Engine: c.engine.Agents, Store: agent.Stores{
			Agents: c.store.Agents, Sessions: c.store.Sessions, Operations: c.store.Operations,
			Credentials: c.store.Credentials, Sites: c.store.Sites, Identities: c.store.Identities,
		}, Sessions: c.sessions, CA: c.ca, Installers: installers, Blobs: c.blobs,
		Secrets: c.secrets, Clock: c.clock, Logger: c.log, ControllerID: c.id,
		CertLifetime: c.cfg.Agents.CertLifetime.Duration, Admission: c.cfg.Agents.Admission.Limits(), Spread: c.spread,
		Cut: c.servers.CutAgent, Paced: c.metrics.SessionsPaced.Inc,
		MaxMessage: c.cfg.MaxMessageBytes, Draining: c.draining, FleetAddresses: c.cfg.FleetAddresses(),
		EnrolmentAddresses: c.cfg.EnrolmentAddresses(),
	}))
	enrollv1.RegisterEnrollmentServiceServer(c.servers.Enrolment, enroll.New(enroll.Config{
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

// healthOf returns the health of each service that is registered, until the controller drains
// (https://github.com/grpc/grpc/blob/master/doc/health-checking.md).
func (c *Controller) healthOf(s *grpc.Server) *health.Server {
	h := health.NewServer()
	for name := range s.GetServiceInfo() {
		h.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	context.AfterFunc(c.draining, h.Shutdown)
	return h
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

func (c *Controller) registerFrontpage(s *grpc.Server) {
	var signOn func(context.Context) (*baremetalv1.SignOn, error)
	if c.signOn != nil {
		signOn = c.signOn.SignOn
	}
	public.Register(s, service.Config{
		SignOn: signOn,
		Engine: c.engine.Requests, Images: c.images, Scripts: c.scripts, Secrets: c.secrets, Clock: c.clock,
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
	healthv1.RegisterHealthServer(s, c.healthOf(s))
	if c.cfg.Reflection {
		reflection.Register(s)
	}
}
