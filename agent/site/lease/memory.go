package lease

import (
	"context"
	"sync"
)

// Memory is a Store that lives as long as the process. The zero value is empty.
type Memory struct {
	mu  sync.Mutex
	all map[key]Lease
}

type key struct{ segment, address string }

func keyOf(l Lease) key { return key{l.Segment, l.Address.String()} }

var _ Store = (*Memory)(nil)

// LoadLeases returns the leases of a segment.
func (m *Memory) LoadLeases(_ context.Context, segment string) ([]Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Lease
	for k, l := range m.all {
		if k.segment == segment {
			out = append(out, l)
		}
	}
	return out, nil
}

// SaveLeases keeps copies.
func (m *Memory) SaveLeases(_ context.Context, leases []Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[key]Lease{}
	}
	for _, l := range leases {
		m.all[keyOf(l)] = l
	}
	return nil
}
