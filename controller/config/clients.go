package config

import (
	"runtime"
	"time"

	"github.com/ingot-metal/ingot/controller/limit/fairqueue"
)

// Clients bounds what clients may ask of the frontpage, by gRPC and by REST together. A client is a bearer token. The
// limits are of one controller: with three, a client that spreads its calls has three times as much.
type Clients struct {
	// ReadRate and WriteRate are calls a second of each client; the bursts are what it may make at once after a rest.
	ReadRate   int `yaml:"read_rate"`
	ReadBurst  int `yaml:"read_burst"`
	WriteRate  int `yaml:"write_rate"`
	WriteBurst int `yaml:"write_burst"`
	// StreamsPerClient and Streams are open at a time.
	StreamsPerClient int `yaml:"streams_per_client"`
	Streams          int `yaml:"streams"`
	// Running is how many calls of all clients are under way at a time; others wait in turn.
	Running int `yaml:"running"`
	// WaitingPerClient and Waiting are calls that wait, and WaitingBytes is how large their requests are together.
	WaitingPerClient int `yaml:"waiting_per_client"`
	Waiting          int `yaml:"waiting"`
	WaitingBytes     int `yaml:"waiting_bytes"`
	// Connections are open at a time, and UnprovenConnections are those of them that no known client has called on yet.
	Connections         int `yaml:"connections"`
	UnprovenConnections int `yaml:"unproven_connections"`
	// UnprovenPerAddress are those of one address.
	UnprovenPerAddress int `yaml:"unproven_per_address"`
	// MaxWait is how long a call waits for its turn.
	MaxWait Duration `yaml:"max_wait"`
}

func defaultClients() Clients {
	return Clients{
		ReadRate: 5000, ReadBurst: 10_000, WriteRate: 5000, WriteBurst: 10_000, StreamsPerClient: 1000, Streams: 5000,
		Running: 64, WaitingPerClient: 2000, Waiting: 10_000, WaitingBytes: 64 << 20, MaxWait: Duration{30 * time.Second},
		Connections: 4096, UnprovenConnections: 256, UnprovenPerAddress: 64,
	}
}

// Limits are what admission holds clients to.
func (c Clients) Limits() fairqueue.Limits {
	return fairqueue.Limits{
		Read:          fairqueue.Rate{PerSecond: c.ReadRate, Burst: c.ReadBurst},
		Write:         fairqueue.Rate{PerSecond: c.WriteRate, Burst: c.WriteBurst},
		ClientStreams: c.StreamsPerClient, Streams: c.Streams, Running: c.Running, Lists: max(4, 2*runtime.GOMAXPROCS(0)),
		ClientWaiting: c.WaitingPerClient,
		Waiting:       c.Waiting, WaitingBytes: c.WaitingBytes,
	}
}

func (c *Config) checkClients(k *checker) {
	for _, n := range []struct {
		key  string
		n    int
		high int
	}{
		{"read_rate", c.Clients.ReadRate, 1_000_000}, {"read_burst", c.Clients.ReadBurst, 1_000_000},
		{"write_rate", c.Clients.WriteRate, 1_000_000}, {"write_burst", c.Clients.WriteBurst, 1_000_000},
		{"streams_per_client", c.Clients.StreamsPerClient, 1_000_000}, {"streams", c.Clients.Streams, 1_000_000},
		{"running", c.Clients.Running, 10_000}, {"waiting_per_client", c.Clients.WaitingPerClient, 1_000_000},
		{"waiting", c.Clients.Waiting, 1_000_000}, {"waiting_bytes", c.Clients.WaitingBytes, 1 << 30},
		{"connections", c.Clients.Connections, 1_000_000}, {"unproven_connections", c.Clients.UnprovenConnections, 1_000_000},
		{"unproven_per_address", c.Clients.UnprovenPerAddress, 1_000_000},
	} {
		number(k, "clients."+n.key, n.n, 1, n.high)
	}
	duration(k, "clients.max_wait", c.Clients.MaxWait, 100*time.Millisecond, 10*time.Minute)
}
