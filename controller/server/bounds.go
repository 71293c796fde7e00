package server

import (
	"crypto/tls"
	"runtime"
	"time"

	"github.com/ingot-metal/ingot/controller/api/gateway"
	"github.com/ingot-metal/ingot/controller/limit/ratelimit"
	"github.com/ingot-metal/ingot/internal/pki"
)

// bounded are the listeners with their bounds; rest is nil where it is off.
type bounded struct{ frontpage, fleet, enrolment, http, rest *ratelimit.Listener }

// fleetHandshakeTime is the time that each agent has for its handshake whatever other agents do. It covers round trips
// over a slow line, and a machine under load.
const fleetHandshakeTime = time.Second

// boundListeners puts bounds on every listener, which hold before it is known who calls.
func (s *Servers) boundListeners() error {
	front, err := s.frontpageTLS()
	if err != nil {
		return err
	}
	cfg := s.cfg.Config
	a, strangers := cfg.Agents.Admission, cfg.Strangers
	clients := ratelimit.ConnectionLimits{
		All: cfg.Clients.Connections, Unproven: cfg.Clients.UnprovenConnections,
		PerAddress: cfg.Clients.UnprovenPerAddress,
	}
	// A fleet that comes back leaves the others their turns. Those ask no database, so more than this would only slow each
	// other.
	turns := ratelimit.NewQueue(2 * runtime.GOMAXPROCS(0))
	s.bounded.frontpage = ratelimit.Listen(s.listeners.Frontpage, s.bounds("frontpage", clients, front, turns))
	s.listeners.Frontpage = s.bounded.frontpage

	agents := ratelimit.ConnectionLimits{
		All: a.Connections, Unproven: a.UnprovenConnections, PerAddress: a.UnprovenPerAddress,
		PerCaller: a.ConnectionsPerAgent, HandshakeTime: fleetHandshakeTime,
	}
	// A turn beyond the handshakes that may be under way would end the oldest of them.
	fleetTurns := ratelimit.NewFairQueue(min(a.Handshakes, agents.Handshakes()))
	fleet := s.bounds("fleet", agents, s.fleetTLS(), fleetTurns)
	fleet.Caller = agentOf
	s.bounded.fleet = ratelimit.Listen(s.listeners.Fleet, fleet)
	s.listeners.Fleet = s.bounded.fleet

	s.bounded.enrolment = ratelimit.Listen(s.listeners.Enrolment, s.bounds("enrolment", ratelimit.ConnectionLimits{
		All:        strangers.EnrolmentConnections,
		Unproven:   strangers.EnrolmentConnections,
		PerAddress: strangers.EnrolmentPerAddress,
	}, s.ownTLS(), turns))
	s.listeners.Enrolment = s.bounded.enrolment

	s.bounded.http = ratelimit.Listen(s.listeners.HTTP, s.bounds("http", ratelimit.ConnectionLimits{
		All: strangers.HTTPConnections, Unproven: strangers.HTTPConnections, PerAddress: strangers.HTTPPerAddress,
	}, nil, nil))
	s.listeners.HTTP = s.bounded.http

	if s.listeners.REST != nil {
		front = front.Clone()
		front.NextProtos = gateway.Protocols()
		s.bounded.rest = ratelimit.Listen(s.listeners.REST, s.bounds("rest", clients, front, turns))
		s.listeners.REST = s.bounded.rest
	}
	return nil
}

func (s *Servers) bounds(
	name string, l ratelimit.ConnectionLimits, t *tls.Config, turns *ratelimit.Queue,
) ratelimit.ListenerConfig {
	return ratelimit.ListenerConfig{
		Limits: l, TLS: t, Turns: turns, Refusals: refusals,
		Times: ratelimit.Times{
			FirstByte: s.cfg.Config.Strangers.FirstByte.Duration, Handshake: s.cfg.Config.Strangers.Handshake.Duration,
			FirstRequest: s.cfg.Config.Strangers.FirstRequest.Duration,
		},
		Closed: func(why string) { s.cfg.Metrics.ConnectionsClosed.WithLabelValues(name, why).Inc() },
	}
}

// agentOf names the agent of a handshake, whose certificate has been verified.
func agentOf(s tls.ConnectionState) string {
	if len(s.PeerCertificates) == 0 {
		return ""
	}
	id, err := pki.AgentID(s.PeerCertificates[0])
	if err != nil {
		return ""
	}
	return id
}
