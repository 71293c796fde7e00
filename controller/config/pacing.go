package config

import (
	"time"

	"github.com/ingot-metal/ingot/controller/limit/reconnect"
)

// Admission bounds how fast agents come to one controller.
type Admission struct {
	// Rate is sessions a second, Burst how many may be opened at once after a rest. Concurrent is how many may be in the
	// making at a time. Waiting is how many agents beyond that wait for their turn; all others must try again later.
	Rate       int `yaml:"rate"`
	Burst      int `yaml:"burst"`
	Concurrent int `yaml:"concurrent"`
	Waiting    int `yaml:"waiting"`
	// Handshakes is how many TLS handshakes may be under way at a time; further connections wait a moment for their turn.
	Handshakes int `yaml:"handshakes"`
	// Connections are open at a time, UnprovenConnections are those of them that have not finished their handshake yet,
	// and UnprovenPerAddress those of one address. One more closes the connection that has made no progress for longest. A
	// connection that waits for its turn keeps it: the newest one is closed then.
	Connections         int `yaml:"connections"`
	UnprovenConnections int `yaml:"unproven_connections"`
	UnprovenPerAddress  int `yaml:"unproven_per_address"`
	// ConnectionsPerAgent is how many one agent has at a time; the oldest is closed for one more.
	ConnectionsPerAgent int `yaml:"connections_per_agent"`
}

// Drain is how a controller stops.
type Drain struct {
	// Delay is how long calls and agents are still taken after /readyz has said that the controller stops: as long as a
	// load balancer needs to hear it, where it cannot try another controller by itself.
	Delay Duration `yaml:"delay"`
	// Timeout is how long calls and sessions may take to end after that.
	Timeout Duration `yaml:"timeout"`
}

func defaultAdmission() Admission {
	return Admission{
		Rate: 2000, Burst: 1000, Concurrent: 128, Waiting: 5000, Handshakes: 128,
		Connections: 65_536, UnprovenConnections: 8192, UnprovenPerAddress: 4096, ConnectionsPerAgent: 4,
	}
}

func defaultDrain() Drain { return Drain{Timeout: Duration{15 * time.Second}} }

// Limits are what admission holds agents to.
func (a Admission) Limits() reconnect.Limits {
	return reconnect.Limits{Rate: float64(a.Rate), Burst: a.Burst, Concurrent: a.Concurrent, Waiting: a.Waiting}
}

func (c *Config) checkPacing(k *checker) {
	a := c.Agents.Admission
	number(k, "agents.admission.rate", a.Rate, 1, 1_000_000)
	number(k, "agents.admission.burst", a.Burst, 1, 1_000_000)
	number(k, "agents.admission.concurrent", a.Concurrent, 1, 100_000)
	number(k, "agents.admission.waiting", a.Waiting, 0, 1_000_000)
	number(k, "agents.admission.handshakes", a.Handshakes, 1, 100_000)
	number(k, "agents.admission.connections", a.Connections, 1, 1_000_000)
	number(k, "agents.admission.unproven_connections", a.UnprovenConnections, 1, 1_000_000)
	number(k, "agents.admission.unproven_per_address", a.UnprovenPerAddress, 1, 1_000_000)
	number(k, "agents.admission.connections_per_agent", a.ConnectionsPerAgent, 2, 1000)
	duration(k, "drain.delay", c.Drain.Delay, 0, 5*time.Minute)
	duration(k, "drain.timeout", c.Drain.Timeout, time.Second, 10*time.Minute)
}
