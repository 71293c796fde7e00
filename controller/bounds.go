package controller

import (
	"crypto/tls"

	"github.com/ingot-metal/ingot/controller/door"
	"github.com/ingot-metal/ingot/controller/rest"
	"github.com/ingot-metal/ingot/internal/pki"
)

// bounded are the listeners with their bounds; rest is nil where it is off.
type bounded struct{ frontpage, fleet, enrolment, http, rest *door.Listener }

// boundListeners puts bounds on every listener, which hold before it is known who calls.
func (c *Controller) boundListeners() error {
	front, err := c.frontpageTLS()
	if err != nil {
		return err
	}
	a, s := c.cfg.Agents.Admission, c.cfg.Strangers
	clients := door.ConnectionLimits{
		All: c.cfg.Clients.Connections, Unproven: c.cfg.Clients.UnprovenConnections, PerAddress: c.cfg.Clients.UnprovenPerAddress,
	}
	// A fleet that comes back leaves the others their turns.
	turns, fleetTurns := door.NewTurns(a.Handshakes), door.NewTurns(a.Handshakes)
	c.bounded.frontpage = door.Listen(c.listeners.frontpage, c.bounds("frontpage", clients, front, turns))
	c.listeners.frontpage = c.bounded.frontpage

	fleet := c.bounds("fleet", door.ConnectionLimits{
		All: a.Connections, Unproven: a.UnprovenConnections, PerAddress: a.UnprovenPerAddress, PerCaller: a.ConnectionsPerAgent,
	}, c.fleetTLS(), fleetTurns)
	fleet.Caller = agentOf
	c.bounded.fleet = door.Listen(c.listeners.fleet, fleet)
	c.listeners.fleet = c.bounded.fleet

	c.bounded.enrolment = door.Listen(c.listeners.enrolment, c.bounds("enrolment", door.ConnectionLimits{
		All: s.EnrolmentConnections, Unproven: s.EnrolmentConnections, PerAddress: s.EnrolmentPerAddress,
	}, c.ownTLS(), turns))
	c.listeners.enrolment = c.bounded.enrolment

	c.bounded.http = door.Listen(c.listeners.http, c.bounds("http", door.ConnectionLimits{
		All: s.HTTPConnections, Unproven: s.HTTPConnections, PerAddress: s.HTTPPerAddress,
	}, nil, nil))
	c.listeners.http = c.bounded.http

	if c.listeners.rest != nil {
		front = front.Clone()
		front.NextProtos = rest.Protocols()
		c.bounded.rest = door.Listen(c.listeners.rest, c.bounds("rest", clients, front, turns))
		c.listeners.rest = c.bounded.rest
	}
	return nil
}

func (c *Controller) bounds(name string, l door.ConnectionLimits, t *tls.Config, turns *door.Turns) door.ListenerConfig {
	return door.ListenerConfig{
		Limits: l, TLS: t, Turns: turns, Refusals: refusals,
		Times: door.Times{
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
