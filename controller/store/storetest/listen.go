package storetest

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
)

// Listener records what the store tells a controller.
type Listener struct {
	mu sync.Mutex
	// Jobs are the keys of the operations whose jobs were inserted, also by transactions that were rolled back.
	Jobs    []operationstore.JobKey
	Applied []*operationstore.Applied
}

// Listen takes the place of a store's controller.
func Listen(s *store.Store) *Listener {
	h := &Listener{}
	s.Operations.OnCreated(func(_ context.Context, _ pgx.Tx, jobs []*operationstore.NewJob) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, j := range jobs {
			h.Jobs = append(h.Jobs, j.JobKey)
		}
		return nil
	}, nil)
	s.Operations.OnApplied(func(a *operationstore.Applied) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.Applied = append(h.Applied, a)
	})
	return h
}
