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
	// Declined: its client found it in use by another; it is not assigned until Ends.
	Declined State = "declined"
)

// Lease is the stored, listed and reported state of one address.
type Lease struct {
	Segment  string      `json:"segment"`
	Address  netip.Addr  `json:"address"`
	MAC      segment.MAC `json:"mac"`
	State    State       `json:"state"`
	Hostname string      `json:"hostname,omitempty"`
	// Since is when the client got the address for the first time in a row.
	Since time.Time `json:"since"`
	Ends  time.Time `json:"ends"`
	// Fixed is set when the address was not of the pool but of the machine's assignment.
	Fixed bool `json:"fixed,omitempty"`
}

// at returns the lease as of a time: an expired one has ended.
func (l Lease) at(now time.Time) Lease {
	if l.State == Bound && !l.Ends.After(now) {
		l.State = Ended
	}
	return l
}

// Store keeps leases over restarts.
type Store interface {
	// LoadLeases returns the last saved lease of each address of a segment.
	LoadLeases(ctx context.Context, segment string) ([]Lease, error)
	// SaveLeases is all or nothing, by (segment, address), and durable when it returns nil.
	SaveLeases(ctx context.Context, leases []Lease) error
}
