package lease

import (
	"context"
	"net/netip"
	"time"

	"github.com/ingot-metal/ingot/agent/site/segment"
)

// State is where an address stands.
type State string

const (
	// Bound: a client has it, until Ends.
	Bound State = "bound"
	// Ended: its client has given it back, or lost it, at Ends.
	Ended State = "ended"
	// Declined: its client found it in use by another; nobody gets it until Ends.
	Declined State = "declined"
)

// Lease is what is stored, listed and reported about one address.
type Lease struct {
	Segment  string      `json:"segment"`
	Address  netip.Addr  `json:"address"`
	MAC      segment.MAC `json:"mac"`
	State    State       `json:"state"`
	Hostname string      `json:"hostname,omitempty"`
	// Since is when the client got the address for the first time in a row.
	Since time.Time `json:"since"`
	Ends  time.Time `json:"ends"`
	// Fixed says that the address was not of the pool but of the machine's assignment.
	Fixed bool `json:"fixed,omitempty"`
}

// at gives the lease as it is to be seen at a time: one that has run out has ended.
func (l Lease) at(now time.Time) Lease {
	if l.State == Bound && !l.Ends.After(now) {
		l.State = Ended
	}
	return l
}

// Store keeps leases over restarts.
type Store interface {
	// LoadLeases gives what was saved last for each address of a segment.
	LoadLeases(ctx context.Context, segment string) ([]Lease, error)
	// SaveLeases is all or nothing, by (segment, address), and durable when it returns nil.
	SaveLeases(ctx context.Context, leases []Lease) error
}
