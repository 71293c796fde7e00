package controller

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

// fleetHandshakeTime is the time that each agent has for its handshake whatever other agents do: round trips over a slow
// line, and the computing of a machine under load.
const fleetHandshakeTime = 2 * time.Second

// boundListeners puts bounds on every listener, which hold before it is known who calls.
func (c *Controller) boundListeners() error {
	front, err := c.frontpageTLS()
	if err != nil {
		return err
	}
	a, s := c.cfg.Agents.Admission, c.cfg.Strangers
	clients := ratelimit.ConnectionLimits{
		All: c.cfg.Clients.Connections, Unproven: c.cfg.Clients.UnprovenConnections,
		PerAddress: c.cfg.Clients.UnprovenPerAddress,
	}
	// A fleet that comes back leaves the others their turns. Those ask no database, so more than this would only slow each
	// other.
	turns, fleetTurns := ratelimit.NewQueue(2*runtime.GOMAXPROCS(0)), ratelimit.NewQueue(a.Handshakes)
	c.bounded.frontpage = ratelimit.Listen(c.listeners.frontpage, c.bounds("frontpage", clients, front, turns))
	c.listeners.frontpage = c.bounded.frontpage

	fleet := c.bounds("fleet", ratelimit.ConnectionLimits{
		All: a.Connections, Unproven: a.UnprovenConnections, PerAddress: a.UnprovenPerAddress,
		PerCaller: a.ConnectionsPerAgent, HandshakeTime: fleetHandshakeTime,
	}, c.fleetTLS(), fleetTurns)
	fleet.Caller = agentOf
	c.bounded.fleet = ratelimit.Listen(c.listeners.fleet, fleet)
	c.listeners.fleet = c.bounded.fleet

	c.bounded.enrolment = ratelimit.Listen(c.listeners.enrolment, c.bounds("enrolment", ratelimit.ConnectionLimits{
		All: s.EnrolmentConnections, Unproven: s.EnrolmentConnections, PerAddress: s.EnrolmentPerAddress,
	}, c.ownTLS(), turns))
	c.listeners.enrolment = c.bounded.enrolment

	c.bounded.http = ratelimit.Listen(c.listeners.http, c.bounds("http", ratelimit.ConnectionLimits{
		All: s.HTTPConnections, Unproven: s.HTTPConnections, PerAddress: s.HTTPPerAddress,
	}, nil, nil))
	c.listeners.http = c.bounded.http

	if c.listeners.rest != nil {
		front = front.Clone()
		front.NextProtos = gateway.Protocols()
		c.bounded.rest = ratelimit.Listen(c.listeners.rest, c.bounds("rest", clients, front, turns))
		c.listeners.rest = c.bounded.rest
	}
	return nil
}

func (c *Controller) bounds(
	name string, l ratelimit.ConnectionLimits, t *tls.Config, turns *ratelimit.Queue,
) ratelimit.ListenerConfig {
	return ratelimit.ListenerConfig{
		Limits: l, TLS: t, Turns: turns, Refusals: refusals,
		Times: ratelimit.Times{
			FirstByte: c.cfg.Strangers.FirstByte.Duration, Handshake: c.cfg.Strangers.Handshake.Duration,
			FirstRequest: c.cfg.Strangers.FirstRequest.Duration,
		},
		Closed: func(why string) { c.metrics.ConnectionsClosed.WithLabelValues(name, why).Inc() },
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
