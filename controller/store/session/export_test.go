package session

import (
	"context"
	"time"
)

// OpenBatch opens those of the sessions that are calm, as a crowded store does, and returns nil for the others.
func (s *Store) OpenBatch(ctx context.Context, now time.Time, lot ...Hello) ([]*Opened, error) {
	var at []helloAt
	for _, h := range lot {
		at = append(at, helloAt{h, now})
	}
	return s.openBatch(ctx, at)
}

// EndTogether ends sessions in one statement, as a crowded store does.
func (s *Store) EndTogether(ctx context.Context, now time.Time, lot ...Hello) error {
	var over []ending
	for _, h := range lot {
		over = append(over, ending{h.AgentID, h.SessionID, now})
	}
	_, err := s.endSessions(ctx, over)
	return err
}

// Inventory is one of a lot.
type Inventory struct {
	Key             EventKey
	MachineID, Hash string
	Document        []byte
	At              time.Time
}

// StoreInventories stores a lot together, as a crowded store does, and reports for each whether it did.
func (s *Store) StoreInventories(ctx context.Context, lot ...Inventory) ([]bool, error) {
	var all []inventory
	for _, i := range lot {
		all = append(all, inventory{EventKey: i.Key, machineID: i.MachineID, hash: i.Hash, document: i.Document, at: i.At})
	}
	return s.storeInventories(ctx, all)
}
