package harness

import (
	"testing"

	"github.com/ingot-metal/ingot/lab/relay"
)

// Relay forwards TCP connections to a target that can change, be blocked and be cut.
type Relay = relay.Relay

// NewRelay listens on loopback until the test ends.
func NewRelay(t testing.TB, network, address string) *Relay {
	t.Helper()
	r := openRelay(t, network, address)
	t.Cleanup(r.Close)
	return r
}

func openRelay(t testing.TB, network, address string) *Relay {
	t.Helper()
	r, err := relay.Open(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
